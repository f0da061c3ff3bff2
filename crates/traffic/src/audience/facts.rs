//! Facts about a proxy that several audiences use.

use std::net::IpAddr;
use std::sync::Arc;

use config::Object;
use config::istio::Sidecar;
use flow::Reads;
use model::audience::{IpFamilies, Scope, Source};
use model::proxy::{Labels, Proxy, ProxyKind};
use model::service::{ObjectId, Workload};
use registry::Workloads;
use registry::inputs::{MeshSettings, WorkloadObjectKey};

use super::location::Locations;
use super::{ServicesWithAssigned, location, select};

/// A proxy and the facts that several audiences use.
pub(super) struct Facts<'a> {
    pub(super) cx: &'a Reads<'a>,
    pub(super) proxy: &'a Proxy,
    pub(super) mesh: &'a MeshSettings,
    /// The pod that the proxy runs in, if known.
    pub(super) pod: Option<&'a Workload>,
    /// The pod's labels, which may change while the proxy runs; without a pod those that the proxy reported.
    pub(super) labels: &'a Labels,
    pub(super) scope: Arc<Scope>,
    /// The `Sidecar` that applies.
    pub(super) sidecar: Option<Arc<Object<Sidecar>>>,
    pub(super) ip: IpFamilies,
    pub(super) location: Locations,
    /// The agent may resolve names to automatically assigned addresses.
    pub(super) resolves_assigned: bool,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        cx: &'a Reads<'a>,
        proxy: &'a Proxy,
        mesh: &'a MeshSettings,
        pod: Option<&'a Workload>,
    ) -> Facts<'a> {
        let labels = pod.map_or(&proxy.labels, |pod| &pod.labels);
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar | ProxyKind::Grpc => {
                select::sidecar(cx, &proxy.namespace, labels, &mesh.config.root_namespace)
            }
            // Gateways see all services that are exported to their namespace.
            ProxyKind::Router => None,
        };
        let resolves_assigned = proxy.resolver.is_some() && !cx.keys::<ServicesWithAssigned>().is_empty();
        let scope = Scope {
            namespace: proxy.namespace.clone(),
            sidecar: sidecar.as_ref().map(|(id, _)| id.clone()),
            selected_rules: select::rules(cx, &proxy.namespace, labels),
            cluster: location::cluster(cx, proxy, mesh),
            assigned: resolves_assigned && proxy.kind == ProxyKind::Sidecar,
        };
        Facts {
            cx,
            proxy,
            mesh,
            pod,
            labels,
            scope: Arc::new(scope),
            sidecar: sidecar.map(|(_, object)| object),
            ip: families(&proxy.addresses),
            location: location::of(cx, proxy, pod),
            resolves_assigned,
        }
    }

    /// The client with these labels, for match conditions.
    pub(super) fn source(&self, labels: Labels) -> Arc<Source> {
        Arc::new(Source { namespace: self.proxy.namespace.clone(), labels, regex_limit: None })
    }

    /// The mesh's root namespace.
    pub(super) fn root(&self) -> &'a Arc<str> {
        &self.mesh.config.root_namespace
    }
}

/// The key of the pod that a proxy reports to run in; none unless its id is `POD.NAMESPACE`.
pub fn pod_key(proxy: &Proxy, mesh: &MeshSettings) -> Option<WorkloadObjectKey> {
    let pod = proxy.id.strip_suffix(&*proxy.namespace)?.strip_suffix('.')?;
    (!pod.is_empty()).then(|| WorkloadObjectKey {
        pod: true,
        cluster: mesh.cluster_of_id(&proxy.cluster_id),
        id: ObjectId { namespace: proxy.namespace.clone(), name: pod.into() },
    })
}

/// The pod that a proxy runs in, if known.
pub(super) fn pod_of(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshSettings) -> Option<Arc<Workload>> {
    let workload = cx.get::<Workloads>(&pod_key(proxy, mesh)?)?;
    // The proxy chooses its id, so the address must agree.
    workload.ips().any(|ip| proxy.addresses.contains(&ip)).then(|| (*workload).clone())
}

fn families(addresses: &[IpAddr]) -> IpFamilies {
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    match (v4, v6) {
        (true, true) => IpFamilies::Dual,
        (false, true) => IpFamilies::V6,
        _ => IpFamilies::V4,
    }
}
