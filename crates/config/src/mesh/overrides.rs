//! Settings of single proxies that override the mesh's.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::decode::Decode;

use super::{ConnectionSettings, ProxyConfig, ProxyHeaders, Topology, Tracing};

/// The settings of a proxy that decide served resources, for proxies whose settings differ from the mesh's.
///
/// It replaces the same fields of the mesh's `defaultConfig`; an absent message stands for its defaults. Equality, order and
/// hash are those of the canonical JSON form, so that it can be part of a key.
#[derive(Clone)]
pub struct ProxyConfigOverride {
    headers: Option<ProxyHeaders>,
    topology: Option<Topology>,
    connections: Option<ConnectionSettings>,
    tracing: Option<Tracing>,
    canonical: Arc<str>,
}

impl ProxyConfigOverride {
    /// The overriding fields of these settings; others are ignored.
    pub fn new(settings: ProxyConfig) -> ProxyConfigOverride {
        let ProxyConfig {
            proxy_headers: headers,
            gateway_topology: topology,
            connection_settings: connections,
            tracing,
            ..
        } = settings;
        let canonical = serde_json::json!({
            "proxyHeaders": headers.encode(),
            "gatewayTopology": topology.encode(),
            "connectionSettings": connections.encode(),
            "tracing": tracing.encode(),
        });
        ProxyConfigOverride { canonical: canonical.to_string().into(), headers, topology, connections, tracing }
    }

    /// Replaces the overridden fields in the mesh's settings.
    pub fn apply(&self, settings: &mut ProxyConfig) {
        settings.proxy_headers = self.headers.clone();
        settings.gateway_topology = self.topology.clone();
        settings.connection_settings = self.connections.clone();
        settings.tracing = self.tracing.clone();
    }
}

impl PartialEq for ProxyConfigOverride {
    fn eq(&self, other: &ProxyConfigOverride) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for ProxyConfigOverride {}

impl PartialOrd for ProxyConfigOverride {
    fn partial_cmp(&self, other: &ProxyConfigOverride) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ProxyConfigOverride {
    fn cmp(&self, other: &ProxyConfigOverride) -> Ordering {
        self.canonical.cmp(&other.canonical)
    }
}

impl Hash for ProxyConfigOverride {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl fmt::Debug for ProxyConfigOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}
