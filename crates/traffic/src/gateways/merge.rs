//! Merges servers of several `Gateway` objects with one address and port into one listener.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::istio::{self, ServerTlsMode, ServerTlsSettings};
use flow::Reads;
use gateway_api::merged::GatewayPlans;
use model::audience::GatewaySet;
use model::kube::{ListenerId, ListenerOwner};
use model::service::ObjectId;
use names::{Hostname, Protocol};
use registry::Gateways;

use super::kube;
use super::server::{Server, ServerHost, ServerOwner, ServerTls};

flow::rule! {
    /// The merged gateway of each set.
    pub MergedGateways: GatewaySet => Arc<MergedGateway> = "merged gateways", derive_merged_gateways;
}

/// The merged servers of a set of gateways.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MergedGateway {
    /// The ports, in the order in which they are declared first.
    pub ports: Vec<MergedPort>,
    /// Rejected servers with reasons.
    pub unserved: Vec<Unserved>,
    /// Listeners of the Gateway API that are rejected, because of servers or of older Gateways.
    pub unplaced: Vec<ListenerId>,
    tables: Tables,
    /// The ports of the workload at which each object has servers.
    numbers: BTreeMap<ServerOwner, BTreeSet<u16>>,
}

/// The route tables of the HTTP and HTTPS servers.
#[derive(Clone, PartialEq, Debug, Default)]
struct Tables {
    /// The position of each table's port, and that of its server there if the port has a table for each.
    places: BTreeMap<Arc<str>, (usize, Option<usize>)>,
    /// The tables of the listeners of each object of the Gateway API.
    by_owner: BTreeMap<ListenerOwner, BTreeSet<Arc<str>>>,
}

/// An address and port with its servers.
#[derive(Clone, PartialEq, Debug)]
pub struct MergedPort {
    /// The port of the workload.
    pub number: u16,
    /// The bind address; none for all.
    pub bind: Option<Arc<str>>,
    /// The kind of servers.
    pub kind: PortKind,
    /// The servers, in order of precedence.
    pub servers: Vec<Server>,
    /// The index of the port with the same address and number: listeners of the Gateway API may have plain-text HTTP beside TLS.
    pub beside: Option<usize>,
}

/// The common properties of a port's servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortKind {
    /// Plain-text HTTP: the servers share a route table.
    Http,
    /// Opaque TCP: there is one server.
    Opaque,
    /// TLS: servers differ by SNI. Those that terminate TLS for HTTP have their own route tables.
    Tls,
    /// UDP: there is one server.
    Udp,
}

/// A rejected server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unserved {
    /// The gateway.
    pub gateway: ObjectId,
    /// Its index.
    pub server: usize,
    /// The reason.
    pub reason: UnservedReason,
}

/// Reason why a server is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnservedReason {
    /// It has no port, or an invalid one.
    NoPort,
    /// An older server has the same address and port and cannot share them.
    Conflict,
    /// An older TLS server of the same address and port has one of its hosts.
    DuplicateHost,
    /// An older server of the same gateway and port speaks HTTPS, too, and has the same port name, which names the
    /// route table.
    DuplicateName,
}

impl MergedGateway {
    /// The port that has a route table, and the servers that share the table.
    pub(super) fn table(&self, name: &str) -> Option<(&MergedPort, &[Server])> {
        let (port, server) = self.tables.places.get(name)?;
        let port = self.ports.get(*port)?;
        let servers = match server {
            None => &port.servers[..],
            Some(at) => port.servers.get(*at..=*at)?,
        };
        Some((port, servers))
    }

    /// The route tables of the listeners of an object of the Gateway API.
    pub fn tables_of(&self, owner: &ListenerOwner) -> impl Iterator<Item = &Arc<str>> {
        self.tables.by_owner.get(owner).into_iter().flatten()
    }

    /// The ports of the workload at which an object has servers; `None` for an object without any.
    pub fn ports_of(&self, owner: &ServerOwner) -> Option<&BTreeSet<u16>> {
        self.numbers.get(owner)
    }

    /// The objects that have servers at this port of the workload.
    pub fn owners_at(&self, port: u16) -> impl Iterator<Item = &ServerOwner> {
        self.numbers.iter().filter(move |(_, ports)| ports.contains(&port)).map(|(owner, _)| owner)
    }

    /// Whether a listener has this UDP port, so that it cannot be used for HTTP/3.
    pub fn has_udp(&self, port: u16) -> bool {
        let mut servers = self.ports.iter().filter(|port| port.kind == PortKind::Udp).flat_map(|port| &port.servers);
        servers.any(|server| server.port == port)
    }
}

