//! Parses `resolv.conf`.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// The port of name servers.
const PORT: u16 = 53;
/// The most name servers and search domains that are read.
const MAX: usize = 32;

/// The parts of `resolv.conf` that matter to a proxy. Applications expand names with search domains themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvConf {
    /// The name servers.
    pub servers: Vec<SocketAddr>,
    /// The first search domain, in lower case, without a trailing dot.
    pub search: Option<String>,
    /// Whether name servers are asked over TCP only (`options use-vc`).
    pub tcp_only: bool,
}

impl ResolvConf {
    /// Parses the text of a file. Lines that are not understood are skipped, as resolvers do.
    #[must_use]
    pub fn parse(text: &str) -> ResolvConf {
        let mut conf = ResolvConf::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if conf.servers.len() < MAX => conf.servers.extend(words.next().and_then(server)),
                // The last line counts.
                Some("search" | "domain") => {
                    let first = words.next().map(|domain| domain.trim_end_matches('.').to_ascii_lowercase());
                    conf.search = first.filter(|domain| !domain.is_empty());
                }
                Some("options") => conf.tcp_only |= words.any(|word| word == "use-vc"),
                _ => {}
            }
        }
        conf
    }
}

/// An address of a name server, which may have a zone: `fe80::1%eth0`.
fn server(text: &str) -> Option<SocketAddr> {
    let Some((address, zone)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse().ok()?, PORT));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let interface = |zone: &str| {
        let known = !zone.contains('/') && zone != "..";
        known.then(|| fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok()?.trim().parse().ok()).flatten()
    };
    let index = zone.parse().ok().or_else(|| interface(zone))?;
    Some(SocketAddrV6::new(address, PORT, 0, index).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_are_read_as_resolvers_read_them() {
        let text = "# a comment\nsearch NS.svc.cluster.local. svc.cluster.local\nnameserver 10.0.0.10 ; kube-dns\n\
                    nameserver fd00::a\nnameserver fe80::1%7\nnameserver fe80::1%none\nnameserver nonsense\nnameserver\n\
                    options ndots:5 use-vc\nsortlist 1\n";
        let conf = ResolvConf::parse(text);
        let servers: Vec<_> = conf.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.10:53", "[fd00::a]:53", "[fe80::1%7]:53"]);
        assert_eq!((conf.search.as_deref(), conf.tcp_only), (Some("ns.svc.cluster.local"), true));
        assert_eq!(ResolvConf::parse("search a b\ndomain c").search.as_deref(), Some("c"), "the last line counts");
        assert_eq!(ResolvConf::parse(&"nameserver 1.1.1.1\n".repeat(100)).servers.len(), MAX);
        assert_eq!(ResolvConf::parse("search .\n"), ResolvConf::default());
    }

    proptest! {
        #[test]
        fn any_text_is_read_within_the_limits(text in "(?s)((nameserver|search|options|domain)?[ \t]*[0-9a-f:.%/ #;]{0,20}\n?){0,50}.*") {
            let conf = ResolvConf::parse(&text);
            prop_assert!(conf.servers.len() <= MAX && conf.servers.iter().all(|server| server.port() == PORT));
            prop_assert!(conf.search.is_none_or(|domain| !domain.is_empty() && !domain.ends_with('.')));
        }
    }
}
