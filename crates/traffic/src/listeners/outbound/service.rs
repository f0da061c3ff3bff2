//! What one service port adds to the outbound listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::listener::{ChainKind, RouteSource};
use model::service::{Registry, Resolution, Service};
use names::Protocol;
use registry::inputs::{ServiceObject, ServiceObjectKey, ServiceObjects};

use super::headless::InstanceAddresses;
use super::place::Address;
use super::{Build, L4Service, special};
use crate::listeners::chain::Chain;
use crate::listeners::entry::{Bound, Entry, Meeting, Primary};
use crate::listeners::l4::{L4Match, Target};

/// A service port that wants a listener.
#[derive(Clone)]
pub(super) struct Wanted<'a> {
    pub(super) service: &'a Service,
    /// The listener's port; 0 for a Unix domain socket.
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// The port of the service that is meant, unless it is the listener's.
    pub(super) only_port: Option<u16>,
    /// Where the listener is bound, unless the service's address decides.
    pub(super) bound: Option<Bound>,
    pub(super) bind_to_port: bool,
    /// VirtualServices with TCP or TLS routes that the egress listener lets in.
    pub(super) routes: &'a [L4Service],
}

/// A wanted listener that has found its place.
struct Placed<'a> {
    wanted: Wanted<'a>,
    bound: Bound,
    name: Arc<str>,
    /// Destination addresses that tell the service from others at a shared listener.
    subnets: Vec<IpNet>,
    /// Nothing but the server name tells TLS connections to the service from others.
    by_name: bool,
}

