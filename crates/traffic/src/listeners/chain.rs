//! Filter chains while a listener is being put together: what they match, and when two of them would be one to Envoy.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::listener::{ChainKind, ChainMatch, ChainSpec, TcpChain};

/// Transport protocol of connections that do not begin with TLS.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";
/// What the HTTP inspector reports for plain-text HTTP. HTTP/1.0 is left out: where it is not accepted, matching it
/// would only lead to a refusal, while as TCP it passes.
pub(crate) const PLAINTEXT_HTTP: [&str; 2] = ["http/1.1", "h2c"];

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
            kind,
        }
    }

    /// Whether it takes every connection.
    pub(crate) fn matches_all(&self) -> bool {
        (self.sni.is_empty() || self.any_sni()) && !self.inspected && self.subnets.is_empty()
    }

    /// Whether Envoy could not tell the two apart and would refuse a listener with both.
    pub(crate) fn conflicts_with(&self, other: &Chain) -> bool {
        self.inspected == other.inspected && self.names() == other.names() && self.networks() == other.networks()
    }

    /// The chain as it is to be encoded. Outbound chains have no names.
    pub(crate) fn into_spec(self) -> ChainSpec {
        let matches = ChainMatch {
            destination_port: None,
            prefix_ranges: self.networks().into_iter().collect(),
            server_names: if self.any_sni() {
                Vec::new()
            } else {
                self.names().into_iter().cloned().collect()
            },
            transport_protocol: self.inspected.then_some(RAW_BUFFER),
            application_protocols: if self.inspected {
                PLAINTEXT_HTTP.to_vec()
            } else {
                Vec::new()
            },
        };
        ChainSpec {
            name: "".into(),
            matches,
            kind: self.kind,
        }
    }

    fn any_sni(&self) -> bool {
        self.sni.iter().any(|name| &**name == "*")
    }

    fn names(&self) -> BTreeSet<&Arc<str>> {
        self.sni.iter().filter(|name| &***name != "*").collect()
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

/// A chain that passes every byte to one cluster, which its statistics are named after.
pub(crate) fn to_cluster(cluster: &str) -> ChainKind {
    let cluster: Arc<str> = cluster.into();
    ChainKind::Tcp(TcpChain {
        stat_prefix: cluster.clone(),
        clusters: vec![(cluster, 1)],
        idle_timeout_ms: None,
        max_connection_duration_ms: None,
        hash_source_ip: false,
    })
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

    #[test]
    fn chains_that_envoy_cannot_tell_apart_conflict() {
        assert!(chain(&["a", "b"], &[]).conflicts_with(&chain(&["b", "a", "*"], &[])));
        assert!(!chain(&["a"], &[]).conflicts_with(&chain(&["b"], &[])));
        assert!(chain(&[], &["1.2.3.4/8"]).conflicts_with(&chain(&[], &["1.5.6.7/8"])));
        assert!(!chain(&[], &["1.2.3.4/8"]).conflicts_with(&chain(&[], &["1.5.6.7/16"])));
        assert!(chain(&[], &["0.0.0.0/0"]).conflicts_with(&chain(&[], &[])));
        let inspected = Chain {
            inspected: true,
            ..chain(&[], &[])
        };
        assert!(!inspected.conflicts_with(&chain(&[], &[])));
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
