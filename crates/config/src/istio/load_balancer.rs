//! Load balancing settings of a destination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

message! {
    /// Load balancing settings.
    pub struct LoadBalancerSettings where [exclusive(localityLbSetting, zoneAwareLbSetting)] {
        /// Load balancing algorithm. Defaults to `LEAST_REQUEST`.
        pub policy: Option<LbPolicy>,
        /// Locality preferences. Override those of the mesh configuration.
        pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
        /// Zone-aware routing. Overrides the settings of the mesh configuration. Mutually exclusive with
        /// `localityLbSetting`.
        pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
        /// Warmup duration. Deprecated in favor of `warmup.duration`.
        pub warmup_duration_secs: Option<Duration>,
        /// Gradual increase of traffic to new endpoints (slow start).
        pub warmup: Option<WarmupConfiguration>,
    }
}

oneof! {
    /// Load balancing algorithm.
    pub enum LbPolicy {
        /// Algorithm that does not depend on the request.
        Simple(SimpleLb) = "simple",
        /// Consistent hashing: requests with the same key are sent to the same endpoint.
        ConsistentHash(ConsistentHash) = "consistentHash",
        /// Weights endpoints by the utilization that they report (ORCA).
        BackendUtilization(BackendUtilization) = "backendUtilization" where [
            warn "not-served" "istiod has no effect for this field either; the default algorithm is used",
        ],
    }
}

message! {
    /// Load balancing by the utilization that endpoints report.
    pub struct BackendUtilization {
        /// Additional penalty for endpoints that return errors, in percent of the utilization.
        pub error_utilization_penalty_percent: Option<u32>,
        /// Names of the metrics that the utilization is computed from.
        pub metric_names_for_computing_utilization: Vec<Arc<str>>,
        /// Time after which the weight of an endpoint without reports is discarded.
        pub weight_expiration_period: Option<Duration>,
        /// Time after the first report until the weight of an endpoint is used.
        pub weight_stabilization_period: Option<Duration>,
        /// Time between computations of weights.
        pub weight_update_period: Option<Duration>,
    }
}

enumeration! {
    /// Load balancing algorithm that does not depend on the request.
    pub enum SimpleLb {
        /// Istio's default, the same as `LEAST_REQUEST`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// Deprecated name of `LEAST_REQUEST`.
        LeastConn = "LEAST_CONN" 1,
        /// Selects a random endpoint.
        Random = "RANDOM" 2,
        /// Forwards to the original destination address of the connection.
        Passthrough = "PASSTHROUGH" 3,
        /// Selects endpoints in turn.
        RoundRobin = "ROUND_ROBIN" 4,
        /// Selects two random endpoints and uses the one with fewer active requests.
        LeastRequest = "LEAST_REQUEST" 5,
    }
}

message! {
    /// Consistent hashing. Requests with the same key are sent to the same endpoint while the set of endpoints is
    /// unchanged.
    pub struct ConsistentHash where [exclusive(minimumRingSize, ringHash, maglev)] {
        /// Source of the hash key.
        pub key: Option<HashKey>,
        /// Hashing algorithm. Defaults to a ring hash.
        pub algorithm: Option<HashAlgorithm>,
        /// Minimum size of the hash ring. Deprecated in favor of `ringHash.minimumRingSize`.
        pub minimum_ring_size: u64 where [
            warn "deprecated" "minimumRingSize is deprecated; use ringHash.minimumRingSize",
        ],
    }
}

oneof! {
    /// Source of a hash key.
    pub enum HashKey {
        /// Value of a request header.
        HttpHeaderName(Arc<str>) = "httpHeaderName" where [is one_line],
        /// Value of a cookie. The cookie is set if it is missing.
        HttpCookie(HttpCookie) = "httpCookie",
        /// Source IP address of the client.
        UseSourceIp(bool) = "useSourceIp",
        /// Value of a query parameter.
        HttpQueryParameterName(Arc<str>) = "httpQueryParameterName",
    }
}

