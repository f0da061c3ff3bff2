//! Merges servers of several `Gateway` objects with one address and port into one listener.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::istio::{self, ServerTlsMode, ServerTlsSettings, TlsProtocol};
use flow::Reads;
use model::audience::GatewaySet;
use model::service::ObjectId;
use names::{Hostname, Protocol};
use registry::Gateways;

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
}

/// One server of a gateway.
#[derive(Clone, PartialEq, Debug)]
pub struct Server {
    /// The gateway.
    pub gateway: ObjectId,
    /// Its index.
    pub index: usize,
    /// The port as declared, which port conditions match.
    pub port: u16,
    /// The port's name.
    pub port_name: Arc<str>,
    /// The prefix of its statistics; empty for the listener's.
    pub name: Arc<str>,
    /// The bind address; none for all.
    pub bind: Option<Arc<str>>,
    /// The protocol.
    pub protocol: Protocol,
    /// The hosts.
    pub hosts: Vec<ServerHost>,
    /// Its TLS mode.
    pub tls: ServerTls,
}

/// A host of a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServerHost {
    /// The namespace of VirtualServices that may bind to it; none for any.
    pub namespace: Option<Arc<str>>,
    /// The host or wildcard.
    pub host: Hostname,
}

/// TLS mode of a server.
#[derive(Clone, PartialEq, Debug)]
pub enum ServerTls {
    /// Plain text.
    None,
    /// Plain text; requests are redirected to HTTPS.
    Redirect,
    /// SNI passthrough, by routes.
    Passthrough,
    /// SNI passthrough to the cluster that the SNI names (`AUTO_PASSTHROUGH`), between networks.
    AutoPassthrough,
    /// TLS is terminated.
    Terminated(Arc<ServerTlsSettings>),
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

impl MergedPort {
    /// The name of the route table of an HTTP port: `http.PORT`, or `http.PORT.BIND`.
    pub fn route_table(&self) -> String {
        match &self.bind {
            Some(bind) => format!("http.{}.{bind}", self.number),
            None => format!("http.{}", self.number),
        }
    }
}

impl Server {
    /// The name of the route table of an HTTPS server: `https.PORT.NAME.GATEWAY.NAMESPACE`, with `.BIND` if it has a
    /// bind address. None for servers that do not terminate TLS, or of another protocol.
    pub fn route_table(&self) -> Option<String> {
        if self.protocol != Protocol::Https || !matches!(self.tls, ServerTls::Terminated(_)) {
            return None;
        }
        let ObjectId { namespace, name } = &self.gateway;
        let mut table = format!("https.{}.{}.{name}.{namespace}", self.port, self.port_name);
        if let Some(bind) = &self.bind {
            table.push('.');
            table.push_str(bind);
        }
        Some(table)
    }

    /// Whether it serves HTTP/3, too, at these UDP ports. Envoy's QUIC cannot request client certificates, so servers
    /// that require one are excluded.
    pub fn speaks_http3(&self, udp_ports: &[u16]) -> bool {
        let ServerTls::Terminated(settings) = &self.tls else {
            return false;
        };
        // QUIC requires TLS 1.3.
        let modern = matches!(settings.max_protocol_version, TlsProtocol::Auto | TlsProtocol::V1_3);
        let open = settings.mode == ServerTlsMode::Simple && modern;
        open && self.protocol == Protocol::Https && udp_ports.binary_search(&self.port).is_ok()
    }

    /// The server's hosts that VirtualServices of this namespace may serve.
    pub fn hosts_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Hostname> {
        self.hosts.iter().filter(move |h| h.namespace.as_deref().is_none_or(|n| n == namespace)).map(|h| &h.host)
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
    Some(Arc::new(MergedGateway { ports: merge.ports, unserved: merge.unserved }))
}

/// A bind address (none for all) and a port.
type Place = (Option<Arc<str>>, u16);

#[derive(Default)]
struct Merge {
    ports: Vec<MergedPort>,
    unserved: Vec<Unserved>,
    /// The index in `ports` of each address and port.
    places: BTreeMap<Place, usize>,
    /// The hosts of the TLS servers of each address and port. Envoy rejects duplicate SNI matches.
    tls_hosts: BTreeMap<Place, BTreeSet<ServerHost>>,
    /// The route tables of HTTPS servers.
    tables: BTreeSet<String>,
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
        if server.tls.is_some() {
            let known = self.tls_hosts.entry((bind.clone(), number)).or_default();
            if hosts.iter().any(|h| known.contains(h)) {
                return Err(UnservedReason::DuplicateHost);
            }
            known.extend(hosts.iter().cloned());
        }
        let tls = tls(protocol, server.tls.as_ref());
        let kind = match tls {
            _ if protocol.is_http() => PortKind::Http,
            ServerTls::None | ServerTls::Redirect => PortKind::Opaque,
            ServerTls::Passthrough | ServerTls::AutoPassthrough | ServerTls::Terminated(_) => PortKind::Tls,
        };
        let server = Server {
            gateway: gateway.clone(),
            index,
            port: written,
            port_name: port.name.clone(),
            name: server.name.clone(),
            bind: bind.clone(),
            protocol,
            hosts,
            tls,
        };
        let table = server.route_table();
        if table.as_ref().is_some_and(|table| self.tables.contains(table)) {
            return Err(UnservedReason::DuplicateName);
        }
        match self.places.get(&(bind.clone(), number)).map(|at| &mut self.ports[*at]) {
            // Connections of two opaque servers cannot be distinguished.
            Some(port) if port.kind != kind || kind == PortKind::Opaque => return Err(UnservedReason::Conflict),
            Some(port) => port.servers.push(server),
            None => {
                self.places.insert((bind.clone(), number), self.ports.len());
                self.ports.push(MergedPort { number, bind, kind, servers: vec![server] });
            }
        }
        self.tables.extend(table);
        Ok(())
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
        let set = GatewaySet { gateways: [].into(), ports: [(80, 8080)].into() };
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
