//! Access log providers.

use std::sync::Arc;

use serde_json::Value as Json;

message! {
    /// Access log in a file.
    pub struct FileAccessLogProvider {
        /// Path of the file.
        pub path: Arc<str> where [is log_file],
        /// Format of log entries.
        pub log_format: Option<LogFormat>,
        /// Whether empty values are omitted.
        pub omit_empty_values: bool,
    }
}

choice! {
    /// Format of an access log.
    pub enum LogFormat {
        /// Istio's default format.
        else Default,
        /// Text with command operators.
        Text(Arc<str>) = "text" where [is log_format],
        /// JSON object with command operators.
        Labels(Json) = "labels" where [is log_format],
    }
}

message! {
    /// Envoy's gRPC access log service for HTTP.
    pub struct HttpAlsProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Name of the log.
        pub log_name: Arc<str>,
        /// Filter state objects to log.
        pub filter_state_objects_to_log: Vec<Arc<str>>,
        /// Request headers to log.
        pub additional_request_headers_to_log: Vec<Arc<str>> where [is logged_header],
        /// Response headers to log.
        pub additional_response_headers_to_log: Vec<Arc<str>> where [is logged_header],
        /// Response trailers to log.
        pub additional_response_trailers_to_log: Vec<Arc<str>> where [is logged_header],
    }
}

message! {
    /// Envoy's gRPC access log service for TCP.
    pub struct TcpAlsProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Name of the log.
        pub log_name: Arc<str>,
        /// Filter state objects to log.
        pub filter_state_objects_to_log: Vec<Arc<str>>,
    }
}

message! {
    /// OpenTelemetry access log service.
    pub struct OtelAlsProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Name of the log.
        pub log_name: Arc<str>,
        /// Format of log entries.
        pub log_format: Option<OtelLogFormat>,
    }
}

message! {
    /// Format of an OpenTelemetry access log.
    pub struct OtelLogFormat {
        /// Body of the log record, a text with command operators.
        pub text: Arc<str> where [is log_format],
        /// Attributes of the log record, a JSON object with command operators.
        pub labels: Option<Json> where [is log_format],
    }
}
