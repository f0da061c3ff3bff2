//! DestinationRule: traffic policies and subsets of a host.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::connection::{ClientTlsSettings, ConnectionPoolSettings, OutlierDetection};
use crate::istio::destination::PortSelector;
use crate::istio::load_balancer::LoadBalancerSettings;
use crate::istio::selection::PolicySelector;
use crate::object::StringMap;

message! {
    /// Traffic policies and subsets that apply to traffic for a host after routing.
    pub struct DestinationRule {
        /// Host name of the service; wildcards are allowed. Short names are resolved in the rule's namespace.
        pub host: Arc<str> where [required, needed, is host],
        /// Traffic policy of the host and of all subsets.
        pub traffic_policy: Option<TrafficPolicy>,
        /// Named sets of the host's endpoints, which routes can refer to.
        pub subsets: Vec<Subset> where [unique "name"],
        /// Namespaces that the rule is visible in: `.` (its own), `*` (all) or names. If empty, the mesh
        /// configuration's default applies; without one, the rule is visible in all namespaces.
        pub export_to: Vec<Arc<str>>,
        /// Client workloads in the rule's namespace that the rule applies to. If omitted, it applies to all.
        pub workload_selector: Option<PolicySelector>,
    }
}

message! {
    /// Named set of a service's endpoints.
    pub struct Subset {
        /// Name of the subset, unique within the rule.
        pub name: Arc<str> where [required, needed, is label],
        /// Labels that an endpoint must have to belong to the subset.
        pub labels: StringMap where [keys(label_key), is label_value],
        /// Traffic policy of the subset. Overrides the rule's traffic policy.
        pub traffic_policy: Option<TrafficPolicy>,
    }
}

message! {
    /// Traffic policy for a destination.
    pub struct TrafficPolicy: Relations where [
        any(loadBalancer, connectionPool, outlierDetection, tls, portLevelSettings, tunnel, proxyProtocol, retryBudget),
        exclusive(tunnel, proxyProtocol),
    ] {
        /// Load balancing settings.
        pub load_balancer: Option<LoadBalancerSettings>,
        /// Limits for connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// Outlier detection settings.
        pub outlier_detection: Option<OutlierDetection>,
        /// TLS settings for connections to the endpoints.
        pub tls: Option<ClientTlsSettings>,
        /// Traffic policies of individual ports. For its port, each replaces the load balancer, connection pool,
        /// outlier detection and TLS settings of this policy.
        pub port_level_settings: Vec<PortTrafficPolicy> where [max 4096],
        /// Tunneling of TCP connections through HTTP.
        pub tunnel: Option<TunnelSettings>,
        /// PROXY protocol settings for connections to the endpoints.
        pub proxy_protocol: Option<ProxyProtocol>,
        /// Limit for retries in proportion to active requests.
        pub retry_budget: Option<RetryBudget>,
    }
}

message! {
    /// Traffic policy of one port.
    pub struct PortTrafficPolicy: Relations where [any(loadBalancer, connectionPool, outlierDetection, tls)] {
        /// Port of the service.
        pub port: Option<PortSelector> where [needed],
        /// Load balancing settings.
        pub load_balancer: Option<LoadBalancerSettings>,
        /// Limits for connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// Outlier detection settings.
        pub outlier_detection: Option<OutlierDetection>,
        /// TLS settings for connections to the endpoints.
        pub tls: Option<ClientTlsSettings>,
    }
}

message! {
    /// Tunneling of TCP connections through HTTP.
    pub struct TunnelSettings {
        /// HTTP method that opens the tunnel: `CONNECT` or `POST`. Defaults to `CONNECT`.
        pub protocol: Arc<str> where [among ["CONNECT", "POST"]],
        /// Host that the tunnel connects to.
        pub target_host: Arc<str> where [required, needed, is name_or_address],
        /// Port that the tunnel connects to.
        pub target_port: u32 where [required, needed, to 65535],
    }
}

message! {
    /// PROXY protocol settings for connections to the endpoints.
    pub struct ProxyProtocol {
        /// Version of the PROXY protocol.
        pub version: ProxyProtocolVersion,
    }
}

enumeration! {
    /// Version of the PROXY protocol.
    pub enum ProxyProtocolVersion {
        /// Version 1, the text format.
        #[default]
        V1 = "V1" 0,
        /// Version 2, the binary format.
        V2 = "V2" 1,
    }
}

message! {
    /// Limit for concurrent retries.
    pub struct RetryBudget {
        /// Maximum percentage of active requests that can be retries. Defaults to 20.
        pub percent: Option<f64> where [min 0, max 100, nullable],
        /// Number of concurrent retries that is always allowed. 0 means 3.
        pub min_retry_concurrency: u32,
        /// Time window over which requests are counted.
        pub budget_interval: Option<Duration> where [is duration],
    }
}
