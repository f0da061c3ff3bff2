//! What serving asks of the world: audiences, catalogues and resources, and what a commit changed of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::ObjectKey;
use envoy::{
    Clusters, EndpointCatalogue, Endpoints, GrpcClusters, GrpcListeners, LbEndpoints, Listeners, NameTables,
    RouteConfigs, RouteShells, Secrets, VirtualHostResources, generation_of,
};
use envoy_filter::{
    AddedResources, Extensions, Patched, PatchedCatalogue, PatchedClusterCatalogue, PatchedClusters,
    PatchedListenerCatalogue, PatchedListeners, PatchedRouteConfigs,
};
use flow::{CellId, Delta};
use model::audience::{
    ClusterAudience, EndpointsAudience, ExtensionAudience, GrpcAudience, Leds, ListenerAudience, NameAudience,
    ResourceKey, RouteAudience, Scope, SecretAudience,
};
use model::xds::{Resource, ResourceType};
use registry::GatewayNames;
use registry::inputs::ProxyToken;
use traffic::Catalogue;
use traffic::audience::Audiences;
use traffic::clusters::ClusterCatalogue;
use traffic::conflicts::Conflicts;
use traffic::listeners::ListenerCatalogue;
use traffic::name_table::NameTableCatalogue;
use traffic::routes::VirtualHostCatalogue;

use crate::{World, conflicts, patching};

/// What proxies must share to receive equal bytes of one type.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Audience {
    /// Of clusters.
    Cluster(Arc<ClusterAudience>),
    /// Of endpoints.
    Endpoints(Arc<EndpointsAudience>),
    /// Of endpoints that are sent singly.
    LbEndpoint(Arc<EndpointsAudience>),
    /// Of listeners.
    Listener(Arc<ListenerAudience>),
    /// Of route tables.
    Route(Arc<RouteAudience>),
    /// Of route tables whose virtual hosts are discovered singly.
    RouteShell(Arc<RouteAudience>),
    /// Of those virtual hosts.
    VirtualHost(Arc<RouteAudience>),
    /// Of secrets.
    Secret(Arc<SecretAudience>),
    /// Of clusters of gRPC clients, who ask for each by its name.
    GrpcCluster(Arc<Scope>),
    /// Of listeners of gRPC clients, who ask for each by its name.
    GrpcListener(Arc<GrpcAudience>),
    /// Of extension configurations.
    Extension(Arc<ExtensionAudience>),
    /// Of name tables.
    NameTable(Arc<NameAudience>),
}

/// What a commit changed of that which is served.
#[derive(Default, Debug)]
pub struct Changes {
    /// The commit's number; ascending.
    pub epoch: u64,
    /// Resources that are open and differ now; none: it is gone.
    pub resources: Vec<(CellId, Option<Resource>)>,
    /// Catalogues that are open and differ now.
    pub catalogues: Vec<(CellId, Arc<Catalogue>)>,
    /// Proxies whose audiences differ now.
    pub moved: Vec<ProxyToken>,
    /// Objects that are watched of which something else is to be said now; nothing: all is well.
    pub conflicts: Vec<(ObjectKey, Conflicts)>,
    /// EnvoyFilters of whose patches something else became: their reach tells what.
    pub patching: Vec<ObjectKey>,
    /// Names that are looked up differ now ([`World::wanted_names`]).
    pub names: bool,
    /// Rules that panicked, with key and message; their cells keep what they had.
    pub panics: Vec<String>,
}

