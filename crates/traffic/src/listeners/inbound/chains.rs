//! Filter chains of one inbound port, by mTLS mode and protocol.

use std::sync::Arc;

use model::listener::{ChainKind, ChainMatch, ChainSpec, HttpChain, RouteSource, TcpChain};
use model::tls::ServerContext;
use names::Protocol;

use crate::listeners::chain::{BLACK_HOLE, RAW_BUFFER, TLS, all_to_cluster, plaintext_http, to_cluster};

/// ALPN of sidecars for HTTP.
const MESH_HTTP: &[&str] = &["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// ALPN of sidecars for TCP.
const MESH_BYTES: &[&str] = &["istio-peer-exchange", "istio"];
/// All ALPN of sidecars. TLS without any of them is the application's.
const MESH: &[&str] = &["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// Accepted connections of a port.
pub(super) enum Opening {
    /// All connections, forwarded unchanged.
    Plain,
    /// The mesh's mutual TLS, terminated; other connections unchanged.
    Both(Arc<ServerContext>),
    /// Only the mesh's mutual TLS.
    Mesh(Arc<ServerContext>),
    /// Only TLS as a `Sidecar` configures it.
    Own(Arc<ServerContext>),
    /// None: TLS is required and the proxy has no certificate.
    Closed,
}

/// Parameters of a port's filter chains.
pub(super) struct Port {
    /// Names of the HTTP chains and of the TCP chains.
    pub(super) names: [Arc<str>; 2],
    /// The destination port; none for undeclared ports.
    pub(super) destination: Option<u16>,
    pub(super) protocol: Protocol,
    pub(super) cluster: Arc<str>,
    pub(super) stat_prefix: Arc<str>,
    /// The statistics name of TCP; none for the cluster's.
    pub(super) tcp_name: Option<Arc<str>>,
    pub(super) opening: Opening,
    /// The service's port and host, for names of the virtual host and of spans.
    pub(super) service_port: u16,
    pub(super) host: Arc<str>,
    pub(super) accepts_http10: bool,
}

/// A class of connections of a port.
struct Sort {
    /// HTTP instead of TCP.
    http: bool,
    transport: Transport,
    /// ALPN, of which one must be offered; empty for any.
    protocols: &'static [&'static str],
}

/// The transport of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// No TLS, or not inspected.
    Raw,
    /// The application's TLS.
    Passed,
    /// TLS that is terminated.
    Opened,
}

impl Port {
    /// The filter chains, in Istio's order. Undeclared ports that accept nothing have none.
    pub(super) fn chains(&self) -> Vec<ChainSpec> {
        if let Opening::Closed = self.opening {
            return self.closed().into_iter().collect();
        }
        self.sorts().into_iter().map(|sort| self.chain(sort)).collect()
    }

    /// A port that accepts nothing needs a filter chain, or connections would match the chains of undeclared ports.
    fn closed(&self) -> Option<ChainSpec> {
        let matches = ChainMatch { destination_port: Some(self.destination?), ..ChainMatch::default() };
        Some(ChainSpec { name: self.names[1].clone(), matches, tls: None, kind: to_cluster(BLACK_HOLE) })
    }

    fn sorts(&self) -> Vec<Sort> {
        let http = |transport, protocols| Sort { http: true, transport, protocols };
        let bytes = |transport, protocols| Sort { http: false, transport, protocols };
        let (detected, is_http) = (self.protocol.is_unsupported(), self.protocol.is_http());
        let plain_http = plaintext_http(self.accepts_http10);
        use Transport::{Opened, Passed, Raw};
        match (&self.opening, detected, is_http) {
            (Opening::Closed, ..) => Vec::new(),
            (Opening::Plain, true, _) => vec![http(Raw, plain_http), bytes(Raw, &[])],
            (Opening::Plain, _, true) => vec![http(Raw, &[])],
            (Opening::Plain, ..) => vec![bytes(Raw, &[])],
            (Opening::Both(_), true, _) => vec![
                http(Opened, MESH_HTTP),
                http(Raw, plain_http),
                bytes(Opened, MESH_BYTES),
                bytes(Raw, &[]),
                bytes(Passed, &[]),
            ],
            (Opening::Both(_), _, true) => vec![http(Opened, MESH), http(Raw, &[])],
            (Opening::Both(_), ..) => vec![bytes(Opened, MESH), bytes(Passed, &[]), bytes(Raw, &[])],
            (Opening::Mesh(_), true, _) => vec![http(Opened, MESH_HTTP), bytes(Opened, &[])],
            (Opening::Own(context), true, _) => vec![http(Opened, context.alpn), bytes(Opened, &[])],
            (Opening::Mesh(_) | Opening::Own(_), _, true) => vec![http(Opened, &[])],
            (Opening::Mesh(_) | Opening::Own(_), ..) => vec![bytes(Opened, &[])],
        }
    }

