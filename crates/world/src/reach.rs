//! Finds the served resources that depend on an object.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{Kind, ObjectKey};
use envoy::{Listeners, RouteConfigs, VirtualHosts};
use envoy_filter::{PatchedListenerCatalogue, PatchedVirtualHosts, unmade};
use flow::{CellId, Dependents, Relation, Walk};
use gateway_api::attach::Attachments;
use gateway_api::backends::MeshBackends;
use gateway_api::mesh::MeshAttachments;
use gateway_api::sets::AllowedSets;
use model::audience::{ListenerAudience, VirtualHostSpec};
use model::kube::{ListenerOwner, RouteId, RouteKind};
use model::listener::{Bind, ListenerSpec};
use model::service::{ObjectId, Registry};
use registry::inputs::{
    AuthorizationPolicies, DestinationRules, EnvoyFilters, KubeGateways, ListenerSets, PeerAuthentications,
    RequestAuthentications, RouteObjects, RoutingKey, RoutingObjects, ServiceObjectKey, ServiceObjects, Sidecars,
    WorkloadObjectKey, WorkloadObjects,
};
use traffic::audience::{Audiences, ProxiesByKubeGateway};
use traffic::clusters::{ClusterCatalogue, SharedClusters};
use traffic::gateways::{GatewayListeners, MergedGateways, ServerOwner, ServersOfTable};
use traffic::listeners::ListenerCatalogue;
use traffic::policy::{DestinationRuleSummaries, PolicyCandidates};
use traffic::routes::{OwnHosts, RouteTables, SharedHostRows, SharedHosts};
use traffic::serving::ServedTypes;
use traffic::virtual_service::VirtualServiceSummaries;

use crate::{Unmade, World};

/// The maximum number of cells that a walk visits: some milliseconds.
const CELLS: usize = 100_000;
/// The maximum number of cells that a walk to the objects behind a resource visits.
const BEHIND: usize = 5_000;

/// The served resources that depend on an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Resources that are derived from it.
    pub resources: Vec<CellId>,
    /// Catalogues that list resources derived from it, if the resources themselves are not known; each with the names of these
    /// resources, if they are known.
    pub catalogues: Vec<(CellId, Option<Vec<Arc<str>>>)>,
    /// Catalogues that may list resources derived from it: those that changed in the same commit.
    pub maybe: Vec<CellId>,
    /// The names of the virtual hosts in route tables that are derived from it.
    pub hosts: Vec<Arc<str>>,
    /// Whether all were found within the limit.
    pub complete: bool,
    /// For an EnvoyFilter: its patches that are left out of some or all resources.
    pub unmade: Vec<Unmade>,
}

impl World {
    /// The resources that depend on an object, as of the last commit: those that connected proxies have or may request. Empty
    /// for kinds that nothing is derived from.
    ///
    /// Resources that only depend on the object for a *choice* are not included (a VirtualService for another host is read and
    /// skipped).
    pub fn reach(&self, object: &ObjectKey) -> Reach {
        let id = ObjectId { namespace: object.namespace.clone(), name: object.name.clone() };
        let service = |registry| ServiceObjectKey { registry, cluster: object.cluster.clone(), id: id.clone() };
        let workload = |pod| WorkloadObjectKey { pod, cluster: object.cluster.clone(), id: id.clone() };
        match object.kind {
            Kind::VirtualService => self.routed(&RoutingKey::virtual_service(id), &content(&self.served)),
            Kind::Ingress => self.routed(&RoutingKey::ingress(id), &everything(&self.served)),
            Kind::DestinationRule => {
                self.of(|w| w.engine.dependents::<DestinationRules>(&id, &content(&self.served)), false)
            }
            Kind::ServiceEntry => self.defined_by(&service(Registry::ServiceEntry)),
            Kind::ServiceImport => self.defined_by(&service(Registry::Import)),
            Kind::InferencePool => self.defined_by(&service(Registry::Pool)),
            Kind::Service => self.defined_by(&service(Registry::Kubernetes)),
            Kind::WorkloadEntry => self.running(&workload(false)),
            Kind::Pod => self.running(&workload(true)),
            Kind::Gateway => {
                let reach = self.routed(&RoutingKey::gateway(id.clone()), &everything(&self.served));
                self.with_names(reach, &ServerOwner::Istio(id))
            }
            Kind::KubeGateway => self.listening(ListenerOwner::Gateway(id)),
            Kind::ListenerSet => self.listening(ListenerOwner::ListenerSet(id)),
            Kind::HttpRoute => self.attached(&RouteId { kind: RouteKind::Http, id }, &content(&self.served)),
            Kind::GrpcRoute => self.attached(&RouteId { kind: RouteKind::Grpc, id }, &content(&self.served)),
            Kind::TlsRoute => self.attached(&RouteId { kind: RouteKind::Tls, id }, &content(&self.served)),
            Kind::TcpRoute => self.attached(&RouteId { kind: RouteKind::Tcp, id }, &content(&self.served)),
            Kind::UdpRoute => self.attached(&RouteId { kind: RouteKind::Udp, id }, &content(&self.served)),
            Kind::Sidecar => self.of(|w| w.engine.dependents::<Sidecars>(&id, &everything(&self.served)), true),
            Kind::PeerAuthentication => {
                self.of(|w| w.engine.dependents::<PeerAuthentications>(&id, &everything(&self.served)), true)
            }
            Kind::RequestAuthentication => {
                self.of(|w| w.engine.dependents::<RequestAuthentications>(&id, &everything(&self.served)), true)
            }
            Kind::AuthorizationPolicy => {
                self.of(|w| w.engine.dependents::<AuthorizationPolicies>(&id, &everything(&self.served)), true)
            }
            Kind::EnvoyFilter => {
                let mut reach = self.of(|w| w.engine.dependents::<EnvoyFilters>(&id, &everything(&self.served)), true);
                let catalogues = reach.catalogues.iter().map(|(cell, _)| *cell);
                let cells: Vec<CellId> = reach.resources.iter().copied().chain(catalogues).collect();
                reach.unmade = unmade(&self.engine, &id, &cells, reach.complete);
                reach
            }
            _ => Reach { complete: true, ..Reach::default() },
        }
    }