impl Changes {
    /// Whether nobody needs to be told.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.catalogues.is_empty() && self.moved.is_empty()
    }

    pub(crate) fn of(delta: &Delta) -> Changes {
        let mut changes = Changes {
            epoch: delta.epoch(),
            ..Changes::default()
        };
        changes.add_resources::<Clusters>(delta);
        changes.add_resources::<Endpoints>(delta);
        changes.add_resources::<LbEndpoints>(delta);
        changes.add_resources::<Listeners>(delta);
        changes.add_resources::<RouteConfigs>(delta);
        changes.add_resources::<RouteShells>(delta);
        changes.add_resources::<VirtualHostResources>(delta);
        changes.add_resources::<Secrets>(delta);
        changes.add_resources::<GrpcClusters>(delta);
        changes.add_resources::<GrpcListeners>(delta);
        changes.add_catalogues::<ClusterCatalogue>(delta);
        changes.add_catalogues::<EndpointCatalogue>(delta);
        changes.add_catalogues::<ListenerCatalogue>(delta);
        changes.add_catalogues::<VirtualHostCatalogue>(delta);
        changes.add_patched::<PatchedClusters>(delta);
        changes.add_patched::<PatchedListeners>(delta);
        changes.add_patched::<PatchedRouteConfigs>(delta);
        changes.add_resources::<AddedResources>(delta);
        changes.add_resources::<Extensions>(delta);
        changes.add_patched_catalogues::<PatchedClusterCatalogue>(delta);
        changes.add_patched_catalogues::<PatchedListenerCatalogue>(delta);
        changes.add_resources::<NameTables>(delta);
        changes.add_catalogues::<NameTableCatalogue>(delta);
        changes.moved = delta.changes::<Audiences>().iter().map(|c| c.key).collect();
        changes.conflicts = conflicts::of(delta);
        changes.patching = patching::of(delta);
        changes.names = !delta.changes::<GatewayNames>().is_empty();
        changes.panics = delta
            .panics()
            .iter()
            .map(|p| format!("{}[{}]: {}", p.rule, p.key, p.message))
            .collect();
        changes
    }

    fn add_resources<R: flow::Relation<Row = Resource>>(&mut self, delta: &Delta) {
        let changes = delta.changes::<R>().iter();
        self.resources
            .extend(changes.map(|c| (c.cell, c.after.as_deref().cloned())));
    }

    fn add_patched<R: flow::Relation<Row = Patched>>(&mut self, delta: &Delta) {
        for change in delta.changes::<R>() {
            let resource = |row: &Option<Arc<Patched>>| row.as_ref().map(|row| row.resource.clone());
            let after = resource(&change.after);
            if after != resource(&change.before) {
                self.resources.push((change.cell, after));
            }
        }
    }

    fn add_patched_catalogues<R: flow::Relation<Row = PatchedCatalogue>>(&mut self, delta: &Delta) {
        let changes = delta.changes::<R>().iter();
        let after = changes.map(|c| {
            (
                c.cell,
                c.after.as_ref().map(|row| row.catalogue.clone()).unwrap_or_default(),
            )
        });
        self.catalogues.extend(after);
    }

    fn add_catalogues<R: flow::Relation<Row = Catalogue>>(&mut self, delta: &Delta) {
        let changes = delta.changes::<R>().iter();
        self.catalogues
            .extend(changes.map(|c| (c.cell, c.after.clone().unwrap_or_default())));
    }
}

impl World {
    /// The audience of a connected proxy for a type; none for a proxy that is not connected.
    pub fn audience(&self, token: ProxyToken, kind: ResourceType) -> Option<Audience> {
        let audiences = self.engine.get::<Audiences>(&token)?;
        let grpc = audiences.grpc.as_ref();
        // What patches make of a table is sent as a whole.
        let apart = audiences.vhds && audiences.route.filters.is_empty();
        Some(match kind {
            ResourceType::Cluster if let Some(grpc) = grpc => Audience::GrpcCluster(grpc.scope.clone()),
            ResourceType::Listener if let Some(grpc) = grpc => Audience::GrpcListener(grpc.clone()),
            ResourceType::NameTable => Audience::NameTable(Arc::new(audiences.names())),
            ResourceType::Extension => Audience::Extension(audiences.extension.clone()),
            ResourceType::Cluster => Audience::Cluster(audiences.cluster.clone()),
            ResourceType::Endpoints => Audience::Endpoints(self.endpoints(token, &audiences.endpoints)),
            ResourceType::LbEndpoint => {
                audiences.endpoints.leds?;
                Audience::LbEndpoint(self.endpoints(token, &audiences.endpoints))
            }
            ResourceType::Listener => Audience::Listener(audiences.listener.clone()),
            ResourceType::Route if apart => Audience::RouteShell(audiences.route.clone()),
            ResourceType::Route => Audience::Route(audiences.route.clone()),
            ResourceType::VirtualHost if !apart => return None,
            ResourceType::VirtualHost => Audience::VirtualHost(audiences.route.clone()),
            ResourceType::Secret => Audience::Secret(audiences.secrets.clone()?),
        })
    }

