//! Filter chains under construction: match conditions, and removal of matches that Envoy would reject as duplicates.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::IpNet;
use model::listener::{ChainKind, ChainMatch, ChainSpec, TcpChain};
use model::tls::ServerContext;

/// Transport protocol of connections without TLS.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";
/// Transport protocol of TLS connections.
pub(crate) const TLS: &str = "tls";
/// The cluster without endpoints.
pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
/// The cluster of the original destination.
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
/// The cluster of undeclared ports of the workload.
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";

/// One match of a filter chain: a server name; without names, a network; without networks, everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum MatchKey {
    Name(Arc<str>),
    Network(IpNet),
    Any,
}

/// A filter chain of an outbound or gateway listener.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chain {
    /// Server names; `*` matches any.
    pub(crate) sni: Vec<Arc<str>>,
    /// Original destination addresses.
    pub(crate) subnets: Vec<IpNet>,
    /// Matches only if the HTTP inspector detected HTTP.
    pub(crate) inspected: bool,
    /// Matches only connections without TLS.
    pub(crate) plain: bool,
    /// ALPN, of which the client must offer one; empty for any.
    pub(crate) alpn: &'static [&'static str],
    /// TLS that it terminates.
    pub(crate) tls: Option<Arc<ServerContext>>,
    /// Its network filter.
    pub(crate) kind: ChainKind,
}

impl Chain {
    /// A filter chain that matches every connection.
    pub(crate) fn any(kind: ChainKind) -> Chain {
        Chain { sni: Vec::new(), subnets: Vec::new(), inspected: false, plain: false, alpn: &[], tls: None, kind }
    }

    /// Whether it matches every connection.
    pub(crate) fn matches_all(&self) -> bool {
        (self.sni.is_empty() || self.any_sni())
            && !self.inspected
            && !self.plain
            && self.alpn.is_empty()
            && self.networks().is_empty()
    }

    /// The chain without matches that an earlier chain has; none if nothing is left. Envoy rejects duplicate matches of
    /// server name and network.
    pub(crate) fn beside(mut self, earlier: &Chain) -> Option<Chain> {
        if self.inspected != earlier.inspected || self.plain != earlier.plain || self.alpn != earlier.alpn {
            return Some(self);
        }
        let (names, networks) = (self.names(), self.networks());
        let (taken_names, taken_networks) = (earlier.names(), earlier.networks());
        let overlap = shares(&names, &taken_names) && shares(&networks, &taken_networks);
        if !overlap {
            return Some(self);
        }
        // One of the two conditions must be reduced: the names, unless they are equal.
        let (names_differ, networks_differ) = (names != taken_names, networks != taken_networks);
        let left_names: Vec<Arc<str>> = names.difference(&taken_names).map(|n| (*n).clone()).collect();
        let left_networks: Vec<IpNet> = networks.difference(&taken_networks).copied().collect();
        if names_differ && !left_names.is_empty() {
            self.sni = left_names;
            return Some(self);
        }
        if !names_differ && networks_differ && !left_networks.is_empty() {
            self.subnets = left_networks;
            return Some(self);
        }
        None
    }

    /// The keys under which chains that may have matches in common with this one are found: two chains without a common key
    /// have none.
    fn keys(&self) -> Vec<MatchKey> {
        let names = self.names();
        if !names.is_empty() {
            return names.into_iter().cloned().map(MatchKey::Name).collect();
        }
        let networks = self.networks();
        match networks.is_empty() {
            true => vec![MatchKey::Any],
            false => networks.into_iter().map(MatchKey::Network).collect(),
        }
    }

    /// The complete filter chain. Outbound chains have no names.
    pub(crate) fn into_spec(self) -> ChainSpec {
        let matches = ChainMatch {
            destination_port: None,
            prefix_ranges: self.networks().into_iter().collect(),
            server_names: self.names().into_iter().cloned().collect(),
            transport_protocol: (self.inspected || self.plain).then_some(RAW_BUFFER),
            application_protocols: match &self.kind {
                ChainKind::Http(http) if self.inspected => plaintext_http(http.accepts_http10),
                _ if self.inspected => plaintext_http(false),
                _ => self.alpn,
            },
        };
        ChainSpec { name: "".into(), matches, tls: self.tls, kind: self.kind }
    }

    fn any_sni(&self) -> bool {
        self.sni.iter().any(|name| &**name == "*")
    }

    /// Server names; none for any.
    fn names(&self) -> BTreeSet<&Arc<str>> {
        let any = self.any_sni();
        self.sni.iter().filter(|_| !any).collect()
    }

    /// Networks without host bits; an unspecified address matches everything.
    fn networks(&self) -> BTreeSet<IpNet> {
        self.subnets.iter().filter(|net| !net.addr().is_unspecified()).map(IpNet::trunc).collect()
    }
}

/// The positions of the chains of a list that have a match.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Taken(HashMap<MatchKey, Vec<usize>>);

impl Taken {
    /// Adds a chain to the list, without the matches that earlier ones have; nothing if none is left.
    pub(crate) fn add(&mut self, list: &mut Vec<Chain>, chain: Chain) {
        let left = self.rivals(&chain).into_iter().try_fold(chain, |left, earlier| left.beside(&list[earlier]));
        let Some(chain) = left else { return };
        for key in chain.keys() {
            self.0.entry(key).or_default().push(list.len());
        }
        list.push(chain);
    }

