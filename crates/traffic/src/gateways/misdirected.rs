//! Requests over a connection that was opened for another HTTPS listener.
//!
//! A client may reuse a connection for all hosts of its certificate (HTTP/2), or send any `Host`. Each listener has its own
//! filter chain and route table, by SNI. Hosts that belong to another HTTPS listener of the Gateway and port are answered with
//! 421, so that the client opens a connection for them. Hosts that no listener has get 404, as always.

use std::collections::BTreeMap;

use names::{Hostname, Protocol};

use super::server::{Server, ServerTls};

/// The maximum number of other listeners that are detected. Each of n tables has the hosts of all others, so that the bytes
/// grow with the square.
const MOST: usize = 64;

/// The fixed answer to requests for a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// 404: the host is that of the listener, which has no route for it.
    NotFound,
    /// 421: it is that of another listener.
    Misdirected,
}

/// The hosts with a fixed answer in the route table of an HTTPS listener, unless a route has them. `beside` are the servers of
/// its port.
pub(super) fn hosts(server: &Server, beside: &[Server]) -> BTreeMap<Hostname, Answer> {
    let Some(own) = host(server) else { return BTreeMap::new() };
    let of_gateway = |other: &&Server| server.parent.is_some() && server.parent == other.parent;
    let others = || beside.iter().filter(of_gateway).filter_map(host).filter(|other| *other != own);
    if others().nth(MOST).is_some() {
        return BTreeMap::new();
    }
    let mut answers: BTreeMap<Hostname, Answer> = others().map(|other| (other.clone(), Answer::Misdirected)).collect();
    // Within the wildcard of another listener, the own host is still that of this one.
    if others().any(|other| own.subset_of(other)) {
        answers.insert(own.clone(), Answer::NotFound);
    }
    answers
}

/// The host of a listener that terminates TLS for HTTP.
fn host(server: &Server) -> Option<&Hostname> {
    let is_https = server.protocol == Protocol::Https && matches!(server.tls, ServerTls::Terminated(_));
    let of_listener = server.listener.is_some() && is_https;
    server.hosts.first().filter(|_| of_listener).map(|one| &one.host)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::istio::ServerTlsSettings;
    use model::kube::{ListenerId, ListenerOwner};
    use model::service::ObjectId;

    use super::super::server::ServerHost;
    use super::*;

    fn server(owner: &str, host: &str) -> Server {
        let owner = ObjectId { namespace: "default".into(), name: owner.into() };
        Server {
            gateway: owner.clone(),
            index: 0,
            port: 443,
            port_name: "default".into(),
            name: Arc::default(),
            bind: None,
            protocol: Protocol::Https,
            hosts: vec![ServerHost { namespace: None, host: Hostname::parse(host).unwrap() }],
            tls: ServerTls::Terminated(Arc::new(ServerTlsSettings::default())),
            listener: Some(ListenerId { owner: ListenerOwner::Gateway(owner.clone()), name: host.into() }),
            parent: Some(owner),
        }
    }

    fn answers(own: &str, others: &[&str]) -> Vec<(String, Answer)> {
        let server_of = |host: &&str| server("edge", host);
        let all: Vec<Server> = others.iter().map(server_of).chain([server("edge", own)]).collect();
        let found = hosts(&server("edge", own), &all);
        found.into_iter().map(|(host, answer)| (host.as_str().to_owned(), answer)).collect()
    }

    fn expected(list: &[(&str, Answer)]) -> Vec<(String, Answer)> {
        list.iter().map(|(host, answer)| ((*host).to_owned(), *answer)).collect()
    }

    #[test]
    fn hosts_of_other_listeners_are_misdirected() {
        use Answer::{Misdirected, NotFound};
        let both = ["a.example.com", "b.example.org"];
        assert_eq!(answers("a.example.com", &both), expected(&[("b.example.org", Misdirected)]));
        let wide = ["*.example.com"];
        let within = expected(&[("*.example.com", Misdirected), ("a.example.com", NotFound)]);
        assert_eq!(answers("a.example.com", &wide), within);
        assert_eq!(answers("*.example.com", &["a.example.com"]), expected(&[("a.example.com", Misdirected)]));
        assert_eq!(answers("*", &["a.example.com"]), expected(&[("a.example.com", Misdirected)]));
        let any = expected(&[("*", Misdirected), ("a.example.com", NotFound)]);
        assert_eq!(answers("a.example.com", &["*"]), any);
    }

    #[test]
    fn other_gateways_and_protocols_do_not_count() {
        let own = server("edge", "a.example.com");
        let plain = Server { protocol: Protocol::Http, tls: ServerTls::None, ..server("edge", "b.example.com") };
        let passed = Server { protocol: Protocol::Tls, tls: ServerTls::Passthrough, ..server("edge", "c.example.com") };
        let of_istio = Server { listener: None, ..server("edge", "e.example.com") };
        let all = [own.clone(), plain, passed, server("other", "d.example.com"), of_istio.clone()];
        assert_eq!(hosts(&own, &all), BTreeMap::new());
        assert_eq!(hosts(&of_istio, &all), BTreeMap::new());
    }

    #[test]
    fn many_listeners_are_not_detected() {
        let count = |count: usize| {
            let all: Vec<Server> = (0..count).map(|index| server("edge", &format!("h{index}.example.com"))).collect();
            hosts(&all[0], &all).len()
        };
        assert_eq!((count(MOST + 1), count(MOST + 2)), (MOST, 0));
    }
}
