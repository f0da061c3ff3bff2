//! An outbound listener under construction, and merging of services with the same address and port.

use std::net::IpAddr;
use std::sync::Arc;

use model::listener::{Bind, ChainKind, ChainSpec, Direction, DnsCache, ListenerSpec, Transport};
use model::proxy::Capabilities;
use names::Protocol;

use super::chain::{Chain, Taken};

/// The first bind address, which with the port names the listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Primary {
    /// An address.
    Ip(IpAddr),
    /// A Unix domain socket as configured (`unix://PATH`).
    Unix(Arc<str>),
}

impl Primary {
    /// The listener's name, `BIND_PORT`.
    pub(crate) fn listener(&self, port: u16) -> Arc<str> {
        match self {
            Primary::Ip(ip) => format!("{ip}_{port}").into(),
            Primary::Unix(bind) => format!("{bind}_{port}").into(),
        }
    }
}

/// The bind addresses of a listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Bound {
    /// The address that names it.
    pub(crate) primary: Primary,
    /// Further addresses.
    pub(crate) additional: Vec<IpAddr>,
}

impl Bound {
    /// Bound to the first of these addresses, and additionally to the others.
    pub(crate) fn to(mut addresses: impl Iterator<Item = IpAddr>) -> Option<Bound> {
        let primary = Primary::Ip(addresses.next()?);
        Some(Bound { primary, additional: addresses.collect() })
    }

    fn bind(self, port: u16) -> Bind {
        match self.primary {
            Primary::Ip(address) => Bind::Socket { address, additional: self.additional, port },
            Primary::Unix(bind) => Bind::Unix(bind.strip_prefix("unix://").unwrap_or(&bind).into()),
        }
    }
}

/// A listener under construction.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    /// Its bind addresses.
    pub(crate) bound: Bound,
    /// Whether it binds to the port.
    pub(crate) bind_to_port: bool,
    /// The port.
    pub(crate) port: u16,
    /// The protocol so far; [`Protocol::Unsupported`] if the HTTP inspector decides.
    pub(crate) protocol: Protocol,
    /// The filter chains so far.
    pub(crate) chains: Vec<Chain>,
    /// The matches of the chains, for [`Entry::merge`].
    taken: Taken,
}

/// The effect of another service port on an existing listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// Nothing is added: HTTP services share a listener and differ in their routes.
    Shared,
    /// Its filter chains are added, and the HTTP inspector decides.
    Sniffed,
    /// Its TCP filter chains are added.
    Merged,
    /// It replaces the listener.
    Replaced,
    /// It is dropped: HTTP detection would break a server-first protocol.
    Refused,
}

/// The effect of a service port on a listener with protocol `here`.
pub(crate) fn meeting(here: Protocol, other: Protocol) -> Meeting {
    if other.is_http() && !here.is_tcp() {
        return Meeting::Shared;
    }
    let server_first = |p| matches!(p, Protocol::Mongo | Protocol::Mysql);
    if (server_first(other) || server_first(here)) && other != here {
        return Meeting::Refused;
    }
    match (other.is_unsupported(), here) {
        (true, here) if here.is_http() => Meeting::Replaced,
        (true, here) if here.is_tcp() => Meeting::Sniffed,
        (true, _) => Meeting::Merged,
        // HTTP with TCP; other HTTP services share.
        (false, _) if other.is_http() => Meeting::Sniffed,
        (false, here) if here.is_http() => Meeting::Sniffed,
        (false, _) => Meeting::Merged,
    }
}

impl Entry {
    /// A listener without filter chains.
    pub(crate) fn new(bound: Bound, bind_to_port: bool, port: u16, protocol: Protocol) -> Entry {
        Entry { bound, bind_to_port, port, protocol, chains: Vec::new(), taken: Taken::default() }
    }

    /// Adds filter chains without matches that exist already.
    pub(crate) fn merge(&mut self, chains: Vec<Chain>) {
        for chain in chains {
            self.taken.add(&mut self.chains, chain);
        }
    }

    /// Adds these DNS caches to the HTTP chains.
    pub(crate) fn add_dns_caches(&mut self, caches: &[DnsCache]) {
        for chain in &mut self.chains {
            if let ChainKind::Http(http) = &mut chain.kind {
                let new = caches.iter().filter(|cache| !http.dns_caches.contains(cache));
                let new: Vec<DnsCache> = new.cloned().collect();
                http.dns_caches.extend(new);
            }
        }
    }

    /// The complete listener. `fallback` is the default filter chain, unless a chain matches everything.
    pub(crate) fn finish(self, name: Arc<str>, fallback: &ChainSpec, settings: Settings) -> ListenerSpec {
        let tls_inspector = self.chains.iter().any(|c| !c.sni.is_empty());
        let http_inspector = self.chains.iter().any(|c| c.inspected);
        let mut chains = Vec::new();
        let mut default_chain = None;
        for chain in self.chains {
            if chain.matches_all() {
                default_chain = Some(chain.into_spec());
            } else {
                chains.push(chain.into_spec());
            }
        }
        match default_chain.take() {
            // A single chain needs no match.
            Some(only) if chains.is_empty() => chains.push(only),
            Some(all) => default_chain = Some(all),
            None => default_chain = Some(fallback.clone()),
        }
        ListenerSpec {
            name,
            bind: self.bound.bind(self.port),
            bind_to_port: self.bind_to_port,
            transport: Transport::Tcp,
            direction: Direction::Outbound,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector,
            http_inspector,
            server_first_ports: Vec::new(),
            inspection_timeout_ms: Some(if http_inspector { settings.detection_timeout_ms } else { 0 }),
            chains: chains.into(),
            default_chain: default_chain.map(Box::new),
            idle_timeout_ms: settings.idle_timeout_ms,
            exact_balance: settings.exact_balance,
            exclusive: false,
            policies: Default::default(),
            internal: [].into(),
            capabilities: settings.capabilities,
            overrides: None,
            trace_identity: Arc::default(),
        }
    }
}