    fn routed(&self, key: &RoutingKey, walk: &Walk) -> Reach {
        self.of(|w| w.engine.dependents::<RoutingObjects>(key, walk), true)
    }

    fn attached(&self, key: &RouteId, walk: &Walk) -> Reach {
        self.of(|w| w.engine.dependents::<RouteObjects>(key, walk), true)
    }

    /// The resources of the listeners of an object. Its routes, and the other objects of its Gateway, of which there may be thousands,
    /// are counted for themselves. They are not followed from the object, because all objects of its Gateway are read together.
    fn listening(&self, owner: ListenerOwner) -> Reach {
        let gateway = match &owner {
            ListenerOwner::Gateway(id) => Some(id.clone()),
            ListenerOwner::ListenerSet(id) => self.engine.get::<AllowedSets>(id).as_deref().cloned(),
        };
        let proxies = gateway.and_then(|gateway| self.engine.get::<ProxiesByKubeGateway>(&gateway));
        let tokens = proxies.iter().flat_map(|tokens| tokens.iter());
        let audiences = tokens.filter_map(|token| Some(self.engine.get::<Audiences>(token)?.listener.clone()));
        let audiences: BTreeSet<Arc<ListenerAudience>> = audiences.map(|one| one.plain().unspecific()).collect();
        let walk = everything(&self.served).not_through::<Attachments>();
        let mut found = Dependents { cells: Vec::new(), complete: true };
        for audience in &audiences {
            found.extend(self.engine.dependents::<GatewayListeners>(audience, &walk));
        }
        let sets = audiences.iter().filter_map(|audience| Some(&audience.class.gateway()?.set));
        for set in sets.collect::<BTreeSet<_>>() {
            let Some(row) = self.engine.get::<MergedGateways>(set) else { continue };
            for table in row.tables_of(&owner) {
                found.extend(self.engine.dependents::<ServersOfTable>(&(set.clone(), table.clone()), &walk));
            }
        }
        found.cells.sort_unstable();
        found.cells.dedup();
        self.with_names(self.of(|_| found, true), &ServerOwner::Kube(owner))
    }

    /// Adds the names of the listeners of an object to its catalogues.
    fn with_names(&self, mut reach: Reach, owner: &ServerOwner) -> Reach {
        for (cell, names) in &mut reach.catalogues {
            *names = self.names_of(*cell, owner);
        }
        reach
    }

