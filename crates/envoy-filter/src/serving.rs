//! The served types that EnvoyFilters change.

use std::sync::Arc;

use envoy::{Clusters, GrpcClusters, GrpcListeners, Listeners, RouteConfigs, RouteShells, VirtualHostResources, types};
use model::audience::{
    ClusterAudience, ExtensionAudience, GrpcAudience, ListenerAudience, ResourceKey, RouteAudience, Scope, Section,
    VirtualHostAudience,
};
use model::xds::{Resource, ResourceType};
use traffic::Catalogue;
use traffic::audience::ProxyAudiences;
use traffic::clusters::ClusterCatalogue;
use traffic::listeners::ListenerCatalogue;
use traffic::routes::{SharedHostCatalogue, VirtualHostCatalogue};
use traffic::serving::{Either, List, ListRelation, Lists, NoList, ResourceRelation, ServedType, ServedTypes};

use crate::host_catalogue::{PlainHosts, plain_hosts};
use crate::{
    AddedResources, Extensions, PatchedCatalogue, PatchedClusterCatalogue, PatchedClusters, PatchedHostCatalogue,
    PatchedHostList, PatchedListenerCatalogue, PatchedListeners, PatchedRouteConfigs, PatchedRouteShells,
    PatchedVirtualHostResources,
};

/// Registers the types of this crate.
pub fn register_types(to: &mut ServedTypes) {
    to.register::<ClusterType>().register::<ListenerType>().register::<RouteType>();
    to.register::<VirtualHostType>().register::<ExtensionType>();
}

/// An Envoy, which receives all resources of one or two sections of a wildcard type, or a gRPC client, which subscribes by
/// name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Client<E, G> {
    /// An Envoy.
    Envoy(Section, E),
    /// A gRPC client.
    Grpc(G),
}

/// The key of a plain catalogue, or of a patched one.
type ListKey<A> = Either<(Section, Arc<A>), (Section, Arc<A>)>;

impl<E, G> Client<Arc<E>, G> {
    /// A client with these facts of a gRPC client, or with an Envoy's audience of all or of the shared resources.
    fn of(grpc: Option<G>, all: &Arc<E>, shared: Option<&Arc<E>>) -> Self {
        match (grpc, shared) {
            (Some(grpc), _) => Client::Grpc(grpc),
            (None, Some(shared)) => Client::Envoy(Section::Shared, shared.clone()),
            (None, None) => Client::Envoy(Section::All, all.clone()),
        }
    }

    /// The audience of the own resources of a client that shares the others.
    fn own(proxy: &ProxyAudiences, all: &Arc<E>, shared: Option<&Arc<E>>) -> Option<Self> {
        shared.filter(|_| proxy.grpc.is_none()).map(|_| Client::Envoy(Section::Own, all.clone()))
    }

    /// The catalogue of an Envoy: the plain one, or the patched one. A gRPC client has none.
    fn list(&self, is_plain: impl Fn(Section, &E) -> bool) -> Option<ListKey<E>> {
        match self {
            Client::Envoy(section, audience) if is_plain(*section, audience) => {
                Some(Either::First((*section, audience.clone())))
            }
            Client::Envoy(section, audience) => Some(Either::Second((*section, audience.clone()))),
            Client::Grpc(_) => None,
        }
    }

    fn grpc(&self) -> Option<&G> {
        match self {
            Client::Envoy(..) => None,
            Client::Grpc(audience) => Some(audience),
        }
    }
}

struct ClusterType;

impl ServedType for ClusterType {
    const TYPE: ResourceType = types::CLUSTER;
    type Audience = Client<Arc<ClusterAudience>, Arc<Scope>>;
    type Lists = Lists<List<ClusterCatalogue>, List<PatchedClusterCatalogue>>;
    type Resources = (Clusters, GrpcClusters, PatchedClusters, AddedResources);

    fn audience(proxy: &ProxyAudiences) -> Option<Self::Audience> {
        let grpc = proxy.grpc.as_ref().map(|grpc| grpc.scope.without_addresses());
        Some(Client::of(grpc, &proxy.cluster, proxy.shared_cluster.as_ref()))
    }

    fn own_audience(proxy: &ProxyAudiences) -> Option<Self::Audience> {
        Client::own(proxy, &proxy.cluster, proxy.shared_cluster.as_ref())
    }

    fn list(audience: &Self::Audience, _: &Arc<str>) -> Option<ListKey<ClusterAudience>> {
        // All others may have patches that their audience does not name.
        audience.list(|section, audience| section == Section::Own && audience.filters.is_empty())
    }

    fn resolve(audience: &Self::Audience, name: &Arc<str>) -> Option<ResourceKey> {
        audience.grpc().map(|scope| ResourceKey::GrpcCluster(scope.clone(), name.clone()))
    }
}

struct ListenerType;

impl ServedType for ListenerType {
    const TYPE: ResourceType = types::LISTENER;
    type Audience = Client<Arc<ListenerAudience>, Arc<GrpcAudience>>;
    type Lists = Lists<List<ListenerCatalogue>, List<PatchedListenerCatalogue>>;
    type Resources = (Listeners, GrpcListeners, PatchedListeners, AddedResources);

    fn audience(proxy: &ProxyAudiences) -> Option<Self::Audience> {
        Some(Client::of(proxy.grpc.clone(), &proxy.listener, proxy.shared_listener.as_ref()))
    }

