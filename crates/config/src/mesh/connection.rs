//! Limits and timeouts of a proxy's connections.

use std::time::Duration;

message! {
    /// Limits and timeouts of connections.
    pub struct ConnectionSettings {
        /// Profile that provides defaults for unset fields.
        pub profile: ConnectionProfile,
        /// Buffer limit per downstream connection, in bytes.
        pub listener_per_connection_buffer_limit_bytes: Option<i32> where [from 0],
        /// Buffer limit per upstream connection, in bytes.
        pub cluster_per_connection_buffer_limit_bytes: Option<i32> where [from 0],
        /// Time after which an HTTP connection without active requests is closed.
        pub http_idle_timeout: Option<Duration>,
        /// Maximum lifetime of an HTTP connection.
        pub http_max_connection_duration: Option<Duration>,
        /// Drain time of an HTTP connection.
        pub http_drain_timeout: Option<Duration>,
        /// Timeout for receiving a complete request.
        pub http_request_timeout: Option<Duration>,
        /// Timeout for receiving the headers of a request.
        pub http_request_headers_timeout: Option<Duration>,
        /// Idle timeout of an HTTP stream.
        pub http_stream_idle_timeout: Option<Duration>,
        /// Maximum lifetime of an HTTP stream.
        pub http_max_stream_duration: Option<Duration>,
        /// Maximum number of concurrent streams per connection.
        pub http_max_concurrent_streams: Option<i32> where [from 1],
        /// Initial flow-control window of an HTTP/2 stream, in bytes.
        pub http2_initial_stream_window_size: Option<i32> where [from 65535],
        /// Initial flow-control window of an HTTP/2 connection, in bytes.
        pub http2_initial_connection_window_size: Option<i32> where [from 65535],
        /// Handling of headers with underscores in their names.
        pub http_headers_with_underscores_action: HeadersWithUnderscoresAction,
        /// Whether adjacent slashes in the path are merged.
        pub http_merge_slashes: Option<bool>,
        /// Handling of escaped slashes in the path.
        pub http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction,
        /// Maximum number of connections per listener.
        pub listener_connection_limit: Option<i32> where [from 1],
        /// Maximum number of downstream connections of the proxy.
        pub global_downstream_connection_limit: Option<i32> where [from 1],
    }
}

enumeration! {
    /// Profile of default limits and timeouts.
    pub enum ConnectionProfile {
        /// For sidecars.
        #[default]
        Sidecar = "SIDECAR" 0,
        /// For proxies at the edge of the mesh.
        Edge = "EDGE" 1,
    }
}

enumeration! {
    /// Handling of headers with underscores in their names.
    pub enum HeadersWithUnderscoresAction {
        /// Unspecified.
        #[default]
        Unspecified = "HEADERS_WITH_UNDERSCORES_UNSPECIFIED" 0,
        /// Forwards the headers.
        Allow = "HEADERS_WITH_UNDERSCORES_ALLOW" 1,
        /// Rejects the request.
        RejectRequest = "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST" 2,
        /// Removes the headers.
        DropHeader = "HEADERS_WITH_UNDERSCORES_DROP_HEADER" 3,
    }
}

enumeration! {
    /// Handling of escaped slashes in paths.
    pub enum PathWithEscapedSlashesAction {
        /// Unspecified.
        #[default]
        Unspecified = "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED" 0,
        /// Keeps the slashes escaped.
        KeepUnchanged = "KEEP_UNCHANGED" 1,
        /// Rejects the request.
        RejectRequest = "REJECT_REQUEST" 2,
        /// Unescapes the slashes and redirects the client to the new path.
        UnescapeAndRedirect = "UNESCAPE_AND_REDIRECT" 3,
        /// Unescapes the slashes and forwards the request.
        UnescapeAndForward = "UNESCAPE_AND_FORWARD" 4,
    }
}
