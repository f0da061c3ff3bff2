//! One outbound listener while services are added to it, and what happens when several want the same address and port.

use std::net::IpAddr;
use std::sync::Arc;

use model::listener::{Bind, ChainKind, ChainSpec, Direction, DnsCache, ListenerSpec};
use model::proxy::Capabilities;
use names::Protocol;

use super::chain::Chain;

/// The first address that a listener is bound to; with the port it names the listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Primary {
    /// An address.
    Ip(IpAddr),
    /// A Unix domain socket, as written (`unix://PATH`).
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

/// Where a listener is bound.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Bound {
    /// The address that names it.
    pub(crate) primary: Primary,
    /// Further addresses.
    pub(crate) additional: Vec<IpAddr>,
}

impl Bound {
    /// Bound to the first of these addresses, and to the others besides.
    pub(crate) fn to(mut addresses: impl Iterator<Item = IpAddr>) -> Option<Bound> {
        let primary = Primary::Ip(addresses.next()?);
        Some(Bound {
            primary,
            additional: addresses.collect(),
        })
    }

    fn bind(self, port: u16) -> Bind {
        match self.primary {
            Primary::Ip(address) => Bind::Socket {
                address,
                additional: self.additional,
                port,
            },
            Primary::Unix(bind) => Bind::Unix(bind.strip_prefix("unix://").unwrap_or(&bind).into()),
        }
    }
}

/// A listener that is being put together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    /// Where it is bound.
    pub(crate) bound: Bound,
    /// Whether it is bound for real.
    pub(crate) bind_to_port: bool,
    /// The port.
    pub(crate) port: u16,
    /// What it speaks so far; [`Protocol::Unsupported`] once the HTTP inspector decides.
    pub(crate) protocol: Protocol,
    /// Its chains so far.
    pub(crate) chains: Vec<Chain>,
}

/// What a newcomer means for a listener that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// Nothing is added: HTTP services share a listener and differ in their routes.
    Shared,
    /// The newcomer's chains are added, the inspector decides from now on.
    Sniffed,
    /// The newcomer's TCP chains are added.
    Merged,
    /// The newcomer takes the place.
    Replaced,
    /// The newcomer is left out: looking for HTTP would break a protocol in which the server speaks first.
    Refused,
}

/// What a service port means for a listener that speaks `here` so far.
pub(crate) fn meeting(here: Protocol, newcomer: Protocol) -> Meeting {
    if newcomer.is_http() && !here.is_tcp() {
        return Meeting::Shared;
    }
    let shy = |p| matches!(p, Protocol::Mongo | Protocol::Mysql);
    if (shy(newcomer) || shy(here)) && newcomer != here {
        return Meeting::Refused;
    }
    match (newcomer.is_unsupported(), here) {
        (true, here) if here.is_http() => Meeting::Replaced,
        (true, here) if here.is_tcp() => Meeting::Sniffed,
        (true, _) => Meeting::Merged,
        // HTTP over TCP, as all other HTTP shares.
        (false, _) if newcomer.is_http() => Meeting::Sniffed,
        (false, here) if here.is_http() => Meeting::Sniffed,
        (false, _) => Meeting::Merged,
    }
}

impl Entry {
    /// Adds what Envoy can tell from the chains that are there: the first has what several match.
    pub(crate) fn merge(&mut self, chains: Vec<Chain>) {
        for chain in chains {
            let left = self.chains.iter().try_fold(chain, |left, earlier| left.beside(earlier));
            self.chains.extend(left);
        }
    }

    /// Has the HTTP chains look names up in these caches, too.
    pub(crate) fn add_dns_caches(&mut self, caches: &[DnsCache]) {
        for chain in &mut self.chains {
            if let ChainKind::Http(http) = &mut chain.kind {
                let new = caches.iter().filter(|cache| !http.dns_caches.contains(cache));
                let new: Vec<DnsCache> = new.cloned().collect();
                http.dns_caches.extend(new);
            }
        }
    }

    /// The listener. `fallback` takes what no chain matches, unless a chain matches everything.
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
            // A single chain needs no choice.
            Some(only) if chains.is_empty() => chains.push(only),
            Some(all) => default_chain = Some(all),
            None => default_chain = Some(fallback.clone()),
        }
        ListenerSpec {
            name,
            bind: self.bound.bind(self.port),
            bind_to_port: self.bind_to_port,
            quic: false,
            direction: Direction::Outbound,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector,
            http_inspector,
            server_first_ports: Vec::new(),
            inspection_timeout_ms: Some(if http_inspector {
                settings.detection_timeout_ms
            } else {
                0
            }),
            chains,
            default_chain,
            idle_timeout_ms: settings.idle_timeout_ms,
            exact_balance: settings.exact_balance,
            internal: [].into(),
            capabilities: settings.capabilities,
            overrides: None,
            trace_identity: Arc::default(),
        }
    }
}

/// What all listeners of an audience have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Settings {
    /// How long inspectors wait for the first bytes, in milliseconds; 0 for ever.
    pub(crate) detection_timeout_ms: u64,
    /// See [`ListenerSpec::idle_timeout_ms`].
    pub(crate) idle_timeout_ms: Option<u64>,
    /// See [`ListenerSpec::exact_balance`].
    pub(crate) exact_balance: bool,
    /// Optional filters of the proxy.
    pub(crate) capabilities: Capabilities,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::chain::to_cluster;

    fn entry(protocol: Protocol) -> Entry {
        Entry {
            bound: Bound {
                primary: Primary::Ip([0, 0, 0, 0].into()),
                additional: Vec::new(),
            },
            bind_to_port: false,
            port: 80,
            protocol,
            chains: vec![Chain::any(to_cluster("first"))],
        }
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
        for (here, newcomer, want) in cases {
            assert_eq!(meeting(here, newcomer), want, "{newcomer} meets {here}");
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
        both.merge(vec![Chain {
            inspected: true,
            ..Chain::any(to_cluster("http"))
        }]);
        let both = both.finish("l".into(), &fallback, settings);
        assert_eq!(both.chains.len(), 1);
        assert_eq!(both.default_chain, Some(Chain::any(to_cluster("first")).into_spec()));
        assert_eq!((both.http_inspector, both.inspection_timeout_ms), (true, Some(5)));

        let mut named = entry(Protocol::Tls);
        named.chains[0].sni = vec!["a".into()];
        let named = named.finish("l".into(), &fallback, settings);
        assert!(named.tls_inspector);
        assert_eq!(named.default_chain, Some(fallback));
    }
}
