//! The identity of a workload, with a certificate authority that the test plays.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

mod envoy;
mod sds;
mod support;
