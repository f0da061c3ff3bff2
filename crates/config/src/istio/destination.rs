//! Destinations and conditions on strings, which routes and their actions share.

use std::sync::Arc;

message! {
    /// Service, or a subset of its endpoints.
    pub struct Destination: Relations {
        /// Host name of the service. Short names are resolved in the VirtualService's namespace.
        pub host: Arc<str> where [required, needed, is destination_host],
        /// Subset defined by a DestinationRule. If empty, all endpoints are used.
        pub subset: Arc<str> where [is label],
        /// Port of the service. Can be omitted if the service has only one port.
        pub port: Option<PortSelector>,
    }
}

message! {
    /// Port by number.
    pub struct PortSelector {
        /// Port number.
        pub number: u32,
    }
}

choice! {
    /// Condition on a string.
    pub enum StringMatch {
        /// Matches any value (`{}`).
        else Present,
        /// Matches an equal value.
        Exact(Arc<str>) = "exact",
        /// Matches a value with this prefix.
        Prefix(Arc<str>) = "prefix",
        /// Matches if the regular expression (RE2) matches the whole value.
        Regex(Arc<str>) = "regex",
    }
}
