//! Namespace.

use std::sync::Arc;

message! {
    /// A Kubernetes namespace. The mesh reads its labels and annotations.
    pub struct Namespace {
        /// `status.phase`: `Active` or `Terminating`; empty if not set.
        pub phase: Arc<str>,
    }
}
