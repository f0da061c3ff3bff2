//! Builds the audience of clusters.

use flow::Reads;
use gateway_api::client_certificate;
use model::audience::{ClusterAudience, Filters, GatewayClusterFacts, ProxyClass, SidecarClusterFacts};

use super::class::Class;
use super::facts::Facts;
use super::filters::Selected;
use super::overrides::Overrides;
use super::{location, select};
use crate::scope::particular;

pub(super) fn shared(cx: &Reads<'_>, audience: &ClusterAudience, filters: &Selected) -> Option<ClusterAudience> {
    shared_clusters(cx, audience, &filters.clusters.shared)
}

/// The audience, with these patches, of the clusters that a proxy shares with sidecars that serve other ports, or are in other
/// namespaces.
pub fn shared_clusters(cx: &Reads<'_>, audience: &ClusterAudience, patches: &Filters) -> Option<ClusterAudience> {
    let shared = audience.shared(patches)?;
    Some(ClusterAudience { scope: particular::base(cx, &shared.scope), ..shared })
}

pub(super) fn audience(facts: &Facts<'_>, class: &Class, filters: &Selected, overrides: &Overrides) -> ClusterAudience {
    ClusterAudience {
        scope: match location::matters_to_clusters(facts.cx) {
            true => facts.scope.without_assigned(),
            false => facts.scope.without_addresses(),
        },
        class: match class {
            ProxyClass::Sidecar(sidecar) => ProxyClass::Sidecar(SidecarClusterFacts {
                inbound: sidecar.inbound.clone(),
                resolver: sidecar.resolver,
            }),
            ProxyClass::Gateway(gateway) => ProxyClass::Gateway(GatewayClusterFacts {
                sni_passthrough: select::has_auto_passthrough(facts.cx, &gateway.set),
                client_certificate: client_certificate::presented(facts.cx, &gateway.set.kube),
            }),
            ProxyClass::Waypoint => ProxyClass::Waypoint,
            ProxyClass::Ztunnel => ProxyClass::Ztunnel,
            ProxyClass::Grpc => ProxyClass::Grpc,
        },
        agent: facts.proxy.has_agent(),
        ip: facts.ip,
        location: facts.location.clusters.clone(),
        filters: match class {
            ProxyClass::Sidecar(_) => filters.clusters.own.clone(),
            _ => filters.clusters.all.clone(),
        },
        overrides: overrides.clusters.clone(),
    }
}