    /// A client has collections of endpoints of these names, and does not say which endpoints it has of them: it may have
    /// some that have gone. From now on its audience is one whose collections have other names. Whether that is so;
    /// commits do not tell of it.
    pub fn renew_collections(&mut self, token: ProxyToken, had: &[Arc<str>]) -> bool {
        let generations: BTreeSet<u32> = had.iter().filter_map(|name| generation_of(name)).collect();
        let present = self.generations.get(&token).copied().unwrap_or_default();
        if !generations.contains(&present) {
            return false;
        }
        // The lowest, so that many who return together share one.
        let free = (0..).find(|generation| !generations.contains(generation));
        self.generations.insert(token, free.unwrap_or_default());
        true
    }

    /// The audience of a proxy's endpoints, in its generation of collections.
    fn endpoints(&self, token: ProxyToken, audience: &Arc<EndpointsAudience>) -> Arc<EndpointsAudience> {
        match (self.generations.get(&token), audience.leds) {
            (Some(generation), Some(apart)) if *generation != apart.generation => Arc::new(EndpointsAudience {
                leds: Some(Leds {
                    generation: *generation,
                    ..apart
                }),
                ..(**audience).clone()
            }),
            _ => audience.clone(),
        }
    }

    /// Opens the list of all that a wildcard type holds for an audience, or that is in a collection (a route table's virtual
    /// hosts, a locality's endpoints). Named types have none, and gRPC clients ask for everything by name.
    pub fn open_catalogue(&mut self, audience: &Audience, collection: &Arc<str>) -> Option<(CellId, Arc<Catalogue>)> {
        match audience {
            Audience::VirtualHost(a) => Some(self.subscribe::<VirtualHostCatalogue>((a.clone(), collection.clone()))),
            Audience::LbEndpoint(a) => Some(self.subscribe::<EndpointCatalogue>((a.clone(), collection.clone()))),
            Audience::Cluster(a) if a.filters.is_empty() => Some(self.subscribe::<ClusterCatalogue>(a.clone())),
            Audience::Cluster(a) => Some(self.subscribe_patched::<PatchedClusterCatalogue>(a.clone())),
            Audience::Listener(a) if a.filters.is_empty() => Some(self.subscribe::<ListenerCatalogue>(a.clone())),
            Audience::Listener(a) => Some(self.subscribe_patched::<PatchedListenerCatalogue>(a.clone())),
            Audience::NameTable(a) => Some(self.subscribe::<NameTableCatalogue>(a.clone())),
            Audience::Endpoints(_) | Audience::Route(_) | Audience::RouteShell(_) => None,
            Audience::Secret(_) | Audience::Extension(_) => None,
            Audience::GrpcCluster(_) | Audience::GrpcListener(_) => None,
        }
    }

    /// What a name means for an audience that asks by name. Wildcard types of others resolve through their catalogue.
    pub fn resolve(&self, audience: &Audience, name: &Arc<str>) -> Option<ResourceKey> {
        match audience {
            Audience::Endpoints(a) => Some(ResourceKey::Endpoints(a.clone(), name.clone())),
            Audience::Route(a) => Some(ResourceKey::Route(a.clone(), name.clone())),
            Audience::RouteShell(a) => Some(ResourceKey::RouteShell(a.clone(), name.clone())),
            Audience::Secret(a) => a.resolve(name).map(ResourceKey::Secret),
            Audience::GrpcCluster(scope) => Some(ResourceKey::GrpcCluster(scope.clone(), name.clone())),
            Audience::GrpcListener(a) => Some(ResourceKey::GrpcListener(a.clone(), name.clone())),
            Audience::Extension(a) => Some(ResourceKey::Extension(a.clone(), name.clone())),
            Audience::Cluster(_) | Audience::Listener(_) | Audience::NameTable(_) => None,
            Audience::VirtualHost(_) | Audience::LbEndpoint(_) => None,
        }
    }

