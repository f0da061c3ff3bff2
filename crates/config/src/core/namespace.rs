//! Namespace.

use std::sync::Arc;

message! {
    /// A Kubernetes namespace; what matters are its labels and annotations.
    pub struct Namespace {
        /// `status.phase`: `Active` or `Terminating`; empty where nobody said.
        pub phase: Arc<str>,
    }
}
