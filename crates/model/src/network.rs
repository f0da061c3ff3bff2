//! Networks of a mesh and their gateways.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A gateway through which other networks reach a network.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NetworkEntry {
    /// The network behind it.
    pub network: Arc<str>,
    /// Id of the gateway's cluster; empty if unknown.
    pub cluster: Arc<str>,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// The gateways of all networks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkEntries {
    entries: Vec<NetworkEntry>,
    scale: u32,
}

impl NetworkEntries {
    /// These gateways without duplicates.
    pub fn new(mut entries: Vec<NetworkEntry>) -> NetworkEntries {
        entries.sort();
        entries.dedup();
        let scale = scale(&entries);
        NetworkEntries { entries, scale }
    }

    /// Whether there are no gateways, so that networks have no effect.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The factor of weights, such that each can be divided among the gateways of any network; at least 1.
    pub fn scale(&self) -> u32 {
        self.scale.max(1)
    }

    /// The gateways to an endpoint of this network and cluster: those of its cluster, else all of the network.
    pub fn towards<'a>(&'a self, network: &'a str, cluster: &'a str) -> Vec<&'a NetworkEntry> {
        let of_network = || self.entries.iter().filter(move |e| &*e.network == network);
        let own: Vec<&NetworkEntry> = of_network().filter(|e| &*e.cluster == cluster).collect();
        match own.is_empty() {
            true => of_network().collect(),
            false => own,
        }
    }
}

/// The least common multiple of the numbers of gateways per network, and per network and cluster.
fn scale(entries: &[NetworkEntry]) -> u32 {
    let mut of_network: BTreeMap<&str, u32> = BTreeMap::new();
    let mut of_cluster: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for e in entries {
        *of_network.entry(&e.network).or_default() += 1;
        *of_cluster.entry((&e.network, &e.cluster)).or_default() += 1;
    }
    let counts = of_network.into_values().chain(of_cluster.into_values());
    // With very many gateways weights are approximate.
    counts.fold(1, |scale, count| lcm(scale, count).filter(|s| *s <= MOST).unwrap_or(scale))
}

/// The maximum factor: weights of Envoy's endpoints and their sum have 32 bits.
const MOST: u32 = 5040;

fn lcm(a: u32, b: u32) -> Option<u32> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(network: &str, cluster: &str, last: u8) -> NetworkEntry {
        NetworkEntry {
            network: network.into(),
            cluster: cluster.into(),
            address: IpAddr::from([192, 0, 2, last]),
            port: 15443,
        }
    }

    #[test]
    fn gateways_of_the_endpoints_cluster_come_first() {
        let all =
            NetworkEntries::new(vec![entry("n", "a", 1), entry("n", "b", 2), entry("n", "b", 2), entry("m", "", 3)]);
        let at = |network, cluster| -> Vec<u8> {
            let last = |e: &&NetworkEntry| match e.address {
                IpAddr::V4(ip) => ip.octets()[3],
                IpAddr::V6(_) => 0,
            };
            all.towards(network, cluster).iter().map(last).collect()
        };
        assert_eq!(at("n", "a"), [1]);
        assert_eq!(at("n", "c"), [1, 2]);
        assert_eq!(at("m", "a"), [3]);
        assert!(at("o", "a").is_empty());
    }

    #[test]
    fn weights_can_be_divided_among_all_gateways() {
        let of = |count: u8| (0..count).map(move |i| entry(&format!("n{count}"), "a", i));
        let all = NetworkEntries::new(of(2).chain(of(3)).collect());
        assert_eq!(all.scale(), 6);
        assert_eq!(NetworkEntries::new(Vec::new()).scale(), 1);
        let many = NetworkEntries::new([11, 13, 17, 19, 23].into_iter().flat_map(of).collect());
        assert!(many.scale() <= MOST);
    }
}