    /// The names of the listeners of an object in a catalogue of listeners; `None` for other catalogues.
    fn names_of(&self, catalogue: CellId, owner: &ServerOwner) -> Option<Vec<Arc<str>>> {
        let plain = || self.engine.key::<ListenerCatalogue>(catalogue);
        let (_, audience) = plain().or_else(|| self.engine.key::<PatchedListenerCatalogue>(catalogue))?;
        let audience = audience.plain().unspecific();
        let merged = self.engine.get::<MergedGateways>(&audience.class.gateway()?.set)?;
        let listeners = self.engine.get::<GatewayListeners>(&audience)?;
        let ports = merged.ports_of(owner);
        let is_own = |spec: &&Arc<ListenerSpec>| match &spec.bind {
            Bind::Socket { port, .. } => ports.is_some_and(|ports| ports.contains(port)),
            Bind::Unix(_) => false,
        };
        Some(listeners.iter().filter(is_own).map(|spec| spec.name.clone()).collect())
    }

    fn defined_by(&self, key: &ServiceObjectKey) -> Reach {
        self.of(|w| w.engine.dependents::<ServiceObjects>(key, &content(&self.served)), false)
    }

    fn running(&self, key: &WorkloadObjectKey) -> Reach {
        self.of(|w| w.engine.dependents::<WorkloadObjects>(key, &content(&self.served)), false)
    }

    fn of(&self, walk: impl FnOnce(&World) -> Dependents, certain: bool) -> Reach {
        let found = walk(self);
        let cells = || found.cells.iter().map(|(cell, _)| *cell);
        let hosts: Vec<_> = cells().filter_map(|cell| self.engine.key::<VirtualHosts>(cell)).collect();
        let patched = cells().filter_map(|cell| self.engine.key::<PatchedVirtualHosts>(cell));
        let patched = patched.filter_map(|patched| patched.of_table().map(|host| host.name.clone()));
        let names = hosts.iter().map(|host| host.name.clone()).chain(patched);
        let mut reach = Reach { complete: found.complete, hosts: names.collect(), ..Reach::default() };
        for (cell, relation) in found.cells {
            if [VirtualHosts::NAME, PatchedVirtualHosts::NAME].contains(&relation) || self.lacks(cell, &hosts) {
                continue;
            }
            let listed = self.served.is_list(relation);
            match (listed, certain) {
                (false, _) => reach.resources.push(cell),
                (true, true) => reach.catalogues.push((cell, None)),
                (true, false) => reach.maybe.push(cell),
            }
        }
        reach
    }
}

impl World {
    /// Whether a cell is a route table that was found by the virtual hosts that tables share, and has none of `hosts`
    /// because it replaces them.
    fn lacks(&self, cell: CellId, hosts: &[Arc<VirtualHostSpec>]) -> bool {
        let key = self.engine.key::<RouteConfigs>(cell).filter(|_| !hosts.is_empty());
        let table = key.and_then(|key| self.engine.get::<RouteTables>(&key));
        let lists = table.map(|table| table.virtual_hosts.clone()).filter(|list| list.shares());
        lists.is_some_and(|list| !hosts.iter().any(|host| list.contains(host)))
    }
}

