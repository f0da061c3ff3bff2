//! Session affinity.

use std::sync::Arc;

/// Identification of a client's session.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Session {
    /// A session cookie.
    Cookie {
        /// Its name.
        name: Arc<str>,
        /// Its path.
        path: Arc<str>,
    },
    /// This header.
    Header(Arc<str>),
}
