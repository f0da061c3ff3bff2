//! Outbound listeners of a sidecar: one per address and port of services, those that a `Sidecar` declares, and the
//! virtual outbound listener.

mod attached;
mod headless;
mod own;
mod place;
mod plain;
mod service;
mod special;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::CaptureMode;
use flow::Reads;
use gateway_api::mesh::HasMeshRoutes;
use gateway_api::route_filters::{self, RouteFilter};
use model::audience::{ListenerAudience, SidecarListenerFacts};
use model::listener::{DnsCache, ListenerSpec};
use model::proxy::InterceptionMode;
use model::service::{ExportTo, ObjectId, Resolution, Service};
use names::Protocol;
use registry::inputs::{Mesh, MeshSettings};
use registry::{AliasTable, Services};
use rustc_hash::FxHashMap;

use super::chain::fallback;
use super::entry::{self, Bound, Entry, Meeting, Primary, Settings};
use super::l4::{self, L4Rules, Router, Rules};
use crate::hosts::EgressHosts;
use crate::scope::{self, EgressListener, EgressPort, OutboundPolicy, Ports};
use crate::sessions;
use crate::virtual_service::{L4VirtualServices, Summary, VirtualServiceSummaries};
use place::Places;
use service::Wanted;

pub use headless::{InstanceAddresses, Instances};
pub use own::OwnOutboundListeners;
pub use plain::{Client, Plain, PlainListeners};

flow::rule! {
    /// The outbound listeners of sidecars, ascending by name. The key has no inbound facts, so that workloads that serve
    /// different ports share these listeners.
    pub OutboundListeners: Arc<ListenerAudience> => Vec<Arc<ListenerSpec>> = "outbound listeners", derive_outbound_listeners;
}