    fn chain(&self, sort: Sort) -> ChainSpec {
        let matches = ChainMatch {
            destination_port: self.destination,
            transport_protocol: Some(match sort.transport {
                Transport::Raw => RAW_BUFFER,
                Transport::Passed | Transport::Opened => TLS,
            }),
            application_protocols: sort.protocols,
            ..ChainMatch::default()
        };
        let context = match &self.opening {
            Opening::Both(context) | Opening::Mesh(context) | Opening::Own(context) => Some(context.clone()),
            Opening::Plain | Opening::Closed => None,
        };
        let [http_name, tcp_name] = &self.names;
        let (name, kind) = match sort.http {
            true => (http_name, ChainKind::Http(self.http())),
            false => (tcp_name, ChainKind::Tcp(self.tcp())),
        };
        ChainSpec { name: name.clone(), matches, tls: context.filter(|_| sort.transport == Transport::Opened), kind }
    }

    fn http(&self) -> HttpChain {
        HttpChain {
            stat_prefix: self.stat_prefix.clone(),
            protocol: self.protocol,
            routes: RouteSource::Inbound {
                cluster: self.cluster.clone(),
                port: self.service_port,
                operation: format!("{}:{}/*", self.host, self.service_port).into(),
            },
            accepts_http10: self.accepts_http10,
            use_remote_address: false,
            alpn_filter: false,
            sessions: false,
            external_auth: false,
            pickers: false,
            dns_caches: Vec::new(),
        }
    }

    fn tcp(&self) -> TcpChain {
        let all = all_to_cluster(&self.cluster).speaking(self.protocol);
        TcpChain { stat_prefix: self.tcp_name.clone().unwrap_or(all.stat_prefix), ..all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminate;

    fn chains(protocol: Protocol, opening: Opening) -> Vec<String> {
        let port = Port {
            names: ["http".into(), "tcp".into()],
            destination: Some(80),
            protocol,
            cluster: "inbound|80||".into(),
            stat_prefix: "inbound_80;".into(),
            tcp_name: None,
            opening,
            service_port: 8080,
            host: "web".into(),
            accepts_http10: false,
        };
        let text = |chain: ChainSpec| {
            let ChainMatch { transport_protocol, application_protocols, .. } = &chain.matches;
            let opened = if chain.tls.is_some() { "opened " } else { "" };
            let transport = transport_protocol.unwrap_or("any");
            format!("{} {opened}{transport} {}", chain.name, application_protocols.join(","))
        };
        port.chains().into_iter().map(text).collect()
    }

    fn context() -> Arc<ServerContext> {
        Arc::new(terminate::of_workload(&Default::default()))
    }

    #[test]
    fn no_two_chains_of_a_port_take_the_same_connection() {
        for protocol in [Protocol::Unsupported, Protocol::Http, Protocol::Grpc, Protocol::Tcp, Protocol::Https] {
            let openings = [
                Opening::Plain,
                Opening::Both(context()),
                Opening::Mesh(context()),
                Opening::Own(context()),
                Opening::Closed,
            ];
            for opening in openings {
                let mut conditions: Vec<String> = chains(protocol, opening)
                    .iter()
                    .map(|text| text.replace("opened ", "").split_once(' ').unwrap().1.to_owned())
                    .collect();
                let all = conditions.len();
                conditions.sort();
                conditions.dedup();
                assert_eq!(conditions.len(), all, "{protocol}: {conditions:?}");
                assert!(all > 0);
            }
        }
    }

    #[test]
    fn who_may_speak_both_is_told_apart() {
        assert_eq!(
            chains(Protocol::Http, Opening::Both(context())),
            ["http opened tls istio,istio-peer-exchange,istio-http/1.0,istio-http/1.1,istio-h2", "http raw_buffer "]
        );
        assert_eq!(
            chains(Protocol::Unsupported, Opening::Both(context())),
            [
                "http opened tls istio-http/1.0,istio-http/1.1,istio-h2",
                "http raw_buffer http/1.1,h2c",
                "tcp opened tls istio-peer-exchange,istio",
                "tcp raw_buffer ",
                "tcp tls ",
            ]
        );
    }

    #[test]
    fn nothing_but_tls_where_it_must_be() {
        assert_eq!(chains(Protocol::Tcp, Opening::Mesh(context())), ["tcp opened tls "]);
        assert_eq!(chains(Protocol::Tcp, Opening::Closed), ["tcp any "]);
        let detected = chains(Protocol::Unsupported, Opening::Own(context()));
        assert_eq!(detected, ["http opened tls h2,http/1.1", "tcp opened tls "]);
    }
}
