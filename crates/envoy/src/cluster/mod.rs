//! Clusters (CDS).

mod balancer;
mod draft;
mod forward_proxy;
mod outbound;
mod outlier;
mod pool;
mod special;
mod telemetry;
mod tls;

use std::sync::Arc;

use bytes::Bytes;
use config::istio::{ConnectionPoolSettings, Sidecar};
use flow::Reads;
use model::audience::{ClusterKey, OutboundKey};
use model::service::{Endpoint, Service, ServicePort};
use model::xds::Resource;
use protos::envoy::config::cluster::v3::cluster::DiscoveryType;
use registry::inputs::{MeshSettings, Sidecars};
use registry::proxy_settings::mesh_of;
use registry::{ServiceEndpoints, ServiceIdentities, Services};
use security::plain::MutualTlsPorts;
use traffic::policy::{ClusterRules, EffectivePolicy, merged};
use traffic::sessions;

pub(crate) use draft::Draft;
use outbound::Outbound;
pub(crate) use outbound::{discovery, is_dns};
pub(crate) use tls::names_of;

use crate::assignment::Plain;

flow::rule! {
    /// Encoded clusters.
    pub Clusters: ClusterKey => Resource = "clusters", derive_clusters;
}

fn derive_clusters(cx: &Reads<'_>, key: &ClusterKey) -> Option<Resource> {
    let (key, overrides) = match key {
        ClusterKey::ProxyConfigOverride(cluster) => (cluster.cluster.without_override(), Some(&cluster.overrides)),
        key => (key, None),
    };
    let mesh = mesh_of(cx, overrides)?;
    let config = &mesh.config;
    let resource = |name: &str, body: Bytes| Some(Resource::new(name, body));
    match key {
        // An override contains another key and is not overridden again.
        ClusterKey::ProxyConfigOverride(_) => None,
        ClusterKey::Outbound(key) => outbound(cx, key, &mesh),
        ClusterKey::Passthrough => resource("PassthroughCluster", special::passthrough(config)),
        ClusterKey::DynamicForwardProxy(cache) => {
            resource("AllowAnyDynamicDNSCluster", forward_proxy::dynamic_forward_proxy(config, cache))
        }
        ClusterKey::BlackHole => resource("BlackHoleCluster", special::black_hole(config)),
        ClusterKey::InboundPassthrough(ip) => {
            resource("InboundPassthroughCluster", special::inbound_passthrough(config, *ip))
        }
        ClusterKey::Inbound { port, protocol, endpoint, ip, sidecar, service, policy } => {
            let sidecar = sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id));
            let pool = sidecar.as_ref().and_then(|sidecar| pool_of(&sidecar.spec, *port));
            let served = service.as_ref().and_then(|(key, port)| Some((cx.get::<Services>(key)?, *port)));
            let rule = merged(cx, policy.as_ref().map(|(key, _)| key));
            let body = special::inbound(&special::Inbound {
                port: *port,
                protocol: *protocol,
                endpoint: endpoint.as_ref(),
                ip: *ip,
                mesh: config,
                pool,
                service: served.as_ref().map(|(service, port)| (&***service, *port)),
                rule: rule.as_deref(),
            });
            resource(&format!("inbound|{port}||"), body)
        }
    }
}

/// The cluster of a service's port or subset. `None` if any of these does not exist.
fn outbound(cx: &Reads<'_>, key: &OutboundKey, mesh: &MeshSettings) -> Option<Resource> {
    let service = cx.get::<Services>(&key.service)?;
    let port = service.port(key.port)?;
    let rules = ClusterRules::read(cx, key)?;
    // Only these clusters contain their endpoints; reading endpoints for others would re-encode them with every change.
    let endpoints: Option<Arc<[Endpoint]>> = match is_dns(discovery(&service, key.from_endpoints)) {
        true => cx.get::<ServiceEndpoints>(&key.service).map(|row| (*row).clone()),
        false => None,
    };
    let policy = rules.effective(&mesh.config);
    let automatic = calls_automatically(cx, key, (&service, port), &policy);
    let identities = match !key.sni_passthrough && (automatic || tls::asks_for_identities(policy.tls, service.registry))
    {
        true => cx.get::<ServiceIdentities>(&key.service),
        false => None,
    };
    let endpoints = endpoints.as_deref().unwrap_or_default();
    let plain = Plain::of(cx, &key.service, &policy, endpoints);
    let cluster = Outbound {
        key,
        service: &service,
        port,
        mesh,
        policy,
        labels: rules.subset().map(|subset| &subset.labels),
        origin: rules.merged.as_ref().and_then(|rule| rule.origins.first()),
        endpoints,
        plain: plain.as_ref(),
        automatic,
        sessions: sessions::keep_draining(cx, &service),
        identities: identities.as_deref(),
    };
    Some(Resource::new(key.cluster_name(), cluster.encode()))
}

/// Whether endpoints use the mesh's mutual TLS without a rule (auto mTLS). The key holds the capabilities of client and
/// service; this depends on the PeerAuthentications of the service's namespace and, where the client does not choose
/// between endpoints, on the endpoints.
fn calls_automatically(
    cx: &Reads<'_>,
    key: &OutboundKey,
    (service, port): (&Service, &ServicePort),
    policy: &EffectivePolicy<'_>,
) -> bool {
    if !key.client.agent || key.sni_passthrough || policy.tls.is_some() || policy.is_refused {
        return false;
    }
    if security::plain::by_default(cx, &key.service.namespace) {
        return false;
    }
    let chosen = discovery(service, key.from_endpoints) != DiscoveryType::OriginalDst
        && !balancer::sni_passthrough(policy.load_balancer);
    chosen || cx.with::<MutualTlsPorts, _>(&key.service, |all| all.is_some_and(|all| all.contains(&port.name)))
}

/// The connection pool that a `Sidecar` sets for a port of its workload.
fn pool_of(sidecar: &Sidecar, port: u16) -> Option<&ConnectionPoolSettings> {
    let listener = sidecar.ingress.iter().find(|l| l.port.as_ref().is_some_and(|p| p.number == u32::from(port)));
    listener.and_then(|listener| listener.connection_pool.as_ref()).or(sidecar.inbound_connection_pool.as_ref())
}

#[cfg(test)]
mod tests;