impl Build<'_> {
    /// Adds a port of a service. A service without an address whose clients dial its instances gets a listener for each of
    /// them, if it is not HTTP: HTTP requests say what they are for.
    pub(super) fn add_port(&mut self, wanted: Wanted<'_>) {
        let service = wanted.service;
        let dialled = service.resolution == Resolution::Passthrough && service.addresses.is_empty();
        if wanted.bound.is_some() || !dialled || wanted.protocol.is_http() || wanted.protocol == Protocol::Udp {
            return self.add_at_addresses(wanted);
        }
        let addresses = self.cx.get::<InstanceAddresses>(&(service.key.clone(), wanted.port));
        let addresses = addresses.map(|row| row.to_vec()).unwrap_or_default();
        if addresses.is_empty() && !self.has_instances(service) {
            return self.add_at_addresses(wanted);
        }
        for address in addresses {
            if !self.places.has_family(address) {
                continue;
            }
            let bound = Bound {
                primary: Primary::Ip(address),
                additional: Vec::new(),
            };
            self.add(
                Wanted {
                    bound: Some(bound),
                    ..wanted.clone()
                },
                &Address::Unspecified,
            );
        }
    }

    /// Adds a port of a service at each of its addresses.
    pub(super) fn add_at_addresses(&mut self, wanted: Wanted<'_>) {
        if wanted.protocol == Protocol::Udp {
            return;
        }
        let addresses = self.places.addresses(wanted.service);
        // HTTP services share a listener: one address stands for all.
        let count = if wanted.protocol.is_http() { 1 } else { addresses.len() };
        for address in &addresses[..count] {
            self.add(wanted.clone(), address);
        }
    }

    /// Whether a service without endpoints may have some at another time. A wildcard listener in the meantime would get
    /// in the way of others. What is left is a ServiceEntry that only names a port of anything.
    fn has_instances(&self, service: &Service) -> bool {
        if service.registry == Registry::Kubernetes {
            return true;
        }
        let key = ServiceObjectKey {
            registry: service.registry,
            id: service.object.clone(),
        };
        let object = self.cx.get::<ServiceObjects>(&key);
        object.is_some_and(|o| matches!(&*o, ServiceObject::Entry(e) if e.spec.workload_selector.is_some()))
    }

    fn add(&mut self, wanted: Wanted<'_>, address: &Address) {
        let Some(placed) = self.place(wanted, address) else {
            return;
        };
        let key = (placed.bound.primary.clone(), placed.wanted.port);
        let protocol = placed.wanted.protocol;
        let meeting = match self.entries.get(&key) {
            Some(entry) if entry.locked => return,
            // A proxy for everything is whatever is asked through it.
            Some(_) | None if protocol == Protocol::HttpProxy => Meeting::Replaced,
            Some(entry) => entry.meets(protocol),
            None => Meeting::Replaced,
        };
        match meeting {
            Meeting::Shared | Meeting::Refused => {}
            Meeting::Replaced => {
                let chains = self.chains(&placed);
                let inspected = chains.iter().any(|c| c.inspected);
                let entry = Entry {
                    bound: placed.bound,
                    bind_to_port: placed.wanted.bind_to_port,
                    port: placed.wanted.port,
                    protocol: if inspected { Protocol::Unsupported } else { protocol },
                    chains,
                    locked: false,
                };
                self.entries.insert(key, entry);
            }
            Meeting::Sniffed => {
                let chains = self.chains(&placed);
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.merge(chains);
                    entry.protocol = Protocol::Unsupported;
                }
            }
            Meeting::Merged => {
                let chains = self.tcp_chains(&placed);
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.merge(chains);
                }
            }
        }
    }

    fn place<'w>(&self, wanted: Wanted<'w>, address: &Address) -> Option<Placed<'w>> {
        let (bound, subnets) = match (&wanted.bound, address) {
            (Some(bound), _) => (bound.clone(), Vec::new()),
            (None, _) if wanted.protocol.is_http() => (self.places.wildcard(), Vec::new()),
            (None, Address::Unspecified) => (self.places.wildcard(), Vec::new()),
            (None, Address::Hosts(hosts)) => (Bound::to(hosts.iter().copied())?, Vec::new()),
            (None, Address::Net(net)) => (self.places.wildcard(), vec![*net]),
        };
        let shared = self.places.is_wildcard(&bound);
        if shared && self.places.is_reserved(wanted.port) {
            return None;
        }
        let by_name = match address {
            Address::Net(_) => true,
            Address::Unspecified => shared,
            Address::Hosts(_) => false,
        };
        let name = bound.primary.listener(wanted.port);
        Some(Placed {
            wanted,
            bound,
            name,
            subnets,
            by_name,
        })
    }

    fn chains(&self, placed: &Placed<'_>) -> Vec<Chain> {
        match placed.wanted.protocol {
            p if p.is_http() => vec![self.http_chain(placed)],
            p if p.is_tcp() => self.tcp_chains(placed),
            _ => {
                let mut chains = self.tcp_chains(placed);
                chains.push(self.http_chain(placed));
                chains
            }
        }
    }

    fn http_chain(&self, placed: &Placed<'_>) -> Chain {
        let Wanted {
            service,
            port,
            protocol,
            ..
        } = &placed.wanted;
        let shared = self.places.is_wildcard(&placed.bound);
        let detected = protocol.is_unsupported();
        let table: Arc<str> = match &placed.bound.primary {
            Primary::Unix(bind) if *port == 0 => bind.clone(),
            // What is detected at an address of the service's own is for this service only.
            _ if detected && !shared => format!("{}:{port}", service.key.hostname).into(),
            _ => port.to_string().into(),
        };
        let http = special::http(self.audience, &placed.name, *protocol, RouteSource::Discovered(table));
        // At a shared listener there may be connections to anything, so that HTTP has to be found out there, too.
        let inspected = detected || shared && *protocol != Protocol::HttpProxy;
        Chain {
            inspected,
            ..Chain::any(ChainKind::Http(http))
        }
    }

    fn tcp_chains(&self, placed: &Placed<'_>) -> Vec<Chain> {
        if placed.wanted.protocol.is_tls() {
            self.tls_routes(placed)
        } else {
            self.tcp_routes(placed)
        }
    }

    /// TLS routes of VirtualServices for the service's host; without any, the service itself.
    fn tls_routes(&self, placed: &Placed<'_>) -> Vec<Chain> {
        let port = placed.wanted.port;
        let mut chains = Vec::new();
        // Conditions may differ in what is decided here, and be one for Envoy: the first of them counts.
        let mut seen: BTreeSet<(&[Arc<str>], &[IpNet])> = BTreeSet::new();
        for (summary, rules) in self.routes_for(placed) {
            for (condition, targets) in rules
                .tls
                .iter()
                .flat_map(|r| r.matches.iter().map(move |m| (m, &r.targets)))
            {
                if !self.holds(condition, port) || !seen.insert((&condition.sni, &condition.subnets)) {
                    continue;
                }
                let own = !condition.subnets.is_empty() && port > 0;
                let subnets = if own { &condition.subnets } else { &placed.subnets };
                chains.extend(self.routed(summary.id.clone(), targets, port).map(|kind| Chain {
                    sni: condition.sni.clone(),
                    subnets: subnets.clone(),
                    ..Chain::any(kind)
                }));
            }
        }
        if chains.is_empty() {
            let sni = if placed.by_name {
                vec![placed.wanted.service.key.hostname.as_arc().clone()]
            } else {
                Vec::new()
            };
            chains.push(Chain {
                sni,
                ..self.to_service(placed)
            });
        }
        chains
    }

    /// TCP routes of VirtualServices for the service's host, up to the first that takes everything; if none does, the
    /// service itself comes last.
    fn tcp_routes(&self, placed: &Placed<'_>) -> Vec<Chain> {
        let port = placed.wanted.port;
        let mut chains: Vec<Chain> = Vec::new();
        for (summary, rules) in self.routes_for(placed) {
            for rule in &rules.tcp {
                let held: Vec<&L4Match> = rule.matches.iter().filter(|m| self.holds(m, port)).collect();
                let any = rule.matches.is_empty() || held.iter().any(|m| m.subnets.is_empty() || port == 0);
                if !any && held.is_empty() {
                    continue;
                }
                let Some(kind) = self.routed(summary.id.clone(), &rule.targets, port) else {
                    continue;
                };
                if any {
                    chains.push(Chain {
                        subnets: placed.subnets.clone(),
                        ..Chain::any(kind)
                    });
                    return chains;
                }
                let subnets = held.iter().flat_map(|m| m.subnets.iter().copied()).collect();
                chains.push(Chain {
                    subnets,
                    ..Chain::any(kind)
                });
            }
        }
        let service = self.to_service(placed);
        if !chains.iter().any(|c| c.conflicts_with(&service)) {
            chains.push(service);
        }
        chains
    }

    fn routes_for<'s>(&self, placed: &'s Placed<'_>) -> impl Iterator<Item = &'s L4Service> + use<'s> {
        let host = &placed.wanted.service.key.hostname;
        placed
            .wanted
            .routes
            .iter()
            .filter(move |(summary, _)| summary.hosts.iter().any(|h| h.matches(host)))
    }

    fn holds(&self, condition: &L4Match, port: u16) -> bool {
        condition.guard.admits(port, None, &self.audience.source)
    }

    fn routed(&self, id: model::service::ObjectId, targets: &[Target], port: u16) -> Option<ChainKind> {
        self.router.to_targets(&id, targets, port).map(ChainKind::Tcp)
    }

    fn to_service(&self, placed: &Placed<'_>) -> Chain {
        let Wanted {
            service,
            only_port,
            port,
            ..
        } = &placed.wanted;
        let tcp = self.router.to_service(service, *only_port, *port);
        Chain {
            subnets: placed.subnets.clone(),
            ..Chain::any(ChainKind::Tcp(tcp))
        }
    }
}
