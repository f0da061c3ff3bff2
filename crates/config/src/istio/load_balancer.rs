//! How an endpoint is chosen for a request or connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

message! {
    /// How an endpoint is chosen.
    pub struct LoadBalancerSettings {
        /// The algorithm; absent: Istio's default, the least requests.
        pub policy: Option<LbPolicy>,
        /// Preferences by locality, instead of the mesh's.
        pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
        /// Preferences by zone, instead of the mesh's; excludes `locality_lb_setting`.
        pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
        /// As `warmup.duration`, deprecated.
        pub warmup_duration_secs: Option<Duration>,
        /// How new endpoints get their share step by step.
        pub warmup: Option<WarmupConfiguration>,
    }
}

oneof! {
    /// The algorithms.
    pub enum LbPolicy {
        /// One that needs nothing of the request.
        Simple(SimpleLb) = "simple",
        /// Equal keys go to the same endpoint.
        ConsistentHash(ConsistentHash) = "consistentHash",
    }
}

enumeration! {
    /// Algorithms that need nothing of the request.
    pub enum SimpleLb {
        /// Istio's default, as `LEAST_REQUEST`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// The old name of `LEAST_REQUEST`.
        LeastConn = "LEAST_CONN" 1,
        /// Any.
        Random = "RANDOM" 2,
        /// The address that the client meant.
        Passthrough = "PASSTHROUGH" 3,
        /// One after the other.
        RoundRobin = "ROUND_ROBIN" 4,
        /// The one of two random ones that has fewer requests under way.
        LeastRequest = "LEAST_REQUEST" 5,
    }
}

message! {
    /// Equal keys go to the same endpoint, as far as endpoints stay.
    pub struct ConsistentHash {
        /// What the key is made of.
        pub key: Option<HashKey>,
        /// How endpoints are laid out; absent: a ring.
        pub algorithm: Option<HashAlgorithm>,
        /// As `ringHash.minimumRingSize`, deprecated.
        pub minimum_ring_size: u64,
    }
}

oneof! {
    /// What a hash is made of.
    pub enum HashKey {
        /// A header.
        HttpHeaderName(Arc<str>) = "httpHeaderName",
        /// A cookie, which is set where it is missing.
        HttpCookie(HttpCookie) = "httpCookie",
        /// The client's address.
        UseSourceIp(bool) = "useSourceIp",
        /// A query parameter.
        HttpQueryParameterName(Arc<str>) = "httpQueryParameterName",
    }
}

oneof! {
    /// How endpoints are laid out for hashes.
    pub enum HashAlgorithm {
        /// On a ring.
        RingHash(RingHash) = "ringHash",
        /// In a table.
        Maglev(MagLev) = "maglev",
    }
}

message! {
    /// A ring of hashes.
    pub struct RingHash {
        /// The least number of places on it; 0 means 1024.
        pub minimum_ring_size: u64,
    }
}

message! {
    /// A table of hashes.
    pub struct MagLev {
        /// Its size, a prime below 5000011; 0 means 65537.
        pub table_size: u64,
    }
}

message! {
    /// A cookie to hash.
    pub struct HttpCookie {
        /// Its name.
        pub name: Arc<str> where [required],
        /// The path to set it for.
        pub path: Arc<str>,
        /// How long it lives; absent: it is not set where it is missing; zero: for the session.
        pub ttl: Option<Duration>,
        /// More attributes to set.
        pub attributes: Vec<CookieAttribute>,
    }
}

message! {
    /// An attribute of a cookie.
    pub struct CookieAttribute {
        /// Its name.
        pub name: Arc<str> where [required],
        /// Its value; may be empty.
        pub value: Arc<str>,
    }
}

message! {
    /// How a new endpoint gets its share step by step.
    pub struct WarmupConfiguration {
        /// How long that takes.
        pub duration: Option<Duration> where [required],
        /// The share that it starts with, in percent; absent means 10.
        pub minimum_percent: Option<f64> where [min 0, max 100, nullable],
        /// How fast it goes at first; absent means 1, linear.
        pub aggression: Option<f64> where [min 0, nullable],
    }
}

message! {
    /// Preferences by locality. At most one of `distribute`, `failover` and `failover_priority`.
    pub struct LocalityLoadBalancerSetting {
        /// Shares by the client's locality.
        pub distribute: Vec<Distribute>,
        /// Where traffic goes when a region has no healthy endpoints.
        pub failover: Vec<Failover>,
        /// Labels whose equality makes an endpoint preferred, the first counting most.
        pub failover_priority: Vec<Arc<str>>,
        /// Whether it is in force; absent means yes.
        pub enabled: Option<bool> where [nullable],
    }
}

message! {
    /// Shares for clients in a locality.
    pub struct Distribute {
        /// The client's locality, `region/zone/subzone`; `*` stands for the rest.
        pub from: Arc<str>,
        /// Percent by the endpoints' locality; 100 together.
        pub to: BTreeMap<Arc<str>, u32>,
    }
}

message! {
    /// The region that takes over for another.
    pub struct Failover {
        /// The region without healthy endpoints.
        pub from: Arc<str>,
        /// The region that takes over.
        pub to: Arc<str>,
    }
}

message! {
    /// Preference of the client's own zone, weighed by where clients are.
    pub struct ZoneAwareLoadBalancerSetting {
        /// Whether it is in force; absent means yes.
        pub enabled: Option<bool> where [nullable],
        /// Where traffic goes when a region has no healthy endpoints.
        pub failover: Vec<Failover>,
        /// Labels whose equality makes an endpoint preferred, the first counting most.
        pub failover_priority: Vec<Arc<str>>,
        /// Below this number of endpoints it is off; absent means Envoy's default, 6.
        pub min_cluster_size: Option<u64> where [min 1, nullable],
    }
}
