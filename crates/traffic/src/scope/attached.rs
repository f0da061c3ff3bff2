//! Backends of routes of the services that a `Sidecar` imports.

use std::collections::{BTreeMap, BTreeSet};

use flow::Reads;
use gateway_api::backends::MeshBackends;
use gateway_api::mesh::{self, HasMeshRoutes};
use model::audience::Scope;
use names::Hostname;

use super::EgressListener;

/// The ports of backends of a listener's services, by host.
pub(super) fn backends(cx: &Reads<'_>, scope: &Scope, listener: &EgressListener) -> BTreeMap<Hostname, BTreeSet<u16>> {
    let mut out: BTreeMap<Hostname, BTreeSet<u16>> = BTreeMap::new();
    if !cx.contains::<HasMeshRoutes>(&()) {
        return out;
    }
    for service in listener.services.iter() {
        let applying = mesh::all_applying(cx, &service.key, &scope.namespace);
        for frontend in applying.into_iter().filter(|frontend| service.ports.include(frontend.port)) {
            for route in mesh::routes_of(cx, &frontend) {
                let backends = cx.get::<MeshBackends>(&route);
                let found = backends.iter().flat_map(|all| all.iter());
                for target in found.filter_map(|backend| backend.target.as_ref().ok()) {
                    let host = target.service.hostname.clone();
                    out.entry(host).or_default().insert(target.port);
                }
            }
        }
    }
    with_targets(cx, out)
}

/// The hosts, with the ports also at the target of each alias.
fn with_targets(cx: &Reads<'_>, mut hosts: BTreeMap<Hostname, BTreeSet<u16>>) -> BTreeMap<Hostname, BTreeSet<u16>> {
    let aliases = registry::aliases::aliases(cx);
    let targets = hosts.iter().filter_map(|(host, ports)| Some((aliases.target(host)?.clone(), ports.clone())));
    for (target, ports) in targets.collect::<Vec<_>>() {
        hosts.entry(target).or_default().extend(ports);
    }
    hosts
}
