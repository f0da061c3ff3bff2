//! The facts of the host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use interception::{Config, Host};

use crate::ExecError;
use crate::process::Runner;

/// The user of the proxy if `ENVOY_USER` names no other.
const PROXY_USER: &str = "istio-proxy";

/// Collects the facts of the network namespace that the rules depend on. `proxy_user` is the value of `ENVOY_USER`.
///
/// # Errors
/// `ip` cannot be run.
pub fn host(config: &Config, proxy_user: Option<&str>) -> Result<Host, ExecError> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let users = ids(&read("/etc/passwd"));
    let arguments = ["-o", "addr", "show"].map(str::to_owned);
    Ok(Host {
        addresses: addresses(&Runner::new(config).run("ip", &arguments, "")?),
        nameservers: nameservers(&read("/etc/resolv.conf")),
        proxy_user: users.get(proxy_user.unwrap_or(PROXY_USER)).copied(),
        groups: if config.names_owners() { ids(&read("/etc/group")) } else { BTreeMap::new() },
        users: if config.names_owners() { users } else { BTreeMap::new() },
    })
}

/// The addresses in the output of `ip -o addr show`: the fourth word of each line, after its family.
fn addresses(output: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "inet" && *word != "inet6").skip(1);
        words.next()?.split('/').next()?.parse().ok()
    };
    output.lines().filter_map(address).collect()
}

/// The DNS servers of a `resolv.conf`.
fn nameservers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)?.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

/// The numbers by name in a file like `/etc/passwd` or `/etc/group`.
fn ids(text: &str) -> BTreeMap<String, u32> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_files_and_programs() {
        let output = "1: lo    inet 127.0.0.1/8 scope host lo\\  valid_lft forever\n\
                      2: eth0@if3    inet 10.0.0.5 peer 10.0.0.1/32 scope global eth0\n\
                      2: eth0    inet6 fd00::5/64 scope global \\ valid_lft forever\nnoise\n";
        let expected: Vec<IpAddr> =
            ["127.0.0.1", "10.0.0.5", "fd00::5"].iter().filter_map(|text| text.parse().ok()).collect();
        assert_eq!(addresses(output), expected);
        let servers =
            nameservers("# nameserver 1.1.1.1\nnameserver 10.0.0.10\nsearch x\nnameserver fe80::1%eth0\nnameserver\n");
        assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.10", "fe80::1"]);
        let known = ids("root:x:0:0:root:/root:/bin/sh\nistio-proxy:x:1337:\nbroken\n::\n");
        assert_eq!((known.get("root"), known.get("istio-proxy"), known.len()), (Some(&0), Some(&1337), 2));
    }
}
