//! The hosts and addresses that may be asked for keys.
//!
//! Everyone who may create a RequestAuthentication chooses a URL that the control plane calls from inside of the cluster. So
//! addresses are refused that no issuer has: of the control plane's own machine, of the link, and of cloud metadata services.
//! Private addresses are allowed, because issuers often run in the cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Addresses of cloud metadata services that are not link-local: of Azure, Oracle, Alibaba and, for IPv6, AWS and Google.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];
/// Names of cloud metadata services.
const METADATA_NAMES: [&str; 3] = ["metadata.google.internal", "metadata.goog", "instance-data"];

/// Hosts and addresses of a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// The addresses of a network.
    Network(IpNet),
    /// A host, or (`*.example.com`) the hosts below a domain; in lower case.
    Host(Box<str>),
}

/// The text is neither a network, nor an address, nor a host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is neither a CIDR range, nor an address, nor a host name")]
pub struct GuardError(String);

impl std::str::FromStr for Pattern {
    type Err = GuardError;

    fn from_str(text: &str) -> Result<Pattern, GuardError> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Pattern::Network(network.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Pattern::Network(address.into()));
        }
        let labels = text.strip_prefix("*.").unwrap_or(text);
        let is_name = labels.split('.').all(|label| {
            let ends = !label.starts_with('-') && !label.ends_with('-');
            !label.is_empty() && ends && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
        // A host of digits only is a mistyped address.
        let is_number = labels.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match is_name && !is_number {
            true => Ok(Pattern::Host(text.to_ascii_lowercase().into())),
            false => Err(GuardError(text.to_owned())),
        }
    }
}

impl Pattern {
    fn has_host(&self, host: &str) -> bool {
        match self {
            Pattern::Network(_) => false,
            Pattern::Host(pattern) => match pattern.strip_prefix('*') {
                Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
                None => host == &**pattern,
            },
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, Pattern::Network(network) if network.contains(&address))
    }
}

/// The reason why a host or an address may not be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A setting blocks the host.
    #[error("the host {0} is blocked")]
    BlockedHost(String),
    /// A setting blocks the address.
    #[error("the address {0} is blocked")]
    BlockedAddress(IpAddr),
    /// The host is a cloud metadata service.
    #[error("the host {0} is a cloud metadata service")]
    MetadataHost(String),
    /// No issuer has the address.
    #[error("the address {0} is {1}")]
    Address(IpAddr, &'static str),
}

/// Decides which hosts and addresses may be asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// Hosts and addresses that must not be asked, in addition to the refused ones.
    pub blocked: Vec<Pattern>,
    /// Hosts and addresses that may be asked although they would be refused, unless they are blocked.
    pub allowed: Vec<Pattern>,
}

impl Guard {
    /// Whether a host may be resolved. Its addresses must be checked, too.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn host(&self, host: &str) -> Result<(), Refusal> {
        let host = normal(host);
        if self.blocked.iter().any(|pattern| pattern.has_host(&host)) {
            return Err(Refusal::BlockedHost(host));
        }
        match METADATA_NAMES.contains(&&*host) && !self.allows_host(&host) {
            true => Err(Refusal::MetadataHost(host)),
            false => Ok(()),
        }
    }

    /// Whether an address of a host may be asked.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn address(&self, host: &str, address: IpAddr) -> Result<(), Refusal> {
        let embedded = embedded(address);
        let all = || std::iter::once(address).chain(embedded);
        if all().any(|one| self.blocked.iter().any(|pattern| pattern.has_address(one))) {
            return Err(Refusal::BlockedAddress(address));
        }
        let is_allowed = |one| self.allowed.iter().any(|pattern| pattern.has_address(one));
        if self.allows_host(&normal(host)) || all().any(is_allowed) {
            return Ok(());
        }
        match all().find_map(unusual) {
            Some(what) => Err(Refusal::Address(address, what)),
            None => Ok(()),
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        self.allowed.iter().any(|pattern| pattern.has_host(host))
    }
}

fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The kind of an address that no issuer has.
fn unusual(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("one of a cloud metadata service");
    }
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let unspecified = match address {
        IpAddr::V4(v4) => v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    match address {
        _ if link_local => Some("link-local"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if unspecified => Some("unspecified"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("the broadcast address"),
        _ => None,
    }
}

/// The IPv4 address to which packets for an IPv6 address are delivered: mapped, compatible, translated (NAT64) or 6to4.
fn embedded(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
    };
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) | (0, 0, 0, 0, 0xffff, 0) => v4(g, h),
        // The unspecified and the loopback address have the form of compatible ones.
        (0, 0, 0, 0, 0, 0) if g != 0 => v4(g, h),
        (0x64, 0xff9b, 1, ..) => v4(g, h),
        (0x2002, ..) => v4(b, c),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().expect("a pattern")).collect()
    }

    fn refused(guard: &Guard, host: &str, address: &str) -> bool {
        guard.host(host).and_then(|()| guard.address(host, address.parse().expect("an address"))).is_err()
    }

    #[test]
    fn ghsa_fgw5_hp8f_xfhc_addresses_that_no_issuer_has_are_refused() {
        let guard = Guard::default();
        let never = [
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "169.254.1.1",
            "fe80::1",
            "febf::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "::ffff:0:127.0.0.1",
        ];
        for address in never {
            assert!(refused(&guard, "a.example", address), "{address}");
        }
        // Issuers in the cluster and on the Internet.
        for address in ["10.0.0.1", "192.168.1.1", "172.16.0.9", "100.64.0.1", "fd00::1", "1.1.1.1", "2606:4700::1"] {
            assert!(!refused(&guard, "a.example", address), "{address}");
        }
        assert!(refused(&guard, "Metadata.Google.Internal.", "10.0.0.1"));
    }

    #[test]
    fn settings_block_and_allow_hosts_and_networks() {
        let guard = Guard {
            blocked: patterns(&["10.0.0.0/8", "*.corp.example", "127.0.0.9"]),
            allowed: patterns(&["127.0.0.0/8", "issuer.local"]),
        };
        assert!(refused(&guard, "a.example", "10.1.2.3"));
        assert!(refused(&guard, "a.example", "::ffff:10.1.2.3"));
        assert!(refused(&guard, "A.Corp.Example", "1.1.1.1"));
        assert!(!refused(&guard, "corp.example", "1.1.1.1"));
        assert!(!refused(&guard, "a.example", "127.0.0.1"));
        assert!(refused(&guard, "a.example", "127.0.0.9"), "blocked, and therefore not allowed");
        assert!(!refused(&guard, "issuer.local", "169.254.1.1"));
        assert!(refused(&guard, "issuer.local", "10.1.1.1"));
    }

    #[test]
    fn mistyped_patterns_are_not_hosts() {
        for text in ["", "10.0.0.0/99", "10.0.0", "a..b", "*", "*.", "a b", "http://a", "-a", "10.0.0.0/8/8"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_form_of_a_refused_address_is_accepted(address in any::<u32>()) {
            let v4 = Ipv4Addr::from(address);
            let guard = Guard::default();
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            if guard.address("a", v4.into()).is_err() {
                let forms = [
                    v4.to_ipv6_mapped(),
                    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                    Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                ];
                for form in forms {
                    prop_assert!(guard.address("a", form.into()).is_err(), "{}", form);
                }
            }
        }
    }
}