fn derive_outbound_listeners(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Vec<Arc<ListenerSpec>>> {
    let facts = audience.class.sidecar()?;
    let mesh = cx.get::<Mesh>(&())?;
    let visible = scope::visible(cx, &audience.scope)?;
    let client = Arc::new(client(cx, (audience, facts), &visible.outbound));
    let mut build = Build::new(cx, (audience, facts), &mesh, client.clone());
    for listener in &visible.listeners {
        build.egress(listener);
    }
    let mut listeners = build.finish();
    listeners.extend(special::http_proxy((audience, facts), &mesh.config, &client).map(Arc::new));
    listeners.extend(special::virtual_outbound((audience, facts), &mesh.config, &client).map(Arc::new));
    // Sorted lists are cheap to merge into catalogues.
    listeners.sort_by(|a, b| a.name.cmp(&b.name));
    Some(listeners)
}

/// The facts of a client that its listeners have in common.
fn client(
    cx: &Reads<'_>,
    (audience, facts): (&ListenerAudience, &SidecarListenerFacts),
    outbound: &OutboundPolicy,
) -> Client {
    Client {
        unknown_cluster: special::unknown_cluster(outbound),
        settings: Settings {
            detection_timeout_ms: l4::detection_timeout_ms(cx),
            idle_timeout_ms: audience.options.idle_timeout_ms,
            exact_balance: audience.options.exact_balance,
            capabilities: audience.capabilities,
        },
        accepts_http10: audience.accepts_http10,
        sessions: sessions::any(cx) || route_filters::in_use(cx, RouteFilter::Sessions, true),
        external_auth: route_filters::in_use(cx, RouteFilter::ExternalAuth, true),
        dns_cache: (*outbound == OutboundPolicy::ByName).then_some(DnsCache {
            host: None,
            families: audience.ip,
            resolver: facts.resolver,
        }),
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<InstanceAddresses>();
    b.view::<PlainListeners>();
    b.view::<OutboundListeners>();
    b.view::<OwnOutboundListeners>();
}

/// A service of a listener with its visible ports.
type Seen = (Arc<Service>, Ports);

/// A VirtualService with TCP or TLS routes.
pub(super) type L4Service = (Arc<Summary>, Arc<Rules>);

/// The listeners under construction.
struct Build<'a> {
    cx: &'a Reads<'a>,
    audience: &'a ListenerAudience,
    facts: &'a SidecarListenerFacts,
    router: Router<'a>,
    places: Places<'a>,
    wildcard: Bound,
    client: Arc<Client>,
    /// The domain of Kubernetes services.
    domain: &'a str,
    /// Aliases of services.
    aliases: Arc<AliasTable>,
    /// VirtualServices with TCP or TLS routes that the client sees, in order of precedence.
    l4: Vec<L4Service>,
    /// Some service has routes of the Gateway API.
    has_routes: bool,
    slots: FxHashMap<(Primary, u16), Slot>,
    /// DNS caches of dynamically resolved services that share a listener with others.
    dns_caches: BTreeMap<(Primary, u16), Vec<DnsCache>>,
}

/// A listener under construction.
struct Slot {
    /// Declared by a `Sidecar` for some services, so that others are not added.
    locked: bool,
    pending: Pending,
}

enum Pending {
    /// It has one service port so far.
    Plain(Plain),
    /// It has several service ports or routes.
    Entry(Entry),
}

impl Slot {
    /// The protocol so far.
    fn protocol(&self) -> Protocol {
        match &self.pending {
            Pending::Plain(plain) => plain.listener_protocol(),
            Pending::Entry(entry) => entry.protocol,
        }
    }

    /// The effect of another service port of this protocol.
    fn meets(&self, other: Protocol) -> Meeting {
        entry::meeting(self.protocol(), other)
    }

    /// The listener, ready for more filter chains.
    fn into_entry(self, cx: &Reads<'_>) -> Entry {
        match self.pending {
            Pending::Plain(plain) => plain.entry(cx),
            Pending::Entry(entry) => entry,
        }
    }
}

impl<'a> Build<'a> {
    fn new(
        cx: &'a Reads<'a>,
        (audience, facts): (&'a ListenerAudience, &'a SidecarListenerFacts),
        mesh: &'a MeshSettings,
        client: Arc<Client>,
    ) -> Build<'a> {
        let places = Places { audience, mesh: &mesh.config };
        Build {
            cx,
            audience,
            facts,
            router: Router { cx, scope: &audience.scope },
            wildcard: places.wildcard(),
            places,
            client,
            domain: &mesh.domain,
            aliases: registry::aliases::aliases(cx),
            l4: visible_l4(cx, &audience.scope.namespace),
            has_routes: cx.contains::<HasMeshRoutes>(&()),
            slots: FxHashMap::default(),
            dns_caches: BTreeMap::new(),
        }
    }

    /// Adds the listeners of an egress listener.
    fn egress(&mut self, listener: &EgressListener) {
        let unix = listener.bind.as_ref().is_some_and(|bind| bind.starts_with("unix://"));
        let bind_to_port =
            self.facts.interception == InterceptionMode::None || listener.capture == CaptureMode::None || unix;
        let bound = match &listener.bind {
            Some(text) => match Bound::parse(text) {
                Some(bound) => Some(bound),
                None => return,
            },
            // Without capture, applications call the loopback address, and only they may.
            None if bind_to_port => self.places.loopback(),
            None => None,
        };
        let hosts = &listener.hosts;
        let routes: Vec<L4Service> =
            self.l4.iter().filter(|(s, _)| hosts.admits_routes(&s.id.namespace, &s.hosts)).cloned().collect();
        let services = self.by_precedence(listener);
        match &listener.port {
            Some(port) => self.declared(port, &services, bound.as_ref(), bind_to_port, (hosts, &routes)),
            None => self.all_ports(&services, bound.as_ref(), bind_to_port, (hosts, &routes)),
        }
    }

    /// Adds a listener at the port that a `Sidecar` declares, for some services.
    fn declared(
        &mut self,
        port: &EgressPort,
        services: &[Seen],
        bound: Option<&Bound>,
        bind_to_port: bool,
        (hosts, routes): (&EgressHosts, &[L4Service]),
    ) {
        if !self.places.usable(bind_to_port, bound, port.number, port.protocol) {
            return;
        }
        for (service, ports) in services {
            self.add_at_addresses(Wanted {
                service,
                port: port.number,
                protocol: port.protocol,
                only_port: l4::single_port(ports, service),
                bound,
                bind_to_port,
                hosts,
                routes,
            });
        }
    }

    /// Adds a listener at each port of each service, except where one is declared.
    fn all_ports(
        &mut self,
        services: &[Seen],
        bound: Option<&Bound>,
        bind_to_port: bool,
        (hosts, routes): (&EgressHosts, &[L4Service]),
    ) {
        self.slots.values_mut().for_each(|slot| slot.locked = true);
        for (service, ports) in services {
            for port in service.ports.iter().filter(|p| ports.include(p.number)) {
                if !self.places.usable(bind_to_port, bound, port.number, port.protocol) {
                    continue;
                }
                self.add_port(Wanted {
                    service,
                    port: port.number,
                    protocol: port.protocol,
                    only_port: Some(port.number),
                    bound,
                    bind_to_port,
                    hosts,
                    routes,
                });
            }
        }
    }

    /// The services of a listener in order of precedence: those exported to the client's namespace only, those exported
    /// to some namespaces, those exported to all; the oldest first.
    fn by_precedence(&self, listener: &EgressListener) -> Vec<Seen> {
        let seen = listener.services.iter();
        let mut services: Vec<Seen> = seen
            .filter_map(|seen| Some(((*self.cx.get::<Services>(&seen.key)?).clone(), seen.ports.clone())))
            // An alias is called at its target's addresses.
            .filter(|(service, _)| service.resolution != Resolution::Alias)
            .collect();
        let namespace = &self.audience.scope.namespace;
        let rank = |service: &Service| match &service.export_to {
            ExportTo::All => 2,
            ExportTo::Namespaces(_) => u8::from(service.key.namespace != *namespace),
        };
        services.sort_by(|(a, _), (b, _)| (rank(a), a.created, &a.key).cmp(&(rank(b), b.created, &b.key)));
        services
    }

    /// Adds DNS caches to listeners that other services defined first.
    fn add_dns_caches(&mut self) {
        for (key, caches) in std::mem::take(&mut self.dns_caches) {
            let Some(slot) = self.slots.remove(&key) else { continue };
            let mut entry = slot.into_entry(self.cx);
            entry.add_dns_caches(&caches);
            let pending = Pending::Entry(entry);
            self.slots.insert(key, Slot { locked: false, pending });
        }
    }

    fn finish(mut self) -> Vec<Arc<ListenerSpec>> {
        self.add_dns_caches();
        let fallback = fallback(&self.client.unknown_cluster);
        let finish = |((primary, port), slot): ((Primary, u16), Slot)| match slot.pending {
            Pending::Plain(plain) => self.cx.get::<PlainListeners>(&plain).map(|row| (*row).clone()),
            Pending::Entry(entry) => {
                Some(Arc::new(entry.finish(primary.listener(port), &fallback, self.client.settings)))
            }
        };
        // Read in a fixed order: reads are compared with those of the previous run.
        let mut slots: Vec<((Primary, u16), Slot)> = self.slots.into_iter().collect();
        slots.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        slots.into_iter().filter_map(finish).collect()
    }
}

/// VirtualServices with TCP or TLS routes that a namespace sees: its own first, then those exported to it explicitly,
/// then public ones; the oldest first among equals.
fn visible_l4(cx: &Reads<'_>, namespace: &str) -> Vec<L4Service> {
    let ids = cx.get::<L4VirtualServices>(&());
    let ids = ids.iter().flat_map(|members| members.iter());
    let found = ids.filter_map(|id: &ObjectId| {
        let summary = cx.get::<VirtualServiceSummaries>(id)?;
        let rank = match &summary.export_to {
            ExportTo::All => 2,
            ExportTo::Namespaces(names) if !names.contains(namespace) => return None,
            ExportTo::Namespaces(_) => u8::from(&*id.namespace != namespace),
        };
        Some((rank, (*summary).clone(), (*cx.get::<L4Rules>(id)?).clone()))
    });
    let mut found: Vec<(u8, Arc<Summary>, Arc<Rules>)> = found.collect();
    found.sort_by(|(rank_a, a, _), (rank_b, b, _)| {
        (rank_a, a.created, &a.id.name, &a.id.namespace).cmp(&(rank_b, b.created, &b.id.name, &b.id.namespace))
    });
    found.into_iter().map(|(_, summary, rules)| (summary, rules)).collect()
}
