//! From an object to what is served of it.

use config::{Kind, ObjectKey};
use envoy::{
    Clusters, EndpointCatalogue, Endpoints, GrpcClusters, GrpcListeners, NameTables, RouteConfigs, VirtualHostResources,
};
use envoy_filter::{
    AddedResources, Extensions, PatchedClusterCatalogue, PatchedClusters, PatchedListenerCatalogue, PatchedListeners,
    PatchedRouteConfigs,
};
use flow::{CellId, Dependents, Relation, Walk};
use model::service::{ObjectId, Registry};
use registry::inputs::{
    DestinationRules, EnvoyFilters, PeerAuthentications, RoutingKey, RoutingObjects, ServiceObjectKey, ServiceObjects,
    Sidecars, WorkloadObjectKey, WorkloadObjects,
};
use traffic::clusters::{ClusterCatalogue, PublicClusters};
use traffic::listeners::ListenerCatalogue;
use traffic::policy::{DestinationRuleSummaries, PolicyCandidates};
use traffic::routes::{PublicHosts, RouteTables};
use traffic::virtual_service::VirtualServiceSummaries;

use crate::{Unmade, World};

/// A walk looks at this many cells at most: some milliseconds.
const CELLS: usize = 100_000;

/// The relations whose rows list resources.
const CATALOGUES: [&str; 5] = [
    EndpointCatalogue::NAME,
    ListenerCatalogue::NAME,
    ClusterCatalogue::NAME,
    PatchedListenerCatalogue::NAME,
    PatchedClusterCatalogue::NAME,
];

/// What was derived from an object, of that which is served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Resources that were made of it.
    pub resources: Vec<CellId>,
    /// Catalogues that list what was made of it, where that is not known resource by resource.
    pub catalogues: Vec<CellId>,
    /// Catalogues that may list something that was made of it: only what changed in the same commit says so.
    pub maybe: Vec<CellId>,
    /// False: there may be more.
    pub complete: bool,
    /// Of an EnvoyFilter: its patches that are not made, or not everywhere.
    pub unmade: Vec<Unmade>,
}

impl World {
    /// What is served of an object, as of the last commit: what proxies that are connected have or may ask for. Nothing
    /// of an object of a kind that nothing is derived from.
    ///
    /// An object also decides what is *chosen* (a VirtualService for another host is looked at, and left). Where that is
    /// all, a resource is not in here.
    pub fn reach(&self, object: &ObjectKey) -> Reach {
        let id = ObjectId {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        let service = |registry| ServiceObjectKey {
            registry,
            cluster: object.cluster.clone(),
            id: id.clone(),
        };
        let workload = |pod| WorkloadObjectKey {
            pod,
            cluster: object.cluster.clone(),
            id: id.clone(),
        };
        match object.kind {
            Kind::VirtualService => self.routed(&RoutingKey::virtual_service(id), &content()),
            Kind::Ingress => self.routed(&RoutingKey::ingress(id), &everything()),
            Kind::DestinationRule => self.of(|w| w.engine.dependents::<DestinationRules>(&id, &content()), false),
            Kind::ServiceEntry => self.defined_by(&service(Registry::ServiceEntry)),
            Kind::ServiceImport => self.defined_by(&service(Registry::Import)),
            Kind::Service => self.defined_by(&service(Registry::Kubernetes)),
            Kind::WorkloadEntry => self.running(&workload(false)),
            Kind::Pod => self.running(&workload(true)),
            Kind::Gateway => self.routed(&RoutingKey::gateway(id), &everything()),
            Kind::Sidecar => self.of(|w| w.engine.dependents::<Sidecars>(&id, &everything()), true),
            Kind::PeerAuthentication => {
                self.of(|w| w.engine.dependents::<PeerAuthentications>(&id, &everything()), true)
            }
            Kind::EnvoyFilter => {
                let mut reach = self.of(|w| w.engine.dependents::<EnvoyFilters>(&id, &everything()), true);
                let cells = [&reach.resources[..], &reach.catalogues[..]].concat();
                reach.unmade = self.unmade(&id, &cells, reach.complete);
                reach
            }
            _ => Reach {
                complete: true,
                ..Reach::default()
            },
        }
    }

    fn routed(&self, key: &RoutingKey, walk: &Walk) -> Reach {
        self.of(|w| w.engine.dependents::<RoutingObjects>(key, walk), true)
    }

    fn defined_by(&self, key: &ServiceObjectKey) -> Reach {
        self.of(|w| w.engine.dependents::<ServiceObjects>(key, &content()), false)
    }

    fn running(&self, key: &WorkloadObjectKey) -> Reach {
        self.of(|w| w.engine.dependents::<WorkloadObjects>(key, &content()), false)
    }

    fn of(&self, walk: impl FnOnce(&World) -> Dependents, certain: bool) -> Reach {
        let found = walk(self);
        let mut reach = Reach {
            complete: found.complete,
            ..Reach::default()
        };
        for (cell, relation) in found.cells {
            let listed = CATALOGUES.contains(&relation);
            match (listed, certain) {
                (false, _) => reach.resources.push(cell),
                (true, true) => reach.catalogues.push(cell),
                (true, false) => reach.maybe.push(cell),
            }
        }
        reach
    }
}

/// To what was made of an object, and not to what was chosen by it.
fn content() -> Walk {
    everything()
        .not_through::<PublicHosts>()
        .not_through::<PublicClusters>()
        .not_through::<RouteTables>()
        .not_through::<ClusterCatalogue>()
}

/// To all that an object with a say in a proxy as a whole leads to.
fn everything() -> Walk {
    Walk::within(CELLS)
        .to::<Clusters>()
        .to::<GrpcClusters>()
        .to::<GrpcListeners>()
        .to::<Endpoints>()
        .to::<EndpointCatalogue>()
        .to::<RouteConfigs>()
        .to::<VirtualHostResources>()
        .to::<ListenerCatalogue>()
        .to::<ClusterCatalogue>()
        .to::<PatchedClusters>()
        .to::<PatchedListeners>()
        .to::<PatchedRouteConfigs>()
        .to::<AddedResources>()
        .to::<Extensions>()
        .to::<NameTables>()
        .to::<PatchedClusterCatalogue>()
        .to::<PatchedListenerCatalogue>()
        .not_through::<VirtualServiceSummaries>()
        .not_through::<DestinationRuleSummaries>()
        .not_through::<PolicyCandidates>()
}
