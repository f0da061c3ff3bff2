//! Several real Kubernetes clusters as one mesh: clusters that Secrets name are added, changed and removed at runtime,
//! fail and recover. No object is lost, and credentials are never disclosed.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

mod away;
mod certificates;
mod life;
mod mesh;
mod proxies;
mod writing;
