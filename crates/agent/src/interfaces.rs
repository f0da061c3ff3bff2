//! The addresses of the network interfaces.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;

/// The addresses of the interfaces with their names, without loopback, link-local and unspecified ones, in the order of the
/// kernel. Empty if the kernel does not list them.
pub(crate) fn addresses() -> Vec<(String, IpAddr)> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "the addresses of the network interfaces cannot be read; INSTANCE_IP is used alone");
            return Vec::new();
        }
    };
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (None, Some(v6)) => IpAddr::V6(v6.ip()).to_canonical(),
            _ => return None,
        };
        is_usable(ip).then_some((interface.interface_name, ip))
    };
    interfaces.filter_map(address).collect()
}

fn is_usable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_others_can_reach_are_listed() {
        for (text, usable) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_usable(text.parse().unwrap()), usable, "{text}");
        }
        assert!(addresses().iter().all(|(name, ip)| !name.is_empty() && is_usable(*ip)));
    }
}