    /// Opens one resource: from now on commits tell of its changes.
    pub fn open(&mut self, key: &ResourceKey) -> (CellId, Option<Resource>) {
        match key {
            ResourceKey::Cluster(k) => self.open_in::<Clusters>(k.clone()),
            ResourceKey::Endpoints(audience, name) => self.open_in::<Endpoints>((audience.clone(), name.clone())),
            ResourceKey::LbEndpoint(name, spec) => self.open_in::<LbEndpoints>((name.clone(), spec.clone())),
            ResourceKey::Listener(spec) => self.open_in::<Listeners>(spec.clone()),
            ResourceKey::Secret(key) => self.open_in::<Secrets>(key.clone()),
            ResourceKey::GrpcCluster(scope, name) => self.open_in::<GrpcClusters>((scope.clone(), name.clone())),
            ResourceKey::GrpcListener(audience, name) => {
                self.open_in::<GrpcListeners>((audience.clone(), name.clone()))
            }
            ResourceKey::RouteShell(audience, name) => self.open_in::<RouteShells>((audience.clone(), name.clone())),
            ResourceKey::VirtualHost(table, host) => {
                self.open_in::<VirtualHostResources>((table.clone(), host.clone()))
            }
            ResourceKey::Route(audience, name) if audience.filters.is_empty() => {
                self.open_in::<RouteConfigs>((audience.clone(), name.clone()))
            }
            ResourceKey::Route(audience, name) => {
                self.open_patched::<PatchedRouteConfigs>((audience.clone(), name.clone()))
            }
            ResourceKey::PatchedCluster(key) => self.open_patched::<PatchedClusters>(key.clone()),
            ResourceKey::PatchedListener(key) => self.open_patched::<PatchedListeners>(key.clone()),
            ResourceKey::Added(id, patch) => self.open_in::<AddedResources>((id.clone(), *patch)),
            ResourceKey::NameTable(audience) => self.open_in::<NameTables>(audience.clone()),
            ResourceKey::Extension(audience, name) => self.open_in::<Extensions>((audience.clone(), name.clone())),
        }
    }

    /// Opens many resources, as [`World::open`] does one by one. The types of which there are thousands are derived together.
    pub fn open_all(&mut self, keys: &[&ResourceKey]) -> Vec<(CellId, Option<Resource>)> {
        let mut opened: Vec<Option<(CellId, Option<Resource>)>> = vec![None; keys.len()];
        self.open_those::<Clusters>(keys, &mut opened, |key| match key {
            ResourceKey::Cluster(key) => Some(key.clone()),
            _ => None,
        });
        self.open_those::<Endpoints>(keys, &mut opened, |key| match key {
            ResourceKey::Endpoints(audience, name) => Some((audience.clone(), name.clone())),
            _ => None,
        });
        self.open_those::<VirtualHostResources>(keys, &mut opened, |key| match key {
            ResourceKey::VirtualHost(table, host) => Some((table.clone(), host.clone())),
            _ => None,
        });
        let one_by_one = |(key, done): (&&ResourceKey, Option<_>)| done.unwrap_or_else(|| self.open(key));
        keys.iter().zip(opened).map(one_by_one).collect()
    }

    /// Opens those of these resources that are of one type.
    fn open_those<R: flow::Rule<Row = Resource>>(
        &mut self,
        keys: &[&ResourceKey],
        opened: &mut [Option<(CellId, Option<Resource>)>],
        of_type: impl Fn(&ResourceKey) -> Option<R::Key>,
    ) {
        let keys = keys.iter().map(|key| of_type(key)).enumerate();
        let (at, keys): (Vec<usize>, Vec<R::Key>) = keys.filter_map(|(at, key)| Some((at, key?))).unzip();
        for (at, cell) in at.into_iter().zip(self.engine.subscribe_all::<R>(&keys)) {
            opened[at] = Some((cell, self.engine.row::<R>(cell).map(|row| (*row).clone())));
        }
    }

    /// Closes what was opened, once for each opening.
    pub fn close(&mut self, cell: CellId) {
        self.engine.unsubscribe(cell);
    }

    fn open_in<R: flow::Rule<Row = Resource>>(&mut self, key: R::Key) -> (CellId, Option<Resource>) {
        let cell = self.engine.subscribe::<R>(key);
        (cell, self.engine.row::<R>(cell).map(|r| (*r).clone()))
    }

    fn open_patched<R: flow::Rule<Row = Patched>>(&mut self, key: R::Key) -> (CellId, Option<Resource>) {
        let cell = self.engine.subscribe::<R>(key);
        (cell, self.engine.row::<R>(cell).map(|row| row.resource.clone()))
    }

    fn subscribe_patched<R: flow::Rule<Row = PatchedCatalogue>>(&mut self, key: R::Key) -> (CellId, Arc<Catalogue>) {
        let cell = self.engine.subscribe::<R>(key);
        let row = self.engine.row::<R>(cell);
        (cell, row.map(|row| row.catalogue.clone()).unwrap_or_default())
    }

    fn subscribe<R: flow::Rule<Row = Catalogue>>(&mut self, key: R::Key) -> (CellId, Arc<Catalogue>) {
        let cell = self.engine.subscribe::<R>(key);
        (cell, self.engine.row::<R>(cell).unwrap_or_default())
    }
}