impl MergedPort {
    /// The name of the route table of an HTTP port: `http.PORT`, or `http.PORT.BIND`.
    pub fn route_table(&self) -> String {
        match &self.bind {
            Some(bind) => format!("http.{}.{bind}", self.number),
            None => format!("http.{}", self.number),
        }
    }

    /// Whether a server of another kind can be beside these. As with istiod, servers of `Gateway`s cannot.
    fn admits(&self, kind: PortKind, server: &Server) -> bool {
        let kinds = matches!((self.kind, kind), (PortKind::Http, PortKind::Tls) | (PortKind::Tls, PortKind::Http));
        kinds && self.servers.iter().chain([server]).all(|one| one.listener.is_some())
    }
}

fn derive_merged_gateways(cx: &Reads<'_>, set: &GatewaySet) -> Option<Arc<MergedGateway>> {
    let mut merge = Merge::default();
    for id in set.gateways.iter() {
        let Some(object) = cx.get::<Gateways>(id) else { continue };
        for (index, server) in object.spec.servers.iter().enumerate() {
            if let Err(reason) = merge.add(set, id, index, server) {
                merge.unserved.push(Unserved { gateway: id.clone(), server: index, reason });
            }
        }
    }
    for gateway in set.kube.iter() {
        let Some(plan) = cx.get::<GatewayPlans>(gateway) else { continue };
        for (owner, listener) in plan.listeners().filter(|(_, listener)| listener.is_served()) {
            let id = ListenerId { owner: owner.clone(), name: listener.name.clone() };
            let Some(server) = kube::server(cx, gateway, &id, listener) else { continue };
            let by_sni = listener.protocol.is_by_name();
            if merge.place(translated(&set.ports, listener.port), server, by_sni).is_err() {
                merge.unplaced.push(id);
            }
        }
    }
    let Merge { ports, unserved, unplaced, tables, numbers, .. } = merge;
    Some(Arc::new(MergedGateway { ports, unserved, unplaced, tables, numbers }))
}

/// A bind address (none for all) and a port, and whether it is a port of UDP.
type Place = (Option<Arc<str>>, u16, bool);

#[derive(Default)]
struct Merge {
    ports: Vec<MergedPort>,
    unserved: Vec<Unserved>,
    unplaced: Vec<ListenerId>,
    /// The indexes in `ports` of each address and port: one, or two that are beside each other.
    places: BTreeMap<Place, Vec<usize>>,
    /// The hosts of the TLS servers of each address and port. Envoy rejects duplicate SNI matches.
    tls_hosts: BTreeMap<Place, BTreeSet<ServerHost>>,
    tables: Tables,
    numbers: BTreeMap<ServerOwner, BTreeSet<u16>>,
}

impl Tables {
    fn add(&mut self, server: &Server, table: Arc<str>, place: (usize, Option<usize>)) {
        if let Some(listener) = &server.listener {
            self.by_owner.entry(listener.owner.clone()).or_default().insert(table.clone());
        }
        self.places.insert(table, place);
    }
}

impl Merge {
    fn add(
        &mut self,
        set: &GatewaySet,
        gateway: &ObjectId,
        index: usize,
        server: &istio::Server,
    ) -> Result<(), UnservedReason> {
        let port = server.port.as_ref().ok_or(UnservedReason::NoPort)?;
        let written = u16::try_from(port.number).ok().filter(|p| *p != 0).ok_or(UnservedReason::NoPort)?;
        let number = translated(&set.ports, written);
        let bind = (!server.bind.is_empty()).then(|| server.bind.clone());
        let protocol = port.kind();
        let hosts: Vec<ServerHost> = server.hosts.iter().filter_map(|h| host(h, &gateway.namespace)).collect();
        let by_sni = server.tls.is_some();
        let server = Server {
            gateway: gateway.clone(),
            index,
            port: written,
            port_name: port.name.clone(),
            name: server.name.clone(),
            bind,
            protocol,
            hosts,
            tls: tls(protocol, server.tls.as_ref()),
            listener: None,
            parent: None,
        };
        self.place(number, server, by_sni)
    }

