//! The filter chains of one port of a workload: by what is taken there, and by what is known of what is spoken.

use std::sync::Arc;

use model::listener::{ChainKind, ChainMatch, ChainSpec, HttpChain, RouteSource, TcpChain};
use model::tls::ServerContext;
use names::Protocol;

use crate::listeners::chain::{BLACK_HOLE, RAW_BUFFER, TLS, all_to_cluster, plaintext_http, to_cluster};

/// What sidecars offer in the handshake for HTTP.
const MESH_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// What they offer for bytes.
const MESH_BYTES: [&str; 2] = ["istio-peer-exchange", "istio"];
/// What they offer at all. Who offers nothing of it means its TLS for the application.
const MESH: [&str; 5] = [
    "istio",
    "istio-peer-exchange",
    "istio-http/1.0",
    "istio-http/1.1",
    "istio-h2",
];

/// What is taken at a port.
pub(super) enum Opening {
    /// Whatever comes, as it is.
    Plain,
    /// The mesh's mutual TLS, which is opened, and what else comes as it is.
    Both(Arc<ServerContext>),
    /// The mesh's mutual TLS and nothing else.
    Mesh(Arc<ServerContext>),
    /// TLS as a `Sidecar` describes it, and nothing else.
    Own(Arc<ServerContext>),
    /// Nothing: only TLS may be taken, for which there is no certificate.
    Closed,
}

/// What the chains of one port are made of.
pub(super) struct Port {
    /// Names of the HTTP chains and of the TCP chains.
    pub(super) names: [Arc<str>; 2],
    /// What connections are for; none for ports that nobody declared.
    pub(super) destination: Option<u16>,
    pub(super) protocol: Protocol,
    pub(super) cluster: Arc<str>,
    pub(super) stat_prefix: Arc<str>,
    /// The name of bytes that are not looked into in statistics; the cluster's where there is none.
    pub(super) tcp_name: Option<Arc<str>>,
    pub(super) opening: Opening,
    /// The service's port and host, for the names of its virtual host and of its traces.
    pub(super) service_port: u16,
    pub(super) host: Arc<str>,
    pub(super) accepts_http10: bool,
}

/// Connections that are told from the others of a port.
struct Sort {
    /// They are HTTP, and not mere bytes.
    http: bool,
    transport: Transport,
    /// Application protocols of which they have to offer one; none for any.
    protocols: Vec<&'static str>,
}

/// What connections begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// No TLS, as far as anybody looks.
    Raw,
    /// TLS that is the application's.
    Passed,
    /// TLS that is opened.
    Opened,
}

impl Port {
    /// The chains, in the order in which Istio has them. Of a port that nobody declared there are none where nothing is
    /// taken.
    pub(super) fn chains(&self) -> Vec<ChainSpec> {
        if let Opening::Closed = self.opening {
            return self.closed().into_iter().collect();
        }
        self.sorts().into_iter().map(|sort| self.chain(sort)).collect()
    }

    /// Connections to other ports may be taken: without a chain of its own the port's would go the way of those.
    fn closed(&self) -> Option<ChainSpec> {
        let matches = ChainMatch {
            destination_port: Some(self.destination?),
            ..ChainMatch::default()
        };
        Some(ChainSpec {
            name: self.names[1].clone(),
            matches,
            tls: None,
            kind: to_cluster(BLACK_HOLE),
        })
    }

    fn sorts(&self) -> Vec<Sort> {
        let http = |transport, protocols: &[&'static str]| Sort::new(true, transport, protocols);
        let bytes = |transport, protocols: &[&'static str]| Sort::new(false, transport, protocols);
        let (detected, is_http) = (self.protocol.is_unsupported(), self.protocol.is_http());
        let plain_http = plaintext_http(self.accepts_http10);
        use Transport::{Opened, Passed, Raw};
        match (&self.opening, detected, is_http) {
            (Opening::Closed, ..) => Vec::new(),
            (Opening::Plain, true, _) => vec![http(Raw, &plain_http), bytes(Raw, &[])],
            (Opening::Plain, _, true) => vec![http(Raw, &[])],
            (Opening::Plain, ..) => vec![bytes(Raw, &[])],
            (Opening::Both(_), true, _) => vec![
                http(Opened, &MESH_HTTP),
                http(Raw, &plain_http),
                bytes(Opened, &MESH_BYTES),
                bytes(Raw, &[]),
                bytes(Passed, &[]),
            ],
            (Opening::Both(_), _, true) => vec![http(Opened, &MESH), http(Raw, &[])],
            (Opening::Both(_), ..) => vec![bytes(Opened, &MESH), bytes(Passed, &[]), bytes(Raw, &[])],
            (Opening::Mesh(_), true, _) => vec![http(Opened, &MESH_HTTP), bytes(Opened, &[])],
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
        ChainSpec {
            name: name.clone(),
            matches,
            tls: context.filter(|_| sort.transport == Transport::Opened),
            kind,
        }
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
            dns_caches: Vec::new(),
        }
    }

    fn tcp(&self) -> TcpChain {
        let all = all_to_cluster(&self.cluster).speaking(self.protocol);
        TcpChain {
            stat_prefix: self.tcp_name.clone().unwrap_or(all.stat_prefix),
            ..all
        }
    }
}

impl Sort {
    fn new(http: bool, transport: Transport, protocols: &[&'static str]) -> Sort {
        Sort {
            http,
            transport,
            protocols: protocols.to_vec(),
        }
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
            let ChainMatch {
                transport_protocol,
                application_protocols,
                ..
            } = &chain.matches;
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
        for protocol in [
            Protocol::Unsupported,
            Protocol::Http,
            Protocol::Grpc,
            Protocol::Tcp,
            Protocol::Https,
        ] {
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
            [
                "http opened tls istio,istio-peer-exchange,istio-http/1.0,istio-http/1.1,istio-h2",
                "http raw_buffer "
            ]
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
