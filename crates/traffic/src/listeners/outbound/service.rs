//! Adds service ports to outbound listeners.

use std::sync::Arc;

use ipnet::IpNet;
use model::listener::{ChainKind, DnsCache, TcpChain};
use model::service::{ObjectId, Registry, Resolution, Service};
use names::Protocol;
use registry::inputs::{ServiceObject, ServiceObjectKey, ServiceObjects};

use super::attached::Attached;
use super::headless::{InstanceAddresses, Instances};
use super::place::Address;
use super::plain::Plain;
use super::{Build, L4Service, Pending, Slot};
use crate::hosts::EgressHosts;
use crate::listeners::chain::Chain;
use crate::listeners::entry::{Bound, Meeting, Primary};
use crate::listeners::l4::{L4Match, Target};
use crate::routes::domains;

/// A service port to add.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) service: &'a Service,
    /// The listener's port; 0 for a Unix domain socket.
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// The service's port, unless it is the listener's.
    pub(super) only_port: Option<u16>,
    /// The bind address, unless the service's address decides.
    pub(super) bound: Option<&'a Bound>,
    pub(super) bind_to_port: bool,
    /// The hosts that the egress listener imports.
    pub(super) hosts: &'a EgressHosts,
    /// VirtualServices with TCP or TLS routes that the egress listener imports.
    pub(super) routes: &'a [L4Service],
}

/// A service port at its bind address.
struct Placed<'a> {
    plain: Plain,
    /// Destination addresses that identify the service at a shared listener.
    subnets: Vec<IpNet>,
    /// VirtualServices with TCP or TLS routes for the service's host, without those that yield to `attached`.
    routes: Vec<&'a L4Service>,
    /// TCPRoutes and TLSRoutes of the service.
    attached: Option<Attached>,
}

