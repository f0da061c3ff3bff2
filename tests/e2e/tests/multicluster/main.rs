//! Several real Kubernetes clusters as one mesh: clusters that Secrets name come, change and go while it runs, fail and
//! come back, and nothing of them is lost or told to anybody.

// The helpers of a test fail it where they cannot go on.
#![allow(clippy::unwrap_used)]

mod away;
mod life;
mod mesh;
mod proxies;
mod writing;