    fn own_audience(proxy: &ProxyAudiences) -> Option<Self::Audience> {
        Client::own(proxy, &proxy.listener, proxy.shared_listener.as_ref())
    }

    fn list(audience: &Self::Audience, _: &Arc<str>) -> Option<ListKey<ListenerAudience>> {
        audience.list(|_, audience| audience.filters.is_empty())
    }

    fn resolve(audience: &Self::Audience, name: &Arc<str>) -> Option<ResourceKey> {
        audience.grpc().map(|audience| ResourceKey::GrpcListener(audience.clone(), name.clone()))
    }
}

/// Clients with complete route tables, or with VHDS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum RouteTables {
    Whole(Arc<RouteAudience>),
    Vhds(Arc<RouteAudience>),
}

struct RouteType;

impl ServedType for RouteType {
    const TYPE: ResourceType = types::ROUTE;
    type Audience = RouteTables;
    type Lists = NoList;
    type Resources = (RouteConfigs, RouteShells, PatchedRouteConfigs, PatchedRouteShells);

    fn audience(proxy: &ProxyAudiences) -> Option<RouteTables> {
        let audience = proxy.route.clone();
        Some(match proxy.vhds {
            true => RouteTables::Vhds(audience),
            false => RouteTables::Whole(audience),
        })
    }

    fn resolve(audience: &RouteTables, name: &Arc<str>) -> Option<ResourceKey> {
        Some(match audience {
            RouteTables::Whole(audience) => ResourceKey::Route(audience.clone(), name.clone()),
            RouteTables::Vhds(audience) => ResourceKey::RouteShell(audience.clone(), name.clone()),
        })
    }
}

struct VirtualHostType;

impl ServedType for VirtualHostType {
    const TYPE: ResourceType = types::VIRTUAL_HOST;
    type Audience = VirtualHostAudience;
    type Lists = Lists<Lists<List<SharedHostCatalogue>, List<VirtualHostCatalogue>>, List<PatchedHostCatalogue>>;
    type Resources = (VirtualHostResources, PatchedVirtualHostResources);

    fn audience(proxy: &ProxyAudiences) -> Option<VirtualHostAudience> {
        let scope = &proxy.route.scope;
        proxy.vhds.then(|| match &proxy.shared_hosts {
            Some(filters) => VirtualHostAudience::Shared {
                cluster: scope.cluster.clone(),
                assigned: scope.assigned,
                filters: filters.clone(),
            },
            None => VirtualHostAudience::All(proxy.route.clone()),
        })
    }

    fn own_audience(proxy: &ProxyAudiences) -> Option<VirtualHostAudience> {
        let shared = proxy.shared_hosts.as_ref().filter(|_| proxy.vhds)?;
        Some(VirtualHostAudience::Own(proxy.route.clone(), shared.clone()))
    }

    fn list(
        audience: &VirtualHostAudience,
        table: &Arc<str>,
    ) -> Option<Either<PlainHosts, (VirtualHostAudience, Arc<str>)>> {
        let plain = plain_hosts(audience, table)?;
        Some(match audience.filters().is_empty() {
            true => Either::First(plain),
            false => Either::Second((audience.clone(), table.clone())),
        })
    }
}

struct ExtensionType;

impl ServedType for ExtensionType {
    const TYPE: ResourceType = types::EXTENSION;
    type Audience = Arc<ExtensionAudience>;
    type Lists = NoList;
    type Resources = (Extensions,);

    fn audience(proxy: &ProxyAudiences) -> Option<Arc<ExtensionAudience>> {
        Some(proxy.extension.clone())
    }

    fn resolve(audience: &Arc<ExtensionAudience>, name: &Arc<str>) -> Option<ResourceKey> {
        Some(ResourceKey::Extension(audience.clone(), name.clone()))
    }
}

impl ListRelation for PatchedClusterCatalogue {
    fn catalogue(row: Arc<PatchedCatalogue>) -> Arc<Catalogue> {
        row.catalogue.clone()
    }
}

impl ListRelation for PatchedListenerCatalogue {
    fn catalogue(row: Arc<PatchedCatalogue>) -> Arc<Catalogue> {
        row.catalogue.clone()
    }
}

impl ListRelation for PatchedHostCatalogue {
    fn catalogue(row: Arc<PatchedHostList>) -> Arc<Catalogue> {
        row.catalogue.clone()
    }
}

envoy::resource_relations! {
    PatchedClusters, in resource, counted: true, ResourceKey::PatchedCluster(key) => Some(key.clone());
    PatchedListeners, in resource, counted: true, ResourceKey::PatchedListener(key) => Some(key.clone());
    PatchedRouteConfigs, in resource, counted: true, ResourceKey::Route(audience, name)
        if !audience.filters.is_empty() => Some((audience.clone(), name.clone()));
    PatchedRouteShells, in resource, counted: true, ResourceKey::RouteShell(audience, name)
        if !audience.filters.is_empty() => Some((audience.clone(), name.clone()));
    PatchedVirtualHostResources, in resource, counted: true, ResourceKey::PatchedVirtualHost(name, host) => {
        Some((name.clone(), host.clone()))
    };
    AddedResources, counted: true, ResourceKey::Added(id, patch) => Some((id.clone(), *patch));
    Extensions, counted: true, ResourceKey::Extension(audience, name) => Some((audience.clone(), name.clone()));
}
