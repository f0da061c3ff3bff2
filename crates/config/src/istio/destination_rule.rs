//! DestinationRule: how traffic to a host is sent once it is routed.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::connection::{ClientTlsSettings, ConnectionPoolSettings, OutlierDetection};
use crate::istio::load_balancer::LoadBalancerSettings;
use crate::istio::selection::PolicySelector;
use crate::istio::virtual_service::PortSelector;
use crate::object::StringMap;

message! {
    /// Policy and subsets for a host.
    pub struct DestinationRule {
        /// The service's host, or a wildcard; short names are of the rule's namespace.
        pub host: Arc<str> where [required],
        /// The policy for all subsets.
        pub traffic_policy: Option<TrafficPolicy>,
        /// Named sets of endpoints.
        pub subsets: Vec<Subset>,
        /// Namespaces that see the rule: `.`, `*` or names. Empty: the mesh's default, else everybody.
        pub export_to: Vec<Arc<str>>,
        /// The client workloads, in the rule's namespace, to which it applies; absent: all.
        pub workload_selector: Option<PolicySelector>,
    }
}

message! {
    /// A named set of a service's endpoints.
    pub struct Subset {
        /// The name, unique in the rule.
        pub name: Arc<str> where [required],
        /// The labels that its endpoints have.
        pub labels: StringMap,
        /// What differs from the rule's policy.
        pub traffic_policy: Option<TrafficPolicy>,
    }
}

message! {
    /// How traffic is sent.
    pub struct TrafficPolicy {
        /// How an endpoint is chosen.
        pub load_balancer: Option<LoadBalancerSettings>,
        /// Limits on connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// When an endpoint is taken out.
        pub outlier_detection: Option<OutlierDetection>,
        /// TLS towards the endpoints.
        pub tls: Option<ClientTlsSettings>,
        /// Policies of single ports; for its port each replaces all of the above.
        pub port_level_settings: Vec<PortTrafficPolicy> where [max 4096],
        /// TCP in an HTTP tunnel.
        pub tunnel: Option<TunnelSettings>,
        /// The PROXY protocol towards the endpoints.
        pub proxy_protocol: Option<ProxyProtocol>,
        /// A limit on retries in relation to requests.
        pub retry_budget: Option<RetryBudget>,
    }
}

message! {
    /// The policy of one port.
    pub struct PortTrafficPolicy {
        /// The service's port.
        pub port: Option<PortSelector>,
        /// How an endpoint is chosen.
        pub load_balancer: Option<LoadBalancerSettings>,
        /// Limits on connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// When an endpoint is taken out.
        pub outlier_detection: Option<OutlierDetection>,
        /// TLS towards the endpoints.
        pub tls: Option<ClientTlsSettings>,
    }
}

message! {
    /// TCP in an HTTP tunnel.
    pub struct TunnelSettings {
        /// `CONNECT` (also when empty) or `POST`.
        pub protocol: Arc<str>,
        /// The host that the tunnel leads to.
        pub target_host: Arc<str> where [required],
        /// The port that the tunnel leads to.
        pub target_port: u32 where [required],
    }
}

message! {
    /// The PROXY protocol towards the endpoints.
    pub struct ProxyProtocol {
        /// Its version.
        pub version: ProxyProtocolVersion,
    }
}

enumeration! {
    /// A version of the PROXY protocol.
    pub enum ProxyProtocolVersion {
        /// Text.
        #[default]
        V1 = "V1" 0,
        /// Binary.
        V2 = "V2" 1,
    }
}

message! {
    /// A limit on concurrent retries.
    pub struct RetryBudget {
        /// Percent of the active requests that may be retries; absent means 20.
        pub percent: Option<f64> where [min 0, max 100, nullable],
        /// Retries that are always allowed; 0 means 3.
        pub min_retry_concurrency: u32,
        /// The time over which requests are counted.
        pub budget_interval: Option<Duration>,
    }
}