/// Common settings of an audience's listeners.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Settings {
    /// How long inspectors wait for the first bytes, in milliseconds; 0 for no limit.
    pub(crate) detection_timeout_ms: u64,
    /// See [`ListenerSpec::idle_timeout_ms`].
    pub(crate) idle_timeout_ms: Option<u64>,
    /// See [`ListenerSpec::exact_balance`].
    pub(crate) exact_balance: bool,
    /// Optional filters that the proxy supports.
    pub(crate) capabilities: Capabilities,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::chain::to_cluster;

    fn entry(protocol: Protocol) -> Entry {
        let bound = Bound { primary: Primary::Ip([0, 0, 0, 0].into()), additional: Vec::new() };
        let mut entry = Entry::new(bound, false, 80, protocol);
        entry.merge(vec![Chain::any(to_cluster("first"))]);
        entry
    }

    #[test]
    fn a_chain_is_compared_only_with_chains_that_share_a_match() {
        let chain = |names: &[&str], networks: &[&str]| Chain {
            sni: names.iter().map(|name| Arc::from(*name)).collect(),
            subnets: networks.iter().map(|network| network.parse().unwrap()).collect(),
            ..Chain::any(to_cluster("c"))
        };
        let mut merged = entry(Protocol::Tls);
        merged.merge((0..100).map(|n| chain(&[&format!("host-{n}")], &[])).collect());
        merged.merge((0..100).map(|n| chain(&[], &[&format!("10.0.0.{n}/32")])).collect());
        assert_eq!(merged.chains.len(), 201);
        let rivals = |chain: &Chain| merged.taken.rivals(chain).into_iter().collect::<Vec<_>>();
        assert!(rivals(&chain(&["new"], &[])).is_empty());
        assert_eq!(rivals(&chain(&["new", "host-7", "host-3"], &["10.0.0.1/32"])), [4, 8]);
        assert_eq!(rivals(&chain(&[], &["10.0.0.5/32"])), [106]);
        assert_eq!(rivals(&chain(&["*"], &[])), [0]);
    }

    #[test]
    fn meetings() {
        use Meeting::*;
        use Protocol::{Grpc, Http, Mongo, Mysql, Redis, Tcp, Unsupported};
        let cases = [
            (Http, Http, Shared),
            (Http, Grpc, Shared),
            (Unsupported, Http, Shared),
            (Tcp, Http, Sniffed),
            (Http, Tcp, Sniffed),
            (Tcp, Unsupported, Sniffed),
            (Tcp, Tcp, Merged),
            (Unsupported, Tcp, Merged),
            (Unsupported, Unsupported, Merged),
            (Http, Unsupported, Replaced),
            (Mongo, Http, Refused),
            (Mongo, Tcp, Refused),
            (Tcp, Mysql, Refused),
            (Mongo, Mongo, Merged),
            (Redis, Tcp, Merged),
        ];
        for (here, other, want) in cases {
            assert_eq!(meeting(here, other), want, "{other} meets {here}");
        }
    }

    #[test]
    fn the_first_of_two_equal_chains_stays() {
        let mut e = entry(Protocol::Tcp);
        e.merge(vec![Chain::any(to_cluster("second"))]);
        assert_eq!(e.chains, [Chain::any(to_cluster("first"))]);
    }

    #[test]
    fn what_matches_everything_is_the_default_unless_alone() {
        let fallback = Chain::any(to_cluster("fallback")).into_spec();
        let settings = Settings {
            detection_timeout_ms: 5,
            idle_timeout_ms: None,
            exact_balance: false,
            capabilities: Capabilities::default(),
        };
        let alone = entry(Protocol::Tcp).finish("l".into(), &fallback, settings);
        assert_eq!((alone.chains.len(), alone.default_chain), (1, None));
        assert_eq!((alone.http_inspector, alone.inspection_timeout_ms), (false, Some(0)));

        let mut both = entry(Protocol::Unsupported);
        both.merge(vec![Chain { inspected: true, ..Chain::any(to_cluster("http")) }]);
        let both = both.finish("l".into(), &fallback, settings);
        assert_eq!(both.chains.len(), 1);
        assert_eq!(both.default_chain.as_deref(), Some(&Chain::any(to_cluster("first")).into_spec()));
        assert_eq!((both.http_inspector, both.inspection_timeout_ms), (true, Some(5)));

        let mut named = entry(Protocol::Tls);
        named.chains[0].sni = vec!["a".into()];
        let named = named.finish("l".into(), &fallback, settings);
        assert!(named.tls_inspector);
        assert_eq!(named.default_chain.as_deref(), Some(&fallback));
    }
}
