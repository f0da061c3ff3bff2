//! WorkloadEntry and endpoints of ServiceEntries.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::decode::{Relations, Report};
use crate::form::{self, host};
use crate::istio::WorkloadEntry;
use crate::problem::FieldPath;

/// Allowed types of workload addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Addresses {
    /// Any type, because the resolution of the service is unknown.
    Any,
    /// IP addresses and Unix domain sockets, for resolution `STATIC`.
    IpOrSocket,
    /// IP addresses and DNS names, for DNS resolution.
    IpOrName,
}

impl Relations for WorkloadEntry {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let Some(socket) = self.address.strip_prefix(form::UNIX) else {
            return;
        };
        r.form(&path.field("address"), form::unix_path, socket);
        if !self.ports.is_empty() {
            let message = "ports must be empty for a Unix domain socket";
            r.error(&path.field("ports"), "exclusive-fields", message);
        }
    }
}

/// Checks an endpoint of a service with the given port names.
pub(super) fn endpoint(
    r: &mut Report,
    path: &FieldPath,
    entry: &WorkloadEntry,
    ports: &BTreeSet<&str>,
    addresses: Addresses,
) {
    address(r, path, entry, addresses);
    if entry.address.starts_with(form::UNIX) && addresses != Addresses::IpOrName && ports.len() != 1 {
        let message = "a Unix domain socket requires a service with exactly one port";
        r.error(&path.field("address"), "exclusive-fields", message);
    }
    for name in entry.ports.keys().filter(|name| !ports.contains(&***name)) {
        let at = path.field("ports").key(name.clone());
        r.error(&at, "bad-value", format!("the service has no port {name:?}"));
    }
}

/// Checks the address of a workload.
pub(super) fn address(r: &mut Report, path: &FieldPath, entry: &WorkloadEntry, addresses: Addresses) {
    let at = path.field("address");
    let address = &*entry.address;
    if address.is_empty() {
        match (&*entry.network, addresses) {
            ("", _) | (_, Addresses::IpOrName) => r.error(&at, "missing-field", "a workload requires an address"),
            (network, _) => {
                let message = format!(
                    "the workload has no address; it can only be reached through a gateway of the network {network:?}"
                );
                r.warning(&at, "ambiguous", message);
            }
        }
    } else if address.parse::<IpAddr>().is_ok() || (address.starts_with(form::UNIX) && addresses != Addresses::IpOrName)
    {
    } else if addresses == Addresses::IpOrSocket {
        let message = format!("{address:?} is not an IP address, as required by resolution STATIC");
        r.error(&at, "bad-value", message);
    } else if let Some(problem) = host::fqdn_problem(address) {
        let message = format!("{address:?} is neither an IP address nor a DNS name: {problem}");
        r.error(&at, "bad-value", message);
    }
}