impl World {
    /// The objects that a resource is derived from, without those that were only read for a choice. With `part`, those of its
    /// virtual host of this name, if it has one. At most a few thousand cells are visited, so that some may be missing.
    pub fn objects_behind(&self, cell: CellId, part: Option<&str>) -> Vec<String> {
        let hosts = Walk::within(BEHIND).to::<VirtualHosts>().to::<PatchedVirtualHosts>();
        let named = |cell: &CellId| {
            let host = self.engine.key::<VirtualHosts>(*cell).map(|host| host.name.clone());
            let patched = || Some(self.engine.key::<PatchedVirtualHosts>(*cell)?.of_table()?.name.clone());
            host.or_else(patched).is_some_and(|name| Some(&*name) == part)
        };
        let hosts = part.map(|_| self.engine.sources(cell, &hosts).cells).unwrap_or_default();
        let mut from: Vec<CellId> = hosts.into_iter().map(|(cell, _)| cell).filter(named).collect();
        if from.is_empty() {
            from.push(cell);
        }
        let walk = Walk::within(BEHIND)
            .to::<RoutingObjects>()
            .to::<KubeGateways>()
            .to::<ListenerSets>()
            .to::<RouteObjects>()
            .to::<DestinationRules>()
            .to::<ServiceObjects>()
            .to::<EnvoyFilters>()
            .to::<Sidecars>()
            .to::<AuthorizationPolicies>()
            .to::<RequestAuthentications>()
            .not_through::<SharedHosts>()
            .not_through::<SharedHostRows>()
            .not_through::<OwnHosts>()
            .not_through::<SharedClusters>()
            .not_through::<RouteTables>()
            .not_through::<ClusterCatalogue>()
            .not_through::<VirtualServiceSummaries>()
            .not_through::<DestinationRuleSummaries>()
            .not_through::<PolicyCandidates>();
        let cells = from.into_iter().flat_map(|cell| self.engine.sources(cell, &walk).cells);
        let objects = cells.filter_map(|(cell, _)| self.object_of(cell)).chain(self.declaring(cell));
        objects.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// The objects that declare the port of a gateway's listener. The key of a listener is its content, so that no reads lead to them.
    fn declaring(&self, listener: CellId) -> BTreeSet<String> {
        let Some(spec) = self.engine.key::<Listeners>(listener) else { return BTreeSet::new() };
        let Bind::Socket { port, .. } = spec.bind else { return BTreeSet::new() };
        let is_it = |one: &Arc<ListenerSpec>| one.name == spec.name && one.transport == spec.transport;
        let gateways = self.engine.iter::<GatewayListeners>().filter(|(_, listeners)| listeners.iter().any(is_it));
        let sets = gateways.filter_map(|(audience, _)| Some(&audience.class.gateway()?.set));
        let merged = sets.filter_map(|set| self.engine.get::<MergedGateways>(set));
        merged.flat_map(|row| row.owners_at(port).map(shown).collect::<Vec<_>>()).collect()
    }

    /// The object in an input cell, as text.
    fn object_of(&self, cell: CellId) -> Option<String> {
        let engine = &self.engine;
        let routing = || engine.key::<RoutingObjects>(cell).map(|key| format!("{:?} {}", key.kind, key.id));
        let service = || engine.row::<ServiceObjects>(cell).and(engine.key::<ServiceObjects>(cell));
        let service = || service().map(|key| format!("{} {}", service_kind(key.registry), key.id));
        let rule = || engine.key::<DestinationRules>(cell).map(|id| format!("DestinationRule {id}"));
        let filter = || engine.key::<EnvoyFilters>(cell).map(|id| format!("EnvoyFilter {id}"));
        let sidecar = || engine.key::<Sidecars>(cell).map(|id| format!("Sidecar {id}"));
        let policy = || engine.key::<AuthorizationPolicies>(cell).map(|id| format!("AuthorizationPolicy {id}"));
        let tokens = || engine.key::<RequestAuthentications>(cell).map(|id| format!("RequestAuthentication {id}"));
        let gateway = || engine.key::<KubeGateways>(cell).map(|key| format!("{} {}", Kind::KubeGateway.name(), key.id));
        let route = || engine.key::<RouteObjects>(cell).map(|key| format!("{key:?}"));
        let set = || engine.key::<ListenerSets>(cell).map(|id| format!("ListenerSet {id}"));
        let routing = || routing().or_else(gateway).or_else(set).or_else(route);
        routing().or_else(service).or_else(rule).or_else(filter).or_else(sidecar).or_else(policy).or_else(tokens)
    }
}

fn shown(owner: &ServerOwner) -> String {
    let (kind, id) = match owner {
        ServerOwner::Istio(id) => (Kind::Gateway, id),
        ServerOwner::Kube(ListenerOwner::Gateway(id)) => (Kind::KubeGateway, id),
        ServerOwner::Kube(ListenerOwner::ListenerSet(id)) => (Kind::ListenerSet, id),
    };
    format!("{} {id}", kind.name())
}

fn service_kind(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes => Kind::Service.name(),
        Registry::ServiceEntry => Kind::ServiceEntry.name(),
        Registry::Import => Kind::ServiceImport.name(),
        Registry::Pool => Kind::InferencePool.name(),
    }
}

/// A walk to the resources that are derived from an object, without those that only chose by it.
fn content(types: &ServedTypes) -> Walk {
    everything(types)
        .to::<VirtualHosts>()
        .not_through::<SharedHosts>()
        .not_through::<SharedHostRows>()
        .not_through::<OwnHosts>()
        .not_through::<SharedClusters>()
        .not_through::<RouteTables>()
        .not_through::<ClusterCatalogue>()
}

/// A walk to all resources that depend on an object.
fn everything(types: &ServedTypes) -> Walk {
    types
        .walk_to_counted(Walk::within(CELLS))
        .to::<PatchedVirtualHosts>()
        .not_through::<VirtualServiceSummaries>()
        .not_through::<MeshAttachments>()
        // Scopes choose services by it. Encoded routes read the object, too.
        .not_through::<MeshBackends>()
        .not_through::<DestinationRuleSummaries>()
        .not_through::<PolicyCandidates>()
}
