//! Clusters (CDS).

mod balancer;
mod draft;
mod outbound;
mod outlier;
mod pool;
mod special;
mod telemetry;
mod tls;

use std::sync::Arc;

use bytes::Bytes;
use flow::{Reads, Relation, Rule};
use model::audience::{ClusterKey, OutboundKey};
use model::service::Endpoint;
use model::xds::Resource;
use registry::inputs::{Mesh, MeshSettings, Sidecars};
use registry::{ServiceEndpoints, ServiceIdentities, Services};
use resources::istio::{ConnectionPoolSettings, Sidecar};
use traffic::policy::{DestinationPolicies, effective_in};

pub(crate) use draft::Draft;
use outbound::Outbound;
pub(crate) use outbound::{discovery, has_persistent_sessions, is_dns, weighs_localities};
pub(crate) use special::passthrough_options;
pub(crate) use tls::{apply_to_anything as apply_tls, identities_of};

use crate::dns_cache;

/// Encoded clusters.
pub struct Clusters;

impl Relation for Clusters {
    const NAME: &'static str = "clusters";
    type Key = ClusterKey;
    type Row = Resource;
}

impl Rule for Clusters {
    fn derive(cx: &Reads<'_>, key: &ClusterKey) -> Option<Resource> {
        let mesh = cx.get::<Mesh>(&())?;
        let config = &mesh.config;
        let resource = |name: &str, body: Bytes| Some(Resource::new(name, body));
        match key {
            ClusterKey::Outbound(key) => outbound(cx, key, &mesh),
            ClusterKey::Passthrough => resource("PassthroughCluster", special::passthrough(config)),
            ClusterKey::Anywhere(cache) => resource("AllowAnyDynamicDNSCluster", dns_cache::anywhere(config, cache)),
            ClusterKey::BlackHole => resource("BlackHoleCluster", special::black_hole(config)),
            ClusterKey::InboundPassthrough(ip) => {
                resource("InboundPassthroughCluster", special::inbound_passthrough(config, *ip))
            }
            ClusterKey::Inbound {
                port,
                protocol,
                endpoint,
                ip,
                sidecar,
                service,
                policy,
            } => {
                let sidecar = sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id));
                let pool = sidecar.as_ref().and_then(|sidecar| pool_of(&sidecar.spec, *port));
                let served = service
                    .as_ref()
                    .and_then(|(key, port)| Some((cx.get::<Services>(key)?, *port)));
                let rule = policy.as_ref().and_then(|(key, _)| cx.get::<DestinationPolicies>(key));
                let body = special::inbound(&special::Inbound {
                    port: *port,
                    protocol: *protocol,
                    endpoint: endpoint.as_ref(),
                    ip: *ip,
                    mesh: config,
                    pool,
                    service: served.as_ref().map(|(service, port)| (&***service, *port)),
                    rule: rule.as_deref().map(|rule| &**rule),
                });
                resource(&format!("inbound|{port}||"), body)
            }
        }
    }
}

/// The cluster of a service's port or of a subset of it. None where any of these is gone.
fn outbound(cx: &Reads<'_>, key: &OutboundKey, mesh: &MeshSettings) -> Option<Resource> {
    let service = cx.get::<Services>(&key.service)?;
    let port = service.port(key.port)?;
    let rule = key
        .policy
        .as_ref()
        .and_then(|policy| cx.get::<DestinationPolicies>(policy));
    let subset = rule
        .as_ref()
        .and_then(|rule| rule.subsets.iter().find(|subset| subset.name == key.subset));
    if !key.subset.is_empty() && subset.is_none() {
        return None;
    }
    // Only these clusters have their endpoints inside, so the others are left alone when endpoints change.
    let endpoints: Option<Arc<[Endpoint]>> = match is_dns(discovery(&service, key.from_endpoints)) {
        true => cx.get::<ServiceEndpoints>(&key.service).map(|row| (*row).clone()),
        false => None,
    };
    let policy = effective_in(&mesh.config, rule.as_deref().map(|rule| &**rule), &key.subset, key.port);
    let identities = match !key.passed_through && tls::asks_for_identities(policy.tls) {
        true => cx.get::<ServiceIdentities>(&key.service),
        false => None,
    };
    let cluster = Outbound {
        key,
        service: &service,
        port,
        mesh,
        policy,
        labels: subset.map(|subset| &subset.labels),
        origin: rule.as_ref().and_then(|rule| rule.origins.first()),
        endpoints: endpoints.as_deref().unwrap_or_default(),
        identities: identities.as_deref(),
    };
    Some(Resource::new(key.cluster_name(), cluster.encode()))
}

/// The connection pool that a `Sidecar` sets for a port of its workload.
fn pool_of(sidecar: &Sidecar, port: u16) -> Option<&ConnectionPoolSettings> {
    let listener = sidecar
        .ingress
        .iter()
        .find(|l| l.port.as_ref().is_some_and(|p| p.number == u32::from(port)));
    listener
        .and_then(|listener| listener.connection_pool.as_ref())
        .or(sidecar.inbound_connection_pool.as_ref())
}

#[cfg(test)]
mod tests;
