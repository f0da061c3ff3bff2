//! ProxyConfig: settings of the proxies themselves.

use std::sync::Arc;

use crate::istio::selection::PolicySelector;
use crate::object::StringMap;

message! {
    /// Settings of proxies, which take effect when they start; they go before the mesh's `defaultConfig`.
    pub struct ProxyConfig {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Worker threads; 0 means one per core; absent: what the proxy's CPU limit says.
        pub concurrency: Option<i32> where [min 0, nullable],
        /// Environment variables of the proxy.
        pub environment_variables: StringMap where [values(max 2048)],
        /// The proxy's image.
        pub image: Option<ProxyImage>,
    }
}

message! {
    /// The image of a proxy, as `HUB/IMAGE:TAG-TYPE`.
    pub struct ProxyImage {
        /// The type, such as `default`, `debug` or `distroless`.
        pub image_type: Arc<str>,
    }
}
