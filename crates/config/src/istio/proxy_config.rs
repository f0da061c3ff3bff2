//! ProxyConfig: settings of the proxies.

use std::sync::Arc;

use crate::istio::selection::PolicySelector;
use crate::object::StringMap;

message! {
    /// Proxy settings that take effect when a proxy starts. They override `defaultConfig` of the mesh configuration.
    pub struct ProxyConfig {
        /// Selects the workloads that the settings apply to. If omitted, they apply to all workloads in the namespace,
        /// or in the mesh if the object is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Number of worker threads. 0 means one per core. If omitted, the proxy's CPU limit determines the number.
        pub concurrency: Option<i32> where [min 0, nullable],
        /// Environment variables of the proxy.
        pub environment_variables: StringMap where [values(max 2048)],
        /// Image of the proxy.
        pub image: Option<ProxyImage>,
    }
}

message! {
    /// Image of a proxy, as `HUB/IMAGE:TAG-TYPE`.
    pub struct ProxyImage {
        /// Image type, such as `default`, `debug` or `distroless`.
        pub image_type: Arc<str>,
    }
}
