//! Clients that stay with one endpoint of a service.

use std::sync::Arc;

/// By what a client is known again.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Session {
    /// By a cookie that lives as long as the client's own session.
    Cookie {
        /// Its name.
        name: Arc<str>,
        /// The paths that it is sent with.
        path: Arc<str>,
    },
    /// By a header of this name.
    Header(Arc<str>),
}