impl Build<'_> {
    /// Adds a port of a service. A headless TCP service gets a listener for each instance; HTTP requests name their
    /// host.
    pub(super) fn add_port(&mut self, wanted: Wanted<'_>) {
        let service = wanted.service;
        let dialled = service.resolution == Resolution::Passthrough && service.addresses.is_empty();
        if wanted.bound.is_some() || !dialled || wanted.protocol.is_http() || wanted.protocol == Protocol::Udp {
            return self.add_at_addresses(wanted);
        }
        let addresses = self.cx.get::<InstanceAddresses>(&Instances {
            service: service.key.clone(),
            port: wanted.port,
            network: self.facts.network.clone(),
            cluster: self.audience.scope.cluster.clone(),
        });
        let addresses = addresses.map(|row| (*row).clone()).unwrap_or_default();
        if addresses.is_empty() && !self.has_instances(service) {
            return self.add_at_addresses(wanted);
        }
        for address in addresses.iter() {
            if !self.places.has_family(*address) {
                continue;
            }
            let bound = Bound { primary: Primary::Ip(*address), additional: Vec::new() };
            self.add(Wanted { bound: Some(&bound), ..wanted }, &Address::Unspecified);
        }
    }

    /// Adds a port of a service at each of its addresses.
    pub(super) fn add_at_addresses(&mut self, wanted: Wanted<'_>) {
        if wanted.protocol == Protocol::Udp {
            return;
        }
        if wanted.protocol.is_http() {
            // HTTP services share a listener, whatever their addresses.
            if wanted.service.resolution == Resolution::DynamicDns {
                self.note_dns_cache(&wanted);
            }
            if !self.is_served(&wanted) {
                self.add(wanted, &Address::Unspecified);
            }
            return;
        }
        for address in self.places.addresses(wanted.service) {
            self.add(wanted, &address);
        }
    }

    /// Records the DNS cache of a dynamically resolved service for the shared listener.
    fn note_dns_cache(&mut self, wanted: &Wanted<'_>) {
        let bound = wanted.bound.unwrap_or(&self.wildcard);
        let caches = self.dns_caches.entry((bound.primary.clone(), wanted.port)).or_default();
        caches.push(DnsCache {
            host: Some(wanted.service.key.hostname.as_arc().clone()),
            families: self.audience.ip,
            resolver: None,
        });
    }

    /// Whether an HTTP port adds nothing to an existing listener, which is the common case.
    fn is_served(&self, wanted: &Wanted<'_>) -> bool {
        let bound = wanted.bound.unwrap_or(&self.wildcard);
        let slot = self.slots.get(&(bound.primary.clone(), wanted.port));
        slot.is_some_and(|slot| slot.locked || wanted.protocol != Protocol::HttpProxy && !slot.protocol().is_tcp())
    }

    /// Whether a service without endpoints may have some later. Until then a wildcard listener would conflict with
    /// others. Others are ServiceEntries that only declare a port.
    fn has_instances(&self, service: &Service) -> bool {
        if service.registry == Registry::Kubernetes {
            return true;
        }
        let key = ServiceObjectKey {
            registry: service.registry,
            cluster: service.cluster.clone(),
            id: service.object.clone(),
        };
        let object = self.cx.get::<ServiceObjects>(&key);
        object.is_some_and(|o| matches!(&*o, ServiceObject::Entry(e) if e.spec.workload_selector.is_some()))
    }

    fn add(&mut self, wanted: Wanted<'_>, address: &Address) {
        let Some(placed) = self.place(wanted, address) else {
            return;
        };
        let key = (placed.plain.bound.primary.clone(), placed.plain.port);
        let protocol = placed.plain.protocol;
        let meeting = match self.slots.get(&key) {
            Some(slot) if slot.locked => return,
            // An HTTP proxy port serves all hosts.
            Some(_) if protocol == Protocol::HttpProxy => Meeting::Replaced,
            Some(slot) => slot.meets(protocol),
            None => Meeting::Replaced,
        };
        let chains = match meeting {
            Meeting::Shared | Meeting::Refused => return,
            Meeting::Replaced => {
                let pending = match &placed.routes[..] {
                    [] if placed.subnets.is_empty() && placed.attached.is_none() => Pending::Plain(placed.plain),
                    _ => Pending::Entry(placed.plain.entry_with(self.chains(&placed))),
                };
                self.slots.insert(key, Slot { locked: false, pending });
                return;
            }
            Meeting::Sniffed => self.chains(&placed),
            Meeting::Merged => self.tcp_chains(&placed),
        };
        let Some(slot) = self.slots.remove(&key) else { return };
        let mut entry = slot.into_entry(self.cx);
        entry.merge(chains);
        if meeting == Meeting::Sniffed {
            entry.protocol = Protocol::Unsupported;
        }
        self.slots.insert(key, Slot { locked: false, pending: Pending::Entry(entry) });
    }

    fn place<'w>(&self, wanted: Wanted<'w>, address: &Address) -> Option<Placed<'w>> {
        let (bound, subnets) = match (wanted.bound, address) {
            (Some(bound), _) => (bound.clone(), Vec::new()),
            (None, _) if wanted.protocol.is_http() => (self.wildcard.clone(), Vec::new()),
            (None, Address::Unspecified) => (self.wildcard.clone(), Vec::new()),
            (None, Address::Hosts(hosts)) => (Bound::to(hosts.iter().copied())?, Vec::new()),
            (None, Address::Net(net)) => (self.wildcard.clone(), vec![*net]),
        };
        let shared = bound.primary == self.wildcard.primary;
        if shared && self.places.is_reserved(wanted.port) {
            return None;
        }
        let by_name = match address {
            Address::Net(_) => true,
            Address::Unspecified => shared,
            // The address does not tell which of the names is meant.
            Address::Hosts(_) => wanted.service.resolution == Resolution::DynamicDns,
        };
        let Wanted { service, port, protocol, .. } = wanted;
        let opaque = !protocol.is_http();
        let service_port = wanted.only_port.unwrap_or(port);
        let attached = match opaque && self.has_routes {
            true => Attached::of(self.cx, &self.audience.scope, &service.key, service_port),
            false => None,
        };
        let routes = wanted.routes.iter().filter(|(s, _)| {
            let yields = || attached.as_ref().is_some_and(|attached| attached.precede(s, &service.key));
            opaque && s.hosts.iter().any(|h| h.matches(&service.key.hostname)) && !yields()
        });
        let routes = routes.collect();
        let plain = Plain {
            service: service.key.clone(),
            port,
            protocol,
            service_port,
            bound,
            bind_to_port: wanted.bind_to_port,
            shared,
            names: match by_name && protocol.is_tls() {
                true => self.server_names(wanted),
                false => Arc::from([]),
            },
            dns: (service.resolution == Resolution::DynamicDns).then_some(self.audience.ip),
            policy: if opaque { self.router.policy_key(Some(&service.key)) } else { None },
            client: self.client.clone(),
        };
        Some(Placed { plain, subnets, routes, attached })
    }

    /// The SNI of a service where its address does not identify it: its hostname and aliases in all forms.
    fn server_names(&self, wanted: Wanted<'_>) -> Arc<[Arc<str>]> {
        let (key, client) = (&wanted.service.key, &self.audience.scope.namespace);
        let aliases = self.aliases.of(&key.hostname).iter();
        let aliases = aliases.filter(|alias| wanted.hosts.admits_service(&key.namespace, alias));
        let forms = aliases.flat_map(|alias| {
            let local = domains::local_namespace(alias.as_str()) == Some(client);
            let short = domains::short_forms(alias.as_str(), self.domain, local);
            std::iter::once(alias.as_arc().clone()).chain(short.into_iter().map(Arc::from))
        });
        std::iter::once(key.hostname.as_arc().clone()).chain(forms).collect()
    }

    fn chains(&self, placed: &Placed<'_>) -> Vec<Chain> {
        match placed.plain.protocol {
            p if p.is_http() => vec![placed.plain.http()],
            p if p.is_tcp() => self.tcp_chains(placed),
            _ => {
                let mut chains = self.tcp_chains(placed);
                chains.push(placed.plain.http());
                chains
            }
        }
    }

    fn tcp_chains(&self, placed: &Placed<'_>) -> Vec<Chain> {
        if placed.plain.protocol.is_tls() { self.tls_routes(placed) } else { self.tcp_routes(placed) }
    }

    /// Filter chains of the TLS routes for the service's host; without any, of the service.
    fn tls_routes(&self, placed: &Placed<'_>) -> Vec<Chain> {
        let port = placed.plain.port;
        let mut chains = Vec::new();
        for (summary, rules) in &placed.routes {
            for (condition, targets) in rules.tls.iter().flat_map(|r| r.matches.iter().map(move |m| (m, &r.targets))) {
                if !self.holds(condition, port) {
                    continue;
                }
                let own = !condition.subnets.is_empty() && port > 0;
                let subnets = if own { &condition.subnets } else { &placed.subnets };
                let sni = condition.sni.clone();
                let kind = self.routed(&summary.id, targets, &placed.plain);
                chains.extend(kind.map(|kind| Chain { sni, subnets: subnets.clone(), ..Chain::any(kind) }));
            }
        }
        if chains.is_empty() || placed.attached.is_some() {
            chains.extend(self.others(placed));
        }
        chains
    }

    /// Filter chains of the TCP routes for the service's host, up to the first that matches everything; else the
    /// service's comes last.
    fn tcp_routes(&self, placed: &Placed<'_>) -> Vec<Chain> {
        let port = placed.plain.port;
        let mut chains: Vec<Chain> = Vec::new();
        for (summary, rules) in &placed.routes {
            for rule in &rules.tcp {
                let held: Vec<&L4Match> = rule.matches.iter().filter(|m| self.holds(m, port)).collect();
                let any = rule.matches.is_empty() || held.iter().any(|m| m.subnets.is_empty() || port == 0);
                if !any && held.is_empty() {
                    continue;
                }
                let Some(kind) = self.routed(&summary.id, &rule.targets, &placed.plain) else {
                    continue;
                };
                if any {
                    chains.push(Chain { subnets: placed.subnets.clone(), ..Chain::any(kind) });
                    return chains;
                }
                let subnets = held.iter().flat_map(|m| m.subnets.iter().copied()).collect();
                chains.push(Chain { subnets, ..Chain::any(kind) });
            }
        }
        chains.extend(self.others(placed));
        chains
    }

    fn holds(&self, condition: &L4Match, port: u16) -> bool {
        condition.guard.admits(port, None, &self.facts.source)
    }

    fn routed(&self, id: &ObjectId, targets: &[Target], plain: &Plain) -> Option<ChainKind> {
        let tcp = self.router.to_targets(id, targets, plain.port)?;
        Some(ChainKind::Tcp(TcpChain { origin: Some(id.clone()), ..tcp.speaking(plain.protocol) }))
    }

    /// The filter chains of connections that no VirtualService routes.
    fn others(&self, placed: &Placed<'_>) -> Vec<Chain> {
        let Placed { plain, subnets, attached, .. } = placed;
        match attached {
            Some(attached) => attached.chains(&self.router, plain, subnets),
            None => vec![Chain { subnets: subnets.clone(), ..plain.tcp(self.cx) }],
        }
    }
}
