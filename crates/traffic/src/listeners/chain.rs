//! Filter chains while a listener is being put together: what they match, and when two of them would be one to Envoy.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::listener::{ChainKind, ChainMatch, ChainSpec, TcpChain};
use model::tls::ServerContext;

/// Transport protocol of connections that do not begin with TLS.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";
/// Transport protocol of connections that begin with TLS.
pub(crate) const TLS: &str = "tls";
/// The cluster of connections that go nowhere.
pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
/// The cluster of connections that go where the application wanted.
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
/// The cluster of connections to ports of the workload that nobody declared.
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";

/// A chain of an outbound or gateway listener.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chain {
    /// Server names; `*` among them means any.
    pub(crate) sni: Vec<Arc<str>>,
    /// Original destination addresses.
    pub(crate) subnets: Vec<IpNet>,
    /// Taken only by connections in which the HTTP inspector found HTTP.
    pub(crate) inspected: bool,
    /// Application protocols of TLS, one of which the client has to offer; none for any.
    pub(crate) alpn: &'static [&'static str],
    /// TLS that it terminates.
    pub(crate) tls: Option<Arc<ServerContext>>,
    /// What it does.
    pub(crate) kind: ChainKind,
}

impl Chain {
    /// A chain that takes every connection.
    pub(crate) fn any(kind: ChainKind) -> Chain {
        Chain {
            sni: Vec::new(),
            subnets: Vec::new(),
            inspected: false,
            alpn: &[],
            tls: None,
            kind,
        }
    }

    /// Whether it takes every connection.
    pub(crate) fn matches_all(&self) -> bool {
        (self.sni.is_empty() || self.any_sni()) && !self.inspected && self.alpn.is_empty() && self.networks().is_empty()
    }

    /// What is left of the chain beside an earlier one, which has what both match; none where nothing is left. Envoy
    /// refuses a listener with two chains for the same name at the same network.
    pub(crate) fn beside(mut self, earlier: &Chain) -> Option<Chain> {
        if self.inspected != earlier.inspected || self.alpn != earlier.alpn {
            return Some(self);
        }
        let (names, networks) = (self.names(), self.networks());
        let (taken_names, taken_networks) = (earlier.names(), earlier.networks());
        let overlap = shares(&names, &taken_names) && shares(&networks, &taken_networks);
        if !overlap {
            return Some(self);
        }
        // One of the two has to give way. Names do, unless they are the same anyhow.
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

    /// The chain as it is to be encoded. Outbound chains have no names.
    pub(crate) fn into_spec(self) -> ChainSpec {
        let matches = ChainMatch {
            destination_port: None,
            prefix_ranges: self.networks().into_iter().collect(),
            server_names: self.names().into_iter().cloned().collect(),
            transport_protocol: self.inspected.then_some(RAW_BUFFER),
            application_protocols: match &self.kind {
                ChainKind::Http(http) if self.inspected => plaintext_http(http.accepts_http10),
                _ if self.inspected => plaintext_http(false),
                _ => self.alpn.to_vec(),
            },
        };
        ChainSpec {
            name: "".into(),
            matches,
            tls: self.tls,
            kind: self.kind,
        }
    }

    fn any_sni(&self) -> bool {
        self.sni.iter().any(|name| &**name == "*")
    }

    /// Server names; none for any.
    fn names(&self) -> BTreeSet<&Arc<str>> {
        let any = self.any_sni();
        self.sni.iter().filter(|_| !any).collect()
    }

    /// Networks, without host bits; an unspecified address says nothing.
    fn networks(&self) -> BTreeSet<IpNet> {
        self.subnets
            .iter()
            .filter(|net| !net.addr().is_unspecified())
            .map(IpNet::trunc)
            .collect()
    }
}

/// What the HTTP inspector reports for plain-text HTTP. HTTP/1.0 is left out where it is not accepted: matching it would only
/// lead to a refusal, while as TCP it passes.
pub(crate) fn plaintext_http(accepts_http10: bool) -> Vec<&'static str> {
    let old = accepts_http10.then_some("http/1.0");
    old.into_iter().chain(["http/1.1", "h2c"]).collect()
}

/// Whether two conditions, each a list of which one has to hold or none for no condition, have an entry in common.
fn shares<T: Ord>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> bool {
    a.is_empty() && b.is_empty() || !a.is_disjoint(b)
}

/// A chain that passes every byte to one cluster, which its statistics are named after.
pub(crate) fn to_cluster(cluster: &str) -> ChainKind {
    ChainKind::Tcp(all_to_cluster(cluster))
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(sni: &[&str], subnets: &[&str]) -> Chain {
        let sni = sni.iter().map(|s| Arc::from(*s)).collect();
        Chain {
            sni,
            subnets: subnets.iter().map(|s| s.parse().unwrap()).collect(),
            ..Chain::any(to_cluster("c"))
        }
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
        assert_eq!(
            left(&chain(&[], &["1.2.3.4/8"]), &chain(&[], &["1.5.6.7/16"])),
            networks(&["1.0.0.0/8"])
        );
        assert_eq!(
            left(&chain(&[], &["1.0.0.0/8", "2.0.0.0/8"]), &chain(&[], &["1.0.0.0/8"])),
            networks(&["2.0.0.0/8"])
        );
        assert_eq!(left(&chain(&[], &["0.0.0.0/0"]), &chain(&[], &[])), None);
        assert_eq!(left(&chain(&["*", "a"], &[]), &chain(&[], &[])), None);
        let inspected = Chain {
            inspected: true,
            ..chain(&[], &[])
        };
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
