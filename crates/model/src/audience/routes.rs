//! Audiences and keys of route tables.

use std::sync::Arc;

use config::mesh::ProxyConfigOverride;
use names::Hostname;

use super::{Filters, GatewayFacts, HostList, PolicyKey, ProxyClass, Scope, SharedHostsKey, Source};
use crate::kube::{self, MatchRef};
use crate::service::{ObjectId, ServiceKey};
use crate::session::Session;

/// Decides the route tables of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RouteAudience {
    /// Which services the client sees.
    pub scope: Arc<Scope>,
    /// The class of the proxy, with the facts that matter to this class only.
    pub class: ProxyClass<(), Arc<GatewayFacts>>,
    /// The client, with the labels that an HTTP route names in `sourceLabels`.
    pub source: Arc<Source>,
    /// Patches of route tables, in the order in which they are applied.
    pub filters: Filters,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
}

impl RouteAudience {
    /// The audience without patches.
    pub fn plain(self: &Arc<Self>) -> Arc<RouteAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(RouteAudience { filters: Filters::default(), ..(**self).clone() }),
        }
    }
}

/// Decides the virtual hosts that a proxy is sent over VHDS.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum VirtualHostAudience {
    /// All of its route tables.
    All(Arc<RouteAudience>),
    /// The virtual hosts that tables share.
    Shared {
        /// As in [`SharedHostsKey`](super::SharedHostsKey).
        cluster: Arc<str>,
        /// As in [`SharedHostsKey`](super::SharedHostsKey).
        assigned: bool,
        /// The patches that may match many virtual hosts.
        filters: Filters,
    },
    /// The virtual hosts that its tables do not share. They replace or hide shared ones, which have these patches.
    Own(Arc<RouteAudience>, Filters),
}

impl VirtualHostAudience {
    /// The patches.
    pub fn filters(&self) -> &Filters {
        match self {
            VirtualHostAudience::All(audience) | VirtualHostAudience::Own(audience, _) => &audience.filters,
            VirtualHostAudience::Shared { filters, .. } => filters,
        }
    }

    /// The list that tables share, if the table of this name is one of them.
    pub fn shared_list(&self, table: &str) -> Option<SharedHostsKey> {
        let (cluster, assigned) = match self {
            VirtualHostAudience::All(_) => return None,
            VirtualHostAudience::Shared { cluster, assigned, .. } => (cluster, *assigned),
            VirtualHostAudience::Own(audience, _) => (&audience.scope.cluster, audience.scope.assigned),
        };
        SharedHostsKey::of_table(cluster, assigned, table)
    }
}

/// Decides the routes of one virtual host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RoutesKey {
    /// The VirtualService whose `http` routes these are; none for a service's default route.
    pub virtual_service: Option<ObjectId>,
    /// The host of the virtual host: the service that is the default destination, or a host that only the
    /// VirtualService defines.
    pub host: Hostname,
    /// The listener's port, which `match.port` is compared with. Destinations without a port use it if their service has
    /// several.
    pub port: u16,
    /// The gateway (`namespace/name`) that the routes are bound to; none for sidecars (`mesh`).
    pub gateway: Option<ObjectId>,
    /// The client, which `sourceLabels` and `sourceNamespace` are compared with.
    pub source: Arc<Source>,
    /// The service and policy of each destination host, as the client resolves them; ascending. A list, because most have one,
    /// for which a map is large.
    pub destinations: Arc<[(Hostname, DestinationRef)]>,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
}

impl RoutesKey {
    /// A destination host as the client resolves it.
    pub fn destination(&self, host: &Hostname) -> Option<&DestinationRef> {
        let at = self.destinations.binary_search_by(|(one, _)| one.cmp(host)).ok()?;
        Some(&self.destinations[at].1)
    }
}

/// A destination host as a client resolves it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DestinationRef {
    /// The visible service of the host.
    pub service: Option<ServiceKey>,
    /// The traffic policy that applies, for hash policies.
    pub policy: Option<PolicyKey>,
}

/// One virtual host of a route table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VirtualHostSpec {
    /// `HOST:PORT`, or the name of a catch-all.
    pub name: Arc<str>,
    /// The domains; unique within the table.
    pub domains: Vec<Arc<str>>,
    /// Its routes or its fixed answer.
    pub content: VirtualHostContent,
    /// Plain-text requests are redirected to HTTPS (`httpsRedirect`).
    pub require_tls: bool,
    /// Session affinity settings, if the service uses them.
    pub session: Option<Session>,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
}

impl VirtualHostSpec {
    /// Whether it serves any domain. A host's own name is its first domain.
    pub fn serves_any(&self) -> bool {
        self.domains.first().is_some_and(|domain| &**domain == "*")
    }

    /// The virtual host with these overrides, in its routes, too.
    pub fn with_overrides(&self, overrides: &Arc<ProxyConfigOverride>) -> VirtualHostSpec {
        let with = |key: &Arc<RoutesKey>| RoutesKey { overrides: Some(overrides.clone()), ..(**key).clone() };
        let all_with = |keys: &[Arc<RoutesKey>]| keys.iter().map(|key| Arc::new(with(key))).collect();
        let content = match &self.content {
            VirtualHostContent::Routes(keys) => VirtualHostContent::Routes(all_with(keys)),
            VirtualHostContent::Matches(matches) => {
                VirtualHostContent::Matches(kube::with_overrides(matches, overrides))
            }
            VirtualHostContent::Joined(keys, matches) => {
                VirtualHostContent::Joined(all_with(keys), kube::with_overrides(matches, overrides))
            }
            other => other.clone(),
        };
        VirtualHostSpec { content, overrides: Some(overrides.clone()), ..self.clone() }
    }
}

/// Content of a virtual host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum VirtualHostContent {
    /// Routes in order, those of the first key first.
    Routes(Vec<Arc<RoutesKey>>),
    /// Routes in order, and then matches of HTTPRoutes and GRPCRoutes in order.
    Joined(Vec<Arc<RoutesKey>>, Arc<[MatchRef]>),
    /// Matches of HTTPRoutes, in order of precedence.
    Matches(Arc<[MatchRef]>),
    /// One route to this cluster (`allow_any`).
    AllowAny(Arc<str>),
    /// One route to the destination that the request names (`allow_any_dynamic_dns`).
    DynamicForwardProxy,
    /// All requests get 502 (`block_all`).
    BlockAll,
    /// All requests get 404 (`blackhole:PORT` of a gateway without routes).
    NotFound,
    /// All requests get 421, because the connection was opened for another HTTPS listener.
    Misdirected,
}

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    /// The virtual hosts, in order.
    pub virtual_hosts: HostList,
    /// A port in the `Host` header is ignored when hosts are matched.
    pub ignore_port: bool,
    /// The port that `alt-svc` advertises for HTTP/3.
    pub http3_port: Option<u16>,
}
