//! Connections to endpoints: connection pools, outlier detection and client TLS.

use std::sync::Arc;
use std::time::Duration;

message! {
    /// Limits for connections and requests to a destination.
    pub struct ConnectionPoolSettings where [any(tcp, http)] {
        /// Settings for TCP connections, including those that carry HTTP.
        pub tcp: Option<TcpSettings>,
        /// Settings for HTTP connections and requests.
        pub http: Option<HttpPoolSettings>,
    }
}

message! {
    /// Settings for TCP connections.
    pub struct TcpSettings {
        /// Maximum number of connections. 0 means no limit.
        pub max_connections: i32 where [from 0],
        /// Timeout for establishing a connection. Defaults to `connectTimeout` of the mesh configuration.
        pub connect_timeout: Option<Duration> where [is duration],
        /// TCP keepalive settings of the socket. Defaults to `tcpKeepalive` of the mesh configuration.
        pub tcp_keepalive: Option<TcpKeepalive>,
        /// Maximum lifetime of a connection. If omitted, it is unlimited.
        pub max_connection_duration: Option<Duration> where [is duration],
        /// Idle timeout of a TCP connection. Defaults to 1h. Zero disables the timeout.
        pub idle_timeout: Option<Duration> where [is duration_or_zero],
    }
}

message! {
    /// TCP keepalive settings of a socket.
    pub struct TcpKeepalive {
        /// Number of unanswered probes after which the connection is considered dead. 0 means the operating system's
        /// default.
        pub probes: u32,
        /// Idle time before the first probe is sent. Defaults to the operating system's setting.
        pub time: Option<Duration> where [is duration],
        /// Time between probes. Defaults to the operating system's setting.
        pub interval: Option<Duration> where [is duration],
    }
}

message! {
    /// Settings for HTTP connections and requests.
    pub struct HttpPoolSettings: Relations {
        /// Maximum number of requests that wait for a connection. 0 means no limit.
        pub http1_max_pending_requests: i32 where [from 0],
        /// Maximum number of active requests. 0 means no limit.
        pub http2_max_requests: i32 where [from 0],
        /// Maximum number of requests per connection. 0 means no limit.
        pub max_requests_per_connection: i32 where [from 0],
        /// Maximum number of retries in progress at a time. 0 means no limit.
        pub max_retries: i32 where [from 0],
        /// Time after which a connection without active requests is closed. Defaults to 1h.
        pub idle_timeout: Option<Duration> where [is duration],
        /// Whether HTTP/1.1 connections are upgraded to HTTP/2.
        pub h2_upgrade_policy: H2UpgradePolicy,
        /// Whether the protocol that the client uses is also used for the connection to the endpoint.
        pub use_client_protocol: bool,
        /// Maximum number of concurrent streams per HTTP/2 connection. 0 means Envoy's default.
        pub max_concurrent_streams: i32 where [from 0],
        /// Keepalive pings on HTTP/2 connections.
        pub http2_keep_alive: Option<Http2KeepAlive>,
    }
}

message! {
    /// Keepalive pings on HTTP/2 connections.
    pub struct Http2KeepAlive {
        /// Time between pings.
        pub interval: Option<Duration> where [needed, is duration],
        /// Time to wait for the response to a ping before the connection is closed.
        pub timeout: Option<Duration> where [needed, is duration],
    }
}

enumeration! {
    /// Whether HTTP/1.1 connections to the endpoint are upgraded to HTTP/2.
    pub enum H2UpgradePolicy {
        /// Uses the setting of the mesh configuration.
        #[default]
        Default = "DEFAULT" 0,
        /// Does not upgrade.
        DoNotUpgrade = "DO_NOT_UPGRADE" 1,
        /// Upgrades to HTTP/2.
        Upgrade = "UPGRADE" 2,
    }
}

message! {
    /// Outlier detection: ejects failing endpoints from load balancing.
    pub struct OutlierDetection: Relations {
        /// Deprecated. Has no effect.
        pub consecutive_errors: i32 where [
            warn "deprecated" "consecutiveErrors has no effect; use consecutiveGatewayErrors or consecutive5xxErrors",
        ],
        /// Whether locally originated failures, such as a refused connection, are counted separately from errors that
        /// the endpoint returns.
        pub split_external_local_origin_errors: bool,
        /// Number of consecutive locally originated failures that ejects an endpoint. Defaults to 5.
        pub consecutive_local_origin_failures: Option<u32> where [nullable],
        /// Number of consecutive 502, 503 or 504 responses that ejects an endpoint. If omitted or 0, this check is
        /// disabled.
        pub consecutive_gateway_errors: Option<u32> where [nullable],
        /// Number of consecutive 5xx responses that ejects an endpoint. Defaults to 5. 0 disables this check.
        pub consecutive_5xx_errors: Option<u32> where [nullable],
        /// Time between ejection analysis sweeps. Defaults to 10s.
        pub interval: Option<Duration> where [is duration],
        /// Base ejection time. An endpoint stays ejected for this time multiplied by the number of times it has been
        /// ejected. Defaults to 30s.
        pub base_ejection_time: Option<Duration> where [is duration],
        /// Maximum percentage of endpoints that can be ejected at a time. 0 means 10.
        pub max_ejection_percent: i32 where [from 0, to 100],
        /// Minimum percentage of healthy endpoints. Outlier detection is disabled while fewer endpoints are healthy.
        pub min_health_percent: i32 where [from 0, to 100],
        /// HTTP status codes that count as errors in addition to 5xx.
        pub outlier_detection_http_error_codes: Vec<u32> where [items(min 100, max 599)],
    }
}

message! {
    /// TLS settings for connections to a server.
    pub struct ClientTlsSettings: Relations {
        /// TLS mode.
        pub mode: ClientTlsMode,
        /// Path of the client certificate.
        pub client_certificate: Arc<str>,
        /// Path of the private key of the client certificate.
        pub private_key: Arc<str>,
        /// Path of the CA certificates that verify the server certificate.
        pub ca_certificates: Arc<str>,
        /// Name of the Secret that holds the client certificate, its key and the CA certificates.
        pub credential_name: Arc<str>,
        /// Subject alternative names, of which the server certificate must contain one.
        pub subject_alt_names: Vec<Arc<str>>,
        /// Server name (SNI) to send in the TLS handshake.
        pub sni: Arc<str> where [is server_name],
        /// Whether verification of the server certificate is skipped.
        pub insecure_skip_verify: Option<bool> where [nullable],
        /// Path of the certificate revocation list (CRL) for the server certificate.
        pub ca_crl: Arc<str>,
    }
}

enumeration! {
    /// TLS mode of connections to a server.
    pub enum ClientTlsMode {
        /// Does not use TLS.
        #[default]
        Disable = "DISABLE" 0,
        /// Verifies the server; presents no client certificate.
        Simple = "SIMPLE" 1,
        /// Mutual TLS with the certificates set in this object.
        Mutual = "MUTUAL" 2,
        /// Mutual TLS with the workload certificates of the mesh.
        IstioMutual = "ISTIO_MUTUAL" 3,
    }
}