oneof! {
    /// Consistent hashing algorithm.
    pub enum HashAlgorithm {
        /// Ring hash.
        RingHash(RingHash) = "ringHash",
        /// Maglev hash table.
        Maglev(MagLev) = "maglev",
    }
}

message! {
    /// Ring hash settings.
    pub struct RingHash {
        /// Minimum number of virtual nodes on the ring. 0 means 1024.
        pub minimum_ring_size: u64,
    }
}

message! {
    /// Maglev settings.
    pub struct MagLev {
        /// Size of the table, a prime number below 5000011. There is no default.
        pub table_size: u64 where [needed, is prime],
    }
}

message! {
    /// Cookie that provides the hash key.
    pub struct HttpCookie {
        /// Name of the cookie.
        pub name: Arc<str> where [required, needed],
        /// Path that the cookie is set for.
        pub path: Arc<str>,
        /// Lifetime of the cookie. If omitted, a missing cookie is not set. Zero sets a session cookie.
        pub ttl: Option<Duration>,
        /// Additional attributes of the cookie that is set.
        pub attributes: Vec<CookieAttribute> where [unique "name"],
    }
}

message! {
    /// Attribute of a cookie.
    pub struct CookieAttribute {
        /// Name of the attribute.
        pub name: Arc<str> where [required, needed, is one_line],
        /// Value of the attribute. Can be empty.
        pub value: Arc<str> where [is one_line],
    }
}

message! {
    /// Gradual increase of traffic to new endpoints (slow start).
    pub struct WarmupConfiguration {
        /// Duration of the warmup.
        pub duration: Option<Duration> where [required, is duration],
        /// Percentage of its final traffic share that a new endpoint receives at first. Defaults to 10.
        pub minimum_percent: Option<f64> where [min 0, max 100, nullable],
        /// Rate of the increase. Defaults to 1, a linear increase.
        pub aggression: Option<f64> where [min 0, nullable, is positive],
    }
}

message! {
    /// Locality preferences. At most one of `distribute`, `failover` and `failoverPriority` can be set.
    pub struct LocalityLoadBalancerSetting: Relations where [exclusive(distribute, failover)] {
        /// Traffic distribution by locality of the client.
        pub distribute: Vec<Distribute>,
        /// Failover regions, used when a region has no healthy endpoints.
        pub failover: Vec<Failover>,
        /// Labels by which endpoints are prioritized, most important first. Endpoints that share more leading labels
        /// with the client are preferred.
        pub failover_priority: Vec<Arc<str>>,
        /// Whether locality load balancing is enabled. Defaults to true.
        pub enabled: Option<bool> where [nullable],
    }
}

message! {
    /// Traffic distribution for clients in a locality.
    pub struct Distribute: Relations {
        /// Locality of the client, as `region/zone/subzone`. `*` matches any remaining part.
        pub from: Arc<str>,
        /// Percentage of traffic by locality of the endpoints. The percentages must add up to 100.
        pub to: BTreeMap<Arc<str>, u32> where [values(from 1, to 100)],
    }
}

message! {
    /// Failover from one region to another.
    pub struct Failover: Relations {
        /// Region without healthy endpoints.
        pub from: Arc<str> where [is region],
        /// Region that receives the traffic.
        pub to: Arc<str> where [is region],
    }
}

message! {
    /// Zone-aware routing: prefers endpoints in the client's zone, in proportion to the distribution of clients.
    pub struct ZoneAwareLoadBalancerSetting: Relations {
        /// Whether zone-aware routing is enabled. Defaults to true.
        pub enabled: Option<bool> where [nullable],
        /// Failover regions, used when a region has no healthy endpoints.
        pub failover: Vec<Failover>,
        /// Labels by which endpoints are prioritized, most important first. Endpoints that share more leading labels
        /// with the client are preferred.
        pub failover_priority: Vec<Arc<str>>,
        /// Minimum number of endpoints. Zone-aware routing is disabled for smaller clusters. Defaults to Envoy's
        /// default of 6.
        pub min_cluster_size: Option<u64> where [min 1, nullable],
    }
}