    /// Places a server at a port of the workload. Those that are selected by SNI must have different hosts.
    fn place(&mut self, number: u16, server: Server, by_sni: bool) -> Result<(), UnservedReason> {
        let place = (server.bind.clone(), number, server.is_udp());
        if by_sni {
            let known = self.tls_hosts.entry(place.clone()).or_default();
            if server.hosts.iter().any(|h| known.contains(h)) {
                return Err(UnservedReason::DuplicateHost);
            }
            known.extend(server.hosts.iter().cloned());
        }
        let kind = match server.tls {
            _ if server.is_udp() => PortKind::Udp,
            _ if server.protocol.is_http() => PortKind::Http,
            ServerTls::None | ServerTls::Redirect => PortKind::Opaque,
            ServerTls::Passthrough | ServerTls::AutoPassthrough | ServerTls::Terminated(_) => PortKind::Tls,
        };
        let table: Option<Arc<str>> = server.route_table().map(Arc::from);
        if table.as_ref().is_some_and(|table| self.tables.places.contains_key(table)) {
            return Err(UnservedReason::DuplicateName);
        }
        let at = self.port_for(place, kind, &server)?;
        let port = &mut self.ports[at];
        match table {
            Some(table) => self.tables.add(&server, table, (at, Some(port.servers.len()))),
            None if kind == PortKind::Http => self.tables.add(&server, port.route_table().into(), (at, None)),
            None => {}
        }
        self.numbers.entry(server.owner()).or_default().insert(number);
        port.servers.push(server);
        Ok(())
    }

    /// The index of the port for a server of this kind, which is added if there is none.
    fn port_for(&mut self, place: Place, kind: PortKind, server: &Server) -> Result<usize, UnservedReason> {
        let (bind, number, _) = place.clone();
        let places = self.places.entry(place).or_default();
        if let Some(at) = places.iter().copied().find(|at| self.ports[*at].kind == kind) {
            // Connections of two opaque servers cannot be distinguished.
            let is_single = matches!(kind, PortKind::Opaque | PortKind::Udp);
            return if is_single { Err(UnservedReason::Conflict) } else { Ok(at) };
        }
        let beside = places.first().copied();
        if beside.is_some_and(|at| !self.ports[at].admits(kind, server)) {
            return Err(UnservedReason::Conflict);
        }
        let at = self.ports.len();
        places.push(at);
        self.ports.push(MergedPort { number, bind, kind, servers: Vec::new(), beside });
        if let Some(other) = beside {
            self.ports[other].beside = Some(at);
        }
        Ok(at)
    }
}

fn tls(protocol: Protocol, settings: Option<&ServerTlsSettings>) -> ServerTls {
    match settings {
        None => ServerTls::None,
        // For plain HTTP only the redirect applies.
        Some(settings) if protocol.is_http() => {
            if settings.https_redirect {
                ServerTls::Redirect
            } else {
                ServerTls::None
            }
        }
        Some(settings) => match settings.mode {
            ServerTlsMode::Passthrough => ServerTls::Passthrough,
            ServerTlsMode::AutoPassthrough => ServerTls::AutoPassthrough,
            _ => ServerTls::Terminated(Arc::new(settings.clone())),
        },
    }
}

/// The target port at the workload, if a service of the gateway maps the port.
fn translated(ports: &[(u16, u16)], number: u16) -> u16 {
    ports.binary_search_by_key(&number, |(from, _)| *from).map_or(number, |at| ports[at].1)
}

