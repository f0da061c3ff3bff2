//! Converts TCP and TLS routes of VirtualServices that are bound to converted Gateways.
//!
//! At a port for connections, the first TCP rule that applies gets them all. At a port that passes TLS through, each match of a TLS rule
//! gets the connections with its server names, unless an earlier match has one of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::l4_route::{L4RouteRule, TcpRoute, TlsRoute};
use config::gateway_api::reference::{BackendRef, ParentReference};
use config::istio::{L4MatchAttributes, RouteDestination, TcpRoute as IstioTcpRoute, VirtualService};
use config::{FieldPath, Kind, Object, ObjectKey};
use model::service::ObjectId;
use names::Hostname;

use crate::backend;
use crate::context::Context;
use crate::gateway::Placed;
use crate::listener::{Carries, Port, is_hostname};
use crate::routes::Names;
use crate::rule::Rules;

/// A place of connections: a listener of a converted Gateway.
type Place<'g> = (&'g Placed, &'g Port);

/// A route in progress.
struct Part<'g> {
    /// The server names; none for TCP.
    hostnames: Vec<Arc<str>>,
    backends: Vec<BackendRef>,
    places: Vec<Place<'g>>,
}

/// Converts the TCP and TLS routes of a VirtualService.
pub(crate) fn convert(cx: &mut Context<'_>, object: &Object<VirtualService>, gateways: &[&Placed]) {
    let source = Source { key: &object.key(), object };
    let tcp = source.tcp(cx, gateways);
    let tls = source.tls(cx, gateways);
    let namespace = &object.meta.namespace;
    let rules = |part: &Part<'_>| vec![L4RouteRule { backend_refs: part.backends.clone(), ..L4RouteRule::default() }];
    let mut names = Names::of(object.meta.name.clone());
    for part in &tcp {
        let route = TcpRoute { parent_refs: parents(part, namespace), rules: rules(part), ..TcpRoute::default() };
        let name = names.take(cx, Kind::TcpRoute, namespace);
        cx.add(source.key, Object::new(namespace.clone(), name, route));
    }
    let mut names = Names::of(object.meta.name.clone());
    for part in &tls {
        let (parent_refs, hostnames) = (parents(part, namespace), part.hostnames.clone());
        let route = TlsRoute { parent_refs, hostnames, rules: rules(part), ..TlsRoute::default() };
        let name = names.take(cx, Kind::TlsRoute, namespace);
        cx.add(source.key, Object::new(namespace.clone(), name, route));
    }
}

/// The listeners of a part.
fn parents(part: &Part<'_>, namespace: &Arc<str>) -> Vec<ParentReference> {
    let one = |(placed, port): &Place<'_>| {
        let id = placed.id.as_ref()?;
        Some(ParentReference {
            namespace: (id.namespace != *namespace).then(|| id.namespace.clone()),
            name: id.name.clone(),
            section_name: Some(port.name.clone()),
            ..ParentReference::default()
        })
    };
    part.places.iter().filter_map(one).collect()
}

/// A VirtualService.
struct Source<'s> {
    key: &'s ObjectKey,
    object: &'s Object<VirtualService>,
}