    /// The positions of the chains that may have a match of this one, in order.
    pub(crate) fn rivals(&self, chain: &Chain) -> BTreeSet<usize> {
        chain.keys().iter().filter_map(|key| self.0.get(key)).flatten().copied().collect()
    }
}

/// The protocols that the HTTP inspector reports for plain-text HTTP. HTTP/1.0 is omitted if it is not accepted: as
/// HTTP it would be rejected, as TCP it passes.
pub(crate) fn plaintext_http(accepts_http10: bool) -> &'static [&'static str] {
    if accepts_http10 { &["http/1.0", "http/1.1", "h2c"] } else { &["http/1.1", "h2c"] }
}

/// Whether two conditions, each a list of alternatives or empty for no condition, have a common alternative.
fn shares<T: Ord>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> bool {
    a.is_empty() && b.is_empty() || !a.is_disjoint(b)
}

/// A TCP proxy to one cluster, whose name is the statistics prefix.
pub(crate) fn to_cluster(cluster: &str) -> ChainKind {
    ChainKind::Tcp(all_to_cluster(cluster))
}

/// The default filter chain of services' listeners.
pub(crate) fn fallback(unknown_cluster: &str) -> ChainSpec {
    let name = "PassthroughFilterChain".into();
    ChainSpec { name, matches: ChainMatch::default(), tls: None, kind: to_cluster(unknown_cluster) }
}

/// See [`to_cluster`].
pub(crate) fn all_to_cluster(cluster: &str) -> TcpChain {
    let cluster: Arc<str> = cluster.into();
    TcpChain {
        stat_prefix: cluster.clone(),
        clusters: vec![(cluster, 1)],
        idle_timeout_ms: None,
        max_connection_duration_ms: None,
        hash_source_ip: false,
        mongo: false,
        tunnel: None,
        by_server_name: None,
        between_networks: false,
        origin: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(sni: &[&str], subnets: &[&str]) -> Chain {
        let sni = sni.iter().map(|s| Arc::from(*s)).collect();
        Chain { sni, subnets: subnets.iter().map(|s| s.parse().unwrap()).collect(), ..Chain::any(to_cluster("c")) }
    }

    fn left(later: &Chain, earlier: &Chain) -> Option<(Vec<String>, Vec<String>)> {
        let left = later.clone().beside(earlier)?.into_spec().matches;
        let networks = left.prefix_ranges.iter().map(ToString::to_string).collect();
        Some((left.server_names.iter().map(ToString::to_string).collect(), networks))
    }

    #[test]
    fn what_an_earlier_chain_has_is_not_given_twice() {
        let names = |list: &[&str]| Some((list.iter().map(ToString::to_string).collect(), Vec::new()));
        let networks = |list: &[&str]| Some((Vec::new(), list.iter().map(ToString::to_string).collect()));
        assert_eq!(left(&chain(&["a", "b"], &[]), &chain(&["b", "a"], &[])), None);
        assert_eq!(left(&chain(&["a", "b"], &[]), &chain(&["b", "c"], &[])), names(&["a"]));
        assert_eq!(left(&chain(&["a"], &[]), &chain(&["b"], &[])), names(&["a"]));
        assert_eq!(left(&chain(&["a"], &[]), &chain(&[], &[])), names(&["a"]));
        assert_eq!(left(&chain(&[], &["1.2.3.4/8"]), &chain(&[], &["1.5.6.7/8"])), None);
        assert_eq!(left(&chain(&[], &["1.2.3.4/8"]), &chain(&[], &["1.5.6.7/16"])), networks(&["1.0.0.0/8"]));
        assert_eq!(
            left(&chain(&[], &["1.0.0.0/8", "2.0.0.0/8"]), &chain(&[], &["1.0.0.0/8"])),
            networks(&["2.0.0.0/8"])
        );
        assert_eq!(left(&chain(&[], &["0.0.0.0/0"]), &chain(&[], &[])), None);
        assert_eq!(left(&chain(&["*", "a"], &[]), &chain(&[], &[])), None);
        let inspected = Chain { inspected: true, ..chain(&[], &[]) };
        assert_eq!(left(&inspected, &chain(&[], &[])), names(&[]));
    }

    #[test]
    fn networks_keep_names_apart() {
        let earlier = chain(&["a", "b"], &["1.0.0.0/8"]);
        let elsewhere = Some((vec!["a".to_owned()], vec!["2.0.0.0/8".to_owned()]));
        assert_eq!(left(&chain(&["a"], &["2.0.0.0/8"]), &earlier), elsewhere);
        assert_eq!(left(&chain(&["a"], &["1.0.0.0/8", "2.0.0.0/8"]), &earlier), None);
        let same = Some((vec!["a".to_owned(), "b".to_owned()], vec!["2.0.0.0/8".to_owned()]));
        assert_eq!(left(&chain(&["a", "b"], &["1.0.0.0/8", "2.0.0.0/8"]), &earlier), same);
    }

    #[test]
    fn any_server_name_is_no_condition() {
        let any = chain(&["*", "a"], &[]);
        assert!(any.matches_all());
        assert_eq!(any.into_spec().matches, ChainMatch::default());
        let spec = chain(&["b", "a"], &["10.1.2.3/8"]).into_spec();
        assert_eq!(spec.matches.server_names, ["a".into(), "b".into()]);
        assert_eq!(spec.matches.prefix_ranges, ["10.0.0.0/8".parse::<IpNet>().unwrap()]);
    }
}