/// Parses `host`, `namespace/host`, `./host` or `*/host`.
fn host(text: &str, own: &Arc<str>) -> Option<ServerHost> {
    let (namespace, host) = match text.split_once('/') {
        None | Some(("*", _)) => (None, text.rsplit('/').next().unwrap_or(text)),
        Some((".", host)) => (Some(own.clone()), host),
        Some((namespace, host)) => (Some(namespace.into()), host),
    };
    Some(ServerHost { namespace, host: Hostname::parse(host).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId { namespace: "gw".into(), name: name.into() }
    }

    fn server(port: u32, protocol: &str, hosts: &[&str], tls: Option<ServerTlsMode>) -> istio::Server {
        let port = istio::Port { number: port, protocol: protocol.into(), ..Default::default() };
        let tls = tls.map(|mode| ServerTlsSettings { mode, https_redirect: true, ..Default::default() });
        let hosts = hosts.iter().map(|h| (*h).into()).collect();
        istio::Server { port: Some(port), hosts, tls, ..Default::default() }
    }

    fn merged(servers: &[istio::Server]) -> (Merge, Vec<Result<(), UnservedReason>>) {
        let set = GatewaySet { ports: [(80, 8080)].into(), ..GatewaySet::default() };
        let mut merge = Merge::default();
        let results = servers.iter().enumerate().map(|(i, s)| merge.add(&set, &id("g"), i, s)).collect();
        (merge, results)
    }

    #[test]
    fn http_servers_of_one_port_are_one_listener() {
        let (merge, results) = merged(&[
            server(80, "HTTP", &["a.com"], None),
            server(8080, "GRPC", &["b.com"], None),
            server(80, "TCP", &["*"], None),
            server(80, "TLS", &["*"], Some(ServerTlsMode::Passthrough)),
        ]);
        assert_eq!(results, [Ok(()), Ok(()), Err(UnservedReason::Conflict), Err(UnservedReason::Conflict)]);
        let [port] = &merge.ports[..] else { panic!("one port") };
        assert_eq!((port.number, port.kind, port.servers.len()), (8080, PortKind::Http, 2));
        assert_eq!(port.route_table(), "http.8080");
    }

    #[test]
    fn tls_servers_of_one_port_differ_by_host() {
        let passthrough = Some(ServerTlsMode::Passthrough);
        let (merge, results) = merged(&[
            server(443, "TLS", &["a.com"], passthrough),
            server(443, "HTTPS", &["b.com"], passthrough),
            server(443, "TLS", &["c.com", "a.com"], passthrough),
            server(443, "HTTPS", &["d.com"], Some(ServerTlsMode::Simple)),
        ]);
        let duplicate = Err(UnservedReason::DuplicateHost);
        assert_eq!(results, [Ok(()), Ok(()), duplicate, Ok(())]);
        assert_eq!(merge.ports.len(), 1);
        assert_eq!(merge.ports[0].servers.len(), 3);
        let tables: Vec<_> = merge.ports[0].servers.iter().map(Server::route_table).collect();
        assert_eq!(tables, [None, None, Some("https.443..g.gw".to_owned())]);
    }

    #[test]
    fn https_servers_with_one_name_would_share_a_route_table() {
        let simple = Some(ServerTlsMode::Simple);
        let (_, results) = merged(&[
            server(443, "HTTPS", &["a.com"], simple),
            server(443, "HTTPS", &["b.com"], simple),
            server(443, "TLS", &["c.com"], simple),
        ]);
        assert_eq!(results, [Ok(()), Err(UnservedReason::DuplicateName), Ok(())]);
    }

    #[test]
    fn route_tables_are_found_by_name() {
        let simple = Some(ServerTlsMode::Simple);
        let (merge, _) = merged(&[
            server(80, "HTTP", &["a.com"], None),
            server(8080, "HTTP", &["b.com"], None),
            server(443, "TLS", &["c.com"], simple),
            server(443, "HTTPS", &["d.com"], simple),
        ]);
        let row = MergedGateway { ports: merge.ports, tables: merge.tables, ..MergedGateway::default() };
        let hosts = |name: &str| {
            let (_, servers) = row.table(name)?;
            Some(servers.iter().map(|server| server.hosts[0].host.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(hosts("http.8080"), Some(vec!["a.com".to_owned(), "b.com".to_owned()]));
        assert_eq!(hosts("https.443..g.gw"), Some(vec!["d.com".to_owned()]));
        assert_eq!(hosts("http.80"), None);
    }

    #[test]
    fn other_addresses_are_other_listeners() {
        let bound = |bind: &str, s: istio::Server| istio::Server { bind: bind.into(), ..s };
        let (merge, results) = merged(&[
            bound("10.0.0.1", server(9000, "TCP", &["*"], None)),
            bound("10.0.0.2", server(9000, "HTTP", &["*"], None)),
            server(9000, "TCP", &["*"], None),
            server(9000, "TCP", &["*"], None),
        ]);
        assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(UnservedReason::Conflict)]);
        assert_eq!(merge.ports[1].route_table(), "http.9000.10.0.0.2");
    }

    #[test]
    fn hosts() {
        let own: Arc<str> = "own".into();
        let parsed = |text| host(text, &own).map(|h| (h.namespace.map(|n| n.to_string()), h.host.to_string()));
        assert_eq!(parsed("a.com"), Some((None, "a.com".into())));
        assert_eq!(parsed("*/*"), Some((None, "*".into())));
        assert_eq!(parsed("./a.com"), Some((Some("own".into()), "a.com".into())));
        assert_eq!(parsed("ns/*.com"), Some((Some("ns".into()), "*.com".into())));
        assert_eq!(parsed("ns/a b"), None);
    }
}
