//! Connections to endpoints: pools, TLS, and when an endpoint is taken out.

use std::sync::Arc;
use std::time::Duration;

message! {
    /// Limits on connections and requests to a destination.
    pub struct ConnectionPoolSettings {
        /// For all connections.
        pub tcp: Option<TcpSettings>,
        /// For HTTP.
        pub http: Option<HttpPoolSettings>,
    }
}

message! {
    /// Settings of all connections.
    pub struct TcpSettings {
        /// The most connections; 0 means no limit.
        pub max_connections: i32,
        /// The time to connect; absent: the mesh's.
        pub connect_timeout: Option<Duration>,
        /// Keepalive probes of the socket; absent: the mesh's.
        pub tcp_keepalive: Option<TcpKeepalive>,
        /// The longest life of a connection.
        pub max_connection_duration: Option<Duration>,
        /// How long a TCP connection may be idle; absent means 1h, zero means for ever.
        pub idle_timeout: Option<Duration>,
    }
}

message! {
    /// Keepalive probes of a socket.
    pub struct TcpKeepalive {
        /// Probes without an answer until the connection is dead; 0 means the system's default.
        pub probes: u32,
        /// Idle time before the first probe; absent: the system's default.
        pub time: Option<Duration>,
        /// Time between probes; absent: the system's default.
        pub interval: Option<Duration>,
    }
}

message! {
    /// Settings of HTTP connections and requests.
    pub struct HttpPoolSettings {
        /// The most requests that wait for a connection; 0 means no limit.
        pub http1_max_pending_requests: i32,
        /// The most requests under way; 0 means no limit.
        pub http2_max_requests: i32,
        /// The most requests over one connection; 0 means no limit.
        pub max_requests_per_connection: i32,
        /// The most retries under way; 0 means no limit.
        pub max_retries: i32,
        /// How long a connection may have no requests; absent means 1h.
        pub idle_timeout: Option<Duration>,
        /// Whether HTTP/1.1 becomes HTTP/2.
        pub h2_upgrade_policy: H2UpgradePolicy,
        /// Whether the client's protocol is used towards the endpoint.
        pub use_client_protocol: bool,
        /// The most streams over one HTTP/2 connection; 0 means Envoy's default.
        pub max_concurrent_streams: i32,
        /// Pings over HTTP/2 connections.
        pub http2_keep_alive: Option<Http2KeepAlive>,
    }
}

message! {
    /// Pings over HTTP/2 connections.
    pub struct Http2KeepAlive {
        /// The time between pings.
        pub interval: Option<Duration>,
        /// The time to answer one.
        pub timeout: Option<Duration>,
    }
}

enumeration! {
    /// Whether HTTP/1.1 becomes HTTP/2 towards the endpoint.
    pub enum H2UpgradePolicy {
        /// As the mesh says.
        #[default]
        Default = "DEFAULT" 0,
        /// It stays.
        DoNotUpgrade = "DO_NOT_UPGRADE" 1,
        /// It does.
        Upgrade = "UPGRADE" 2,
    }
}

message! {
    /// When an endpoint is taken out, and for how long.
    pub struct OutlierDetection {
        /// Deprecated and without effect.
        pub consecutive_errors: i32,
        /// Whether failures to reach the endpoint count apart from errors that it answers with.
        pub split_external_local_origin_errors: bool,
        /// Failures to reach it in a row; absent means 5.
        pub consecutive_local_origin_failures: Option<u32> where [nullable],
        /// Responses 502, 503, 504 in a row; absent or 0: off.
        pub consecutive_gateway_errors: Option<u32> where [nullable],
        /// Responses 5xx in a row; absent means 5; 0: off.
        pub consecutive_5xx_errors: Option<u32> where [nullable],
        /// The time between looks; absent means 10s.
        pub interval: Option<Duration>,
        /// How long it is out, times the number of times; absent means 30s.
        pub base_ejection_time: Option<Duration>,
        /// The most endpoints that are out at a time, in percent; 0 means 10.
        pub max_ejection_percent: i32,
        /// Detection is off while fewer are healthy, in percent.
        pub min_health_percent: i32,
        /// Status codes that count as errors beside the 5xx.
        pub outlier_detection_http_error_codes: Vec<u32> where [items(min 100, max 599)],
    }
}

message! {
    /// TLS towards a server.
    pub struct ClientTlsSettings {
        /// What sort of TLS.
        pub mode: ClientTlsMode,
        /// The path of the client's certificate.
        pub client_certificate: Arc<str>,
        /// The path of the client's private key.
        pub private_key: Arc<str>,
        /// The path of the CA certificates that vouch for the server.
        pub ca_certificates: Arc<str>,
        /// A secret with all of these.
        pub credential_name: Arc<str>,
        /// Names of which the server's certificate must have one.
        pub subject_alt_names: Vec<Arc<str>>,
        /// The server name to send.
        pub sni: Arc<str>,
        /// Whether the server's certificate is not checked.
        pub insecure_skip_verify: Option<bool> where [nullable],
        /// The path of the certificate revocation list.
        pub ca_crl: Arc<str>,
    }
}

enumeration! {
    /// The sorts of TLS towards a server.
    pub enum ClientTlsMode {
        /// None.
        #[default]
        Disable = "DISABLE" 0,
        /// The server proves who it is.
        Simple = "SIMPLE" 1,
        /// Both do, with the certificates named here.
        Mutual = "MUTUAL" 2,
        /// Both do, with the mesh's certificates.
        IstioMutual = "ISTIO_MUTUAL" 3,
    }
}
