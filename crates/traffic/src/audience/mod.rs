//! Audiences of connected proxies: the only rules of the crate that read a proxy.
//!
//! Proxies with equal audiences share everything that is derived for them, and a change that leaves a proxy's audiences
//! unchanged stops here. Each audience has a builder in a file of its own ([`clusters`], [`endpoints`], [`listeners`],
//! [`routes`], [`grpc`], [`secrets`]), which reads a proxy through [`facts::Facts`].

mod class;
mod cluster_patches;
mod clusters;
mod endpoints;
mod facts;
mod filters;
mod grpc;
mod inbound;
mod kube;
mod listeners;
mod location;
mod mtls;
mod overrides;
mod policies;
mod routes;
mod secrets;
mod select;
mod trace;

use std::sync::Arc;

use flow::Reads;
use model::audience::{
    Account, ClusterAudience, EndpointsAudience, ExtensionAudience, Filters, GrpcAudience, ListenerAudience,
    NameAudience, NameView, OwnEndpoints, RouteAudience, SecretAudience,
};
use model::service::ObjectId;
use registry::inputs::{Mesh, Proxies, ProxyToken};

pub use cluster_patches::{CommonPatches, OutboundPatches, outbound_patches, with_common};
pub use clusters::shared_clusters;
pub use facts::pod_key;
pub use filters::{FilterScopes, FiltersByNamespace};
pub use location::{ClustersOfServices, RulesByFacet, ServicesByDns, ServicesByFacet, ServicesWithAssigned};
pub(crate) use select::gateways as gateways_for;
pub use select::{GatewaysBySelector, HttpSourceLabels, RulesWithSelector, SidecarsByNamespace, TcpSourceLabels};

/// The audiences of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyAudiences {
    /// Decides its endpoints, but those of `own_endpoints`.
    pub endpoints: Arc<EndpointsAudience>,
    /// Decides the endpoints of clusters that depend on more facts of the proxy; none if there are no such clusters.
    pub own_endpoints: Option<Arc<OwnEndpoints>>,
    /// Decides its clusters.
    pub cluster: Arc<ClusterAudience>,
    /// Decides the clusters that it shares with sidecars that serve other ports; none if it shares none.
    pub shared_cluster: Option<Arc<ClusterAudience>>,
    /// Decides its listeners.
    pub listener: Arc<ListenerAudience>,
    /// Decides the listeners that it shares with sidecars that serve other ports; none if it shares none.
    pub shared_listener: Option<Arc<ListenerAudience>>,
    /// Decides its route tables.
    pub route: Arc<RouteAudience>,
    /// Its route tables have virtual hosts of the lists that tables share. These are the patches that may match many virtual
    /// hosts.
    pub shared_hosts: Option<Filters>,
    /// It supports VHDS.
    pub vhds: bool,
    /// Decides its secrets; none if it has no access to secrets.
    pub secrets: Option<Arc<SecretAudience>>,
    /// The service account that must be allowed to list Secrets, if its configuration may refer to some.
    pub reader: Option<Account>,
    /// The audience of a proxyless gRPC client; it replaces the cluster and listener audiences.
    pub grpc: Option<Arc<GrpcAudience>>,
    /// Decides its extension configurations.
    pub extension: Arc<ExtensionAudience>,
    /// Its agent may resolve names to automatically assigned addresses.
    pub resolves_assigned: bool,
}

impl ProxyAudiences {
    /// The audience of the agent's name table, which is made on demand because few agents subscribe to it.
    pub fn names(&self) -> NameAudience {
        // The own audience sees services that only the proxy's namespace does.
        let own = self.own_endpoints.as_ref().map(|own| &own.audience.scope);
        let EndpointsAudience { scope, location } = &*self.endpoints;
        let scope = own.unwrap_or(scope);
        let view = NameView {
            cluster: scope.cluster.clone(),
            network: location.network.clone(),
            ip: self.listener.ip,
            assigned: self.resolves_assigned,
        };
        NameAudience { scope: scope.visibility(), view: Arc::new(view) }
    }
}

flow::rule! {
    /// The audiences of each connected proxy.
    pub Audiences: ProxyToken => ProxyAudiences = "audiences", derive_audiences;
}

flow::index! {
    /// Connected gateways by the Gateways of the Gateway API that they serve.
    pub ProxiesByKubeGateway: ObjectId => members of Audiences = "proxies by gateways of the gateway api", proxies_by_kube_gateway_keys;
}

fn proxies_by_kube_gateway_keys(_: &ProxyToken, row: &ProxyAudiences) -> Vec<ObjectId> {
    row.listener.class.gateway().map(|facts| facts.set.kube.to_vec()).unwrap_or_default()
}

fn derive_audiences(cx: &Reads<'_>, token: &ProxyToken) -> Option<ProxyAudiences> {
    let proxy = cx.get::<Proxies>(token)?;
    let mesh = cx.get::<Mesh>(&())?;
    let pod = facts::pod_of(cx, &proxy, &mesh);
    let facts = facts::Facts::new(cx, &proxy, &mesh, pod.as_deref());
    let class = facts.class();
    let overrides = overrides::of(&facts);
    let filters = filters::selected(&facts);
    let cluster = clusters::audience(&facts, &class, &filters, &overrides);
    let listener = listeners::audience(&facts, &class, &filters, &overrides);
    let endpoints = endpoints::audience(&facts);
    let route = routes::audience(&facts, &class, &filters, &overrides);
    let secrets = secrets::audience(&facts, &class, &overrides);
    Some(ProxyAudiences {
        own_endpoints: endpoints::own(&facts, &endpoints).map(Arc::new),
        endpoints: Arc::new(endpoints),
        shared_cluster: clusters::shared(cx, &cluster, &filters).map(Arc::new),
        cluster: Arc::new(cluster),
        shared_listener: listeners::shared(cx, &listener, &filters).map(Arc::new),
        listener: Arc::new(listener),
        shared_hosts: routes::shares_hosts(cx, &route).then_some(filters.shared_hosts),
        route: Arc::new(route),
        vhds: proxy.vhds,
        reader: secrets.as_ref().and_then(|secrets| secrets::reader(&facts, secrets)),
        secrets: secrets.map(Arc::new),
        grpc: grpc::audience(&facts).map(Arc::new),
        extension: Arc::new(ExtensionAudience { filters: filters.extensions }),
        resolves_assigned: facts.resolves_assigned,
    })
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    filters::register(b);
    cluster_patches::register(b);
    select::register(b);
    location::register(b);
    b.world::<Audiences, Proxies>();
    b.index::<ProxiesByKubeGateway>();
}
