//! The outbound listeners that the clients of a namespace have otherwise than others, because they see services or use policies that
//! others do not.
//!
//! All but a few services are the same. So the listeners of these few are built alone, once as the clients of the namespace see
//! them and once as others do. A listener that has other services, too, and that they may change, is rare: then all listeners of
//! the namespace are built and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::audience::{ListenerAudience, Scope};
use model::listener::{ChainKind, ChainSpec, ListenerSpec};
use names::Protocol;
use registry::inputs::Mesh;

use super::{Build, OutboundListeners, client, special};
use crate::listeners::chain::fallback;
use crate::scope::{self, EgressListener, VisibleService, particular};

flow::rule! {
    /// The outbound listeners of a sidecar that replace those that namespaces share (`base_listeners`), ascending by name. The
    /// key has no inbound facts.
    pub OwnOutboundListeners: Arc<ListenerAudience> => Rows = "own outbound listeners", derive_own_outbound_listeners;
}

fn derive_own_outbound_listeners(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Rows> {
    let hosts = particular::few_hosts(cx, &audience.scope)?;
    let base = Arc::new(particular::base_listeners(cx, audience)?);
    if base.scope == audience.scope {
        return None;
    }
    let shared = cx.get::<OutboundListeners>(&base)?;
    let found = |scope: &Arc<Scope>| -> Vec<Option<VisibleService>> {
        hosts.iter().map(|host| scope::find(cx, scope, host)).collect()
    };
    let (own, others) = (found(&audience.scope), found(&base.scope));
    let differing = || own.iter().zip(&others).filter(|(own, other)| own != other);
    let unknown = special::unknown_cluster(&scope::outbound_policy(cx, &audience.scope));
    let alone = Alone {
        fallback: fallback(&unknown),
        added: of_services(cx, audience, differing().filter_map(|(own, _)| own.clone()).collect())?,
        removed: of_services(cx, &base, differing().filter_map(|(_, other)| other.clone()).collect())?,
        own: of_services(cx, audience, own.iter().flatten().cloned().collect())?,
        others: of_services(cx, &base, others.iter().flatten().cloned().collect())?,
    };
    if let Some(own) = alone.replacing(&shared) {
        return Some(own);
    }
    let all = cx.get::<OutboundListeners>(audience)?;
    let all: ByName = all.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
    let names: BTreeSet<&Arc<str>> = all.keys().chain(shared.iter().map(|spec| &spec.name)).collect();
    let rows = names.into_iter().map(|name| (name, all.get(name)));
    let differing = rows.filter(|(name, own)| *own != find(&shared, name));
    Some(differing.map(|(name, own)| (name.clone(), own.cloned())).collect())
}

/// Names with their listeners; without one: there is no such listener.
type Rows = Vec<(Arc<str>, Option<Arc<ListenerSpec>>)>;

type ByName = BTreeMap<Arc<str>, Arc<ListenerSpec>>;

/// The listener of this name.
fn find<'l>(listeners: &'l [Arc<ListenerSpec>], name: &str) -> Option<&'l Arc<ListenerSpec>> {
    let at = listeners.binary_search_by(|spec| (*spec.name).cmp(name)).ok()?;
    Some(&listeners[at])
}

/// The listeners of these services alone.
fn of_services(cx: &Reads<'_>, audience: &ListenerAudience, services: Arc<[VisibleService]>) -> Option<ByName> {
    let facts = audience.class.sidecar()?;
    let mesh = cx.get::<Mesh>(&())?;
    let client = Arc::new(client(cx, (audience, facts), &scope::outbound_policy(cx, &audience.scope)));
    let mut build = Build::new(cx, (audience, facts), &mesh, client);
    build.egress(&EgressListener::of_all_ports(services));
    Some(build.finish().into_iter().map(|spec| (spec.name.clone(), spec)).collect())
}

/// The listeners of a few hosts alone.
struct Alone {
    /// As the clients of the namespace see the hosts.
    own: ByName,
    /// As others do.
    others: ByName,
    /// Of the services that only the clients of the namespace see.
    added: ByName,
    /// Of the services that only others see, because the namespace has services of the same names.
    removed: ByName,
    /// The filter chain for unknown destinations, which a listener without a service for all connections has.
    fallback: ChainSpec,
}

impl Alone {
    /// The listeners that replace shared ones; `None` if other services may be part of one.
    ///
    /// Where the shared listener is what the hosts make alone, other services add nothing to it: of services at one address the
    /// first counts, and HTTP services share a listener. They do not either, if only the policies of the hosts differ. Nor do
    /// they if HTTP services of the namespace make the shared listener: it has no services of other protocols.
    fn replacing(&self, shared: &[Arc<ListenerSpec>]) -> Option<Rows> {
        let mut rows = Vec::new();
        for name in self.own.keys().chain(self.others.keys()).collect::<BTreeSet<_>>() {
            let (shared, own, others) = (find(shared, name), self.own.get(name), self.others.get(name));
            if self.removed.contains_key(name) {
                return None;
            }
            let is_added = self.added.contains_key(name);
            if shared == own && (!is_added || own.is_some_and(|own| self.is_http(own))) {
                continue;
            }
            let differs_by_policy = own.is_some() && !is_added;
            if shared != others || shared.is_some() && !differs_by_policy {
                return None;
            }
            rows.push((name.clone(), own.cloned()));
        }
        Some(rows)
    }

    /// Whether a listener has HTTP services only, and no HTTP proxy, which takes the place of all services before it.
    fn is_http(&self, spec: &ListenerSpec) -> bool {
        let serves = |chain: &ChainSpec| match &chain.kind {
            ChainKind::Http(http) => http.protocol.is_http() && http.protocol != Protocol::HttpProxy,
            ChainKind::Tcp(_) => false,
        };
        spec.default_chain.iter().all(|chain| **chain == self.fallback) && spec.chains.iter().all(serves)
    }
}
