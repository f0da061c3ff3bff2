//! Finds the network namespace of a pod among the processes of the node.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The network namespace that has an address: the path of one of its processes, the one that has run for the longest time. That
/// is the pause container, which does not end before the pod does. `proc` is the directory of the node's processes.
pub(crate) fn find(proc: &Path, address: IpAddr) -> Option<PathBuf> {
    // Processes by namespace, so that each namespace is looked at once.
    let mut namespaces: BTreeMap<PathBuf, (u64, PathBuf)> = BTreeMap::new();
    for entry in fs::read_dir(proc).ok()?.flatten() {
        let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        let process = entry.path();
        let (true, Ok(namespace)) = (is_process, fs::read_link(process.join("ns/net"))) else { continue };
        let started =
            fs::read_to_string(process.join("stat")).ok().and_then(|stat| start_time(&stat)).unwrap_or(u64::MAX);
        let oldest = namespaces.entry(namespace).or_insert((started, process.clone()));
        if started < oldest.0 {
            *oldest = (started, process);
        }
    }
    let has_address = |process: &Path| {
        let read = |name: &str| fs::read_to_string(process.join("net").join(name)).unwrap_or_default();
        match address {
            IpAddr::V4(_) => local_addresses(&read("fib_trie")).any(|local| local == address),
            IpAddr::V6(_) => interface_addresses(&read("if_inet6")).any(|local| local == address),
        }
    };
    let found = namespaces.into_values().find(|(_, process)| has_address(process));
    found.map(|(_, process)| process.join("ns/net"))
}

/// The time of the start in a `stat`: the 22nd field. The second one, the name in parentheses, may contain anything.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The addresses of the namespace itself in a `fib_trie`: a line with the address, then one with `host LOCAL`.
fn local_addresses(trie: &str) -> impl Iterator<Item = IpAddr> {
    let pairs = trie.lines().zip(trie.lines().skip(1));
    pairs.filter(|(_, next)| next.contains("host LOCAL")).filter_map(|(line, _)| line.rsplit(' ').next()?.parse().ok())
}

/// The addresses in an `if_inet6`: 32 hexadecimal digits at the beginning of each line.
fn interface_addresses(text: &str) -> impl Iterator<Item = IpAddr> {
    let address = |line: &str| u128::from_str_radix(line.get(..32)?, 16).ok();
    text.lines().filter_map(address).map(|bits| Ipv6Addr::from_bits(bits).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_process_with_the_address_is_found() {
        let proc = tempfile::tempdir().expect("a directory");
        let process = |pid: &str, namespace: &str, started: u64, address: &str, v6: &str| {
            let dir = proc.path().join(pid);
            fs::create_dir_all(dir.join("net")).expect("a directory");
            fs::create_dir(dir.join("ns")).expect("a directory");
            std::os::unix::fs::symlink(format!("net:[{namespace}]"), dir.join("ns/net")).expect("a link");
            let fields = "0 ".repeat(18);
            fs::write(dir.join("stat"), format!("{pid} (a) b) S {fields}{started} 0 0")).expect("a file");
            let trie = format!(
                "Local:\n  +-- 0.0.0.0/0 2 0 2\n     |-- {address}\n        /32 host LOCAL\n     |-- 10.9.9.9\n        /32 link BROADCAST\n"
            );
            fs::write(dir.join("net/fib_trie"), trie).expect("a file");
            fs::write(dir.join("net/if_inet6"), format!("{v6} 02 40 00 80 eth0\nnoise\n")).expect("a file");
        };
        process("10", "1", 500, "10.0.0.1", "00000000000000000000000000000001");
        process("21", "2", 900, "10.0.0.2", "fd000000000000000000000000000002");
        process("20", "2", 800, "10.0.0.2", "fd000000000000000000000000000002");
        fs::create_dir(proc.path().join("self")).expect("a directory");
        let find = |address: &str| find(proc.path(), address.parse().expect("an address"));
        assert_eq!(find("10.0.0.2"), Some(proc.path().join("20/ns/net")));
        assert_eq!(find("fd00::2"), Some(proc.path().join("20/ns/net")));
        assert_eq!(find("10.9.9.9"), None, "another host's");
        assert_eq!((start_time(""), start_time("1 (x) S")), (None, None));
    }
}