impl<'g> Source<'_> {
    /// The routes of TCP rules.
    fn tcp(&self, cx: &mut Context<'_>, gateways: &[&'g Placed]) -> Vec<Part<'g>> {
        let mut parts = Vec::new();
        let mut used = BTreeSet::new();
        for (placed, port) in self.places(gateways, Carries::Connections) {
            let applies = |(_, rule): &(usize, &IstioTcpRoute)| {
                let here = |one: &L4MatchAttributes| self.admits(&one.gateways, one.port, placed, port);
                !rule.route.is_empty() && (rule.matches.is_empty() || rule.matches.iter().any(here))
            };
            let Some((index, rule)) = self.object.spec.tcp.iter().enumerate().find(applies) else { continue };
            used.insert(index);
            let at = FieldPath::spec().field("tcp").index(index);
            for (number, one) in rule.matches.iter().enumerate() {
                let at = at.field("match").index(number);
                let source = !one.source_labels.is_empty() || !one.source_namespace.is_empty();
                self.unconditional(cx, &at, &one.destination_subnets, source);
            }
            let backends = self.backends(cx, Kind::TcpRoute, &rule.route, &at, (placed, port));
            add(&mut parts, Vec::new(), backends, (placed, port));
        }
        self.unused(cx, "tcp", self.object.spec.tcp.len(), &used);
        parts
    }

    /// The routes of TLS rules.
    fn tls(&self, cx: &mut Context<'_>, gateways: &[&'g Placed]) -> Vec<Part<'g>> {
        let mut parts = Vec::new();
        let mut used = BTreeSet::new();
        // The names that earlier matches have, by Gateway and port.
        let mut known: BTreeSet<(&ObjectId, u16, Arc<str>)> = BTreeSet::new();
        let places = self.places(gateways, Carries::Passthrough);
        let ports: BTreeSet<(&ObjectId, u16)> =
            places.iter().map(|(placed, port)| (&placed.source, port.number)).collect();
        for (gateway, number) in ports {
            let here = places.iter().filter(|(placed, port)| placed.source == *gateway && port.number == number);
            let here: Vec<Place<'g>> = here.copied().collect();
            let Some(&first) = here.first() else { continue };
            for (index, rule) in self.object.spec.tls.iter().enumerate().filter(|(_, rule)| !rule.route.is_empty()) {
                let rule_at = FieldPath::spec().field("tls").index(index);
                for (number_of_match, one) in rule.matches.iter().enumerate() {
                    let at = rule_at.field("match").index(number_of_match);
                    let taken = one.sni_hosts.iter().any(|name| known.contains(&(gateway, number, name.clone())));
                    if taken || !self.admits(&one.gateways, one.port, first.0, first.1) {
                        continue;
                    }
                    used.insert(index);
                    known.extend(one.sni_hosts.iter().map(|name| (gateway, number, name.clone())));
                    let source = !one.source_labels.is_empty() || !one.source_namespace.is_empty();
                    self.unconditional(cx, &at, &one.destination_subnets, source);
                    let backends = self.backends(cx, Kind::TlsRoute, &rule.route, &rule_at, first);
                    for (hostnames, place) in self.hostnames(cx, &at, &one.sni_hosts, &here) {
                        add(&mut parts, hostnames, backends.clone(), place);
                    }
                }
            }
        }
        self.unused(cx, "tls", self.object.spec.tls.len(), &used);
        parts
    }

    /// The listeners of a kind whose hosts overlap those of the VirtualService.
    fn places(&self, gateways: &[&'g Placed], carries: Carries) -> Vec<Place<'g>> {
        let all = gateways.iter().copied();
        let all = all.flat_map(|placed: &'g Placed| placed.listeners.iter().map(move |port| (placed, port)));
        let hosts: Vec<Hostname> =
            self.object.spec.hosts.iter().filter_map(|host| Hostname::parse(host).ok()).collect();
        let overlaps = |port: &Port| {
            let mut theirs = port.hosts.iter().filter_map(|host| Hostname::parse(host).ok());
            theirs.any(|theirs| hosts.iter().any(|own| own.matches(&theirs)))
        };
        all.filter(|(_, port)| port.carries == carries && overlaps(port)).collect()
    }

    /// Whether a match applies at a port of a Gateway.
    fn admits(&self, gateways: &[Arc<str>], number: u32, placed: &Placed, port: &Port) -> bool {
        let name = format!("{}/{}", placed.source.namespace, placed.source.name);
        let names = |gateway: &Arc<str>| *VirtualService::full_gateway(gateway, &self.object.meta.namespace) == *name;
        (gateways.is_empty() || gateways.iter().any(names)) && (number == 0 || number == u32::from(port.number))
    }

    /// The server names of a match at each listener that has some of them.
    fn hostnames(
        &self,
        cx: &mut Context<'_>,
        at: &FieldPath,
        names: &[Arc<str>],
        places: &[Place<'g>],
    ) -> Vec<(Vec<Arc<str>>, Place<'g>)> {
        let serves = |(_, port): &Place<'g>, name: &Hostname| {
            let mut hosts = port.hosts.iter().filter_map(|host| Hostname::parse(host).ok());
            hosts.any(|host| host.matches(name))
        };
        let mut valid: Vec<Hostname> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let at = at.field("sniHosts").index(index);
            let hint = "Use a DNS name, or `*.` and a DNS name";
            let Some(host) = Hostname::parse(name).ok().filter(|_| is_hostname(name)) else {
                cx.lost(self.key, at, format!("{name} is no hostname of a TLSRoute; it is left out"), hint);
                continue;
            };
            match places.iter().any(|place| serves(place, &host)) {
                true => valid.push(host),
                false => cx.lost(
                    self.key,
                    at,
                    format!("no listener has the server name {name}; connections with it are closed"),
                    "Add it to the hosts of a server",
                ),
            }
        }
        let names: Vec<Arc<str>> = valid.iter().map(|name| name.as_arc().clone()).collect();
        let here = places.iter().filter(|place| valid.iter().any(|name| serves(place, name)));
        here.map(|place| (names.clone(), *place)).collect()
    }

    /// Reports conditions that have no effect at gateways.
    fn unconditional(&self, cx: &mut Context<'_>, at: &FieldPath, subnets: &[Arc<str>], source: bool) {
        let set = [("destinationSubnets", !subnets.is_empty()), ("sourceLabels", source)];
        for (field, _) in set.iter().filter(|(_, is_set)| *is_set) {
            cx.note(self.key, at.field(*field), format!("{field} has no effect at a gateway"), "");
        }
    }

    /// Reports rules that no connection to a gateway takes.
    fn unused(&self, cx: &mut Context<'_>, field: &'static str, count: usize, used: &BTreeSet<usize>) {
        for index in (0..count).filter(|index| !used.contains(index)) {
            let at = FieldPath::spec().field(field).index(index);
            cx.note(self.key, at, "no connection to these Gateways takes this route; it is left out", "");
        }
    }

    fn backends(
        &self,
        cx: &mut Context<'_>,
        kind: Kind,
        route: &[RouteDestination],
        at: &FieldPath,
        (placed, port): Place<'g>,
    ) -> Vec<BackendRef> {
        let namespace = &self.object.meta.namespace;
        let mut rules = Rules {
            cx,
            object: self.key,
            kind,
            namespace,
            gateway: &placed.source,
            port: port.number,
            secure: port.secure,
        };
        backend::connections(&mut rules, route, &at.field("route"))
    }
}

/// Adds a listener to the route with these names and backends.
fn add<'g>(parts: &mut Vec<Part<'g>>, hostnames: Vec<Arc<str>>, backends: Vec<BackendRef>, place: Place<'g>) {
    if backends.is_empty() {
        return;
    }
    match parts.iter_mut().find(|part| part.hostnames == hostnames && part.backends == backends) {
        Some(part) => part.places.push(place),
        None => parts.push(Part { hostnames, backends, places: vec![place] }),
    }
}
