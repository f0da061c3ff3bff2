//! The names under which clients call a service.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::{Registry, Resolution, Service, ServiceKey};
use names::Hostname;
use registry::Services;
use registry::inputs::Mesh;

/// A service's name and domains as a virtual host, shared by all clients that call it by the same names.
pub struct ServiceHosts;

impl Relation for ServiceHosts {
    const NAME: &'static str = "service hosts";
    type Key = ServiceHostKey;
    type Row = Arc<ServiceHost>;
}

/// What decides the names under which a service is called.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceHostKey {
    /// The service.
    pub service: ServiceKey,
    /// The port that clients call.
    pub port: u16,
    /// The client is in the namespace that the hostname of a Kubernetes service names: it may leave the namespace out.
    pub local: bool,
    /// The table serves several ports: domains have the port behind them, and only those of port 80 are there without.
    pub with_port: bool,
    /// The client's cluster, as in `Scope`.
    pub cluster: Arc<str>,
    /// The client dials the addresses that services were assigned, as in `Scope`.
    pub assigned: bool,
    /// Other services that are names of this one, and whether the client is in the namespace that such a name names.
    pub aliases: Arc<[(Hostname, bool)]>,
}

/// How a service is called at one port that speaks HTTP, or may do so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceHost {
    /// `HOST:PORT`.
    pub name: Arc<str>,
    /// The domains; the first is the hostname.
    pub domains: Vec<Arc<str>>,
    /// It is an alias: requests to it are those to another service, unless a VirtualService says otherwise.
    pub alias: bool,
}

impl Rule for ServiceHosts {
    fn derive(cx: &Reads<'_>, key: &ServiceHostKey) -> Option<Arc<ServiceHost>> {
        let service = cx.get::<Services>(&key.service)?;
        let protocol = service.port(key.port)?.protocol;
        if !protocol.is_http() && !protocol.is_unsupported() {
            return None;
        }
        let mesh = cx.get::<Mesh>(&())?;
        let port = key.with_port.then_some(key.port);
        Some(Arc::new(ServiceHost {
            name: format!("{}:{}", key.service.hostname, key.port).into(),
            domains: domains(&service, &mesh.domain, key, port),
            alias: service.resolution == Resolution::Alias,
        }))
    }
}

/// The namespace whose clients may leave the namespace out when they call this host: that of a Kubernetes name.
pub(crate) fn local_namespace(host: &str) -> Option<&str> {
    let mut labels = host.split('.').skip(1);
    let namespace = labels.next()?;
    (labels.next() == Some("svc")).then_some(namespace)
}

/// The names of a service: its hostname and those of its aliases, with and without a final dot, the short forms of
/// Kubernetes names, all names below them if it is headless, and its addresses. A given port goes behind each; port 80 may be left out.
fn domains(service: &Service, mesh_domain: &str, key: &ServiceHostKey, port: Option<u16>) -> Vec<Arc<str>> {
    let own = (&service.key.hostname, key.local);
    let aliases = key.aliases.iter().map(|(alias, local)| (alias, *local));
    let all = std::iter::once(own).chain(aliases);
    let mut names: Vec<String> = all
        .flat_map(|(host, local)| forms(host.as_str(), mesh_domain, local))
        .collect();
    if service.resolution == Resolution::Passthrough && service.registry == Registry::Kubernetes {
        // The pods of a headless service have names of their own below it.
        let pods: Vec<String> = names.iter().map(|name| format!("*.{name}")).collect();
        names.extend(pods);
    }
    let single = service
        .addresses_in(&key.cluster, key.assigned)
        .iter()
        .filter(|net| net.prefix_len() == net.max_prefix_len());
    let addresses = single.map(|net| net.addr()).filter(|ip| !ip.is_unspecified());
    names.extend(addresses.map(|ip| bracketed(&ip.to_string())));
    with_port(names, port)
}

/// The forms of a name: as it is, with a final dot, and the short ones of a Kubernetes name.
fn forms(host: &str, mesh_domain: &str, local: bool) -> Vec<String> {
    let mut forms = vec![bracketed(host)];
    if host.parse::<IpAddr>().is_err() {
        forms.push(format!("{host}."));
    }
    forms.extend(short_forms(host, mesh_domain, local));
    forms
}

/// The names with the port behind them, in a table that serves several; without it, too, where it is the usual one.
pub(super) fn with_port(names: Vec<String>, port: Option<u16>) -> Vec<Arc<str>> {
    let Some(port) = port else {
        return names.into_iter().map(Arc::from).collect();
    };
    let behind: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    let plain = names.into_iter().filter(|_| port == 80);
    plain.chain(behind).map(Arc::from).collect()
}

/// The short forms of `NAME.NAMESPACE.svc.DOMAIN`; none for other hosts.
pub(crate) fn short_forms(host: &str, mesh_domain: &str, local: bool) -> Vec<String> {
    let Some(short) = host
        .strip_suffix(mesh_domain)
        .and_then(|rest| rest.strip_suffix(".svc."))
    else {
        return Vec::new();
    };
    let Some((name, _)) = short.split_once('.') else {
        return Vec::new();
    };
    let full = format!("{short}.svc");
    match local {
        true => vec![name.to_owned(), full, short.to_owned()],
        false => vec![short.to_owned(), full],
    }
}

/// A `Host` header has IPv6 addresses in brackets.
pub(super) fn bracketed(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_depend_on_the_client() {
        let host = "a.ns.svc.cluster.local";
        assert_eq!(short_forms(host, "cluster.local", true), ["a", "a.ns.svc", "a.ns"]);
        assert_eq!(short_forms(host, "cluster.local", false), ["a.ns", "a.ns.svc"]);
        assert!(short_forms("a.com", "cluster.local", true).is_empty());
        assert!(short_forms("svc.cluster.local", "cluster.local", true).is_empty());
        assert_eq!(local_namespace(host), Some("ns"));
        assert_eq!(local_namespace("a.ns.com"), None);
    }

    #[test]
    fn addresses() {
        assert_eq!(bracketed("2001:DB8::1"), "[2001:db8::1]");
        assert_eq!(bracketed("10.0.0.1"), "10.0.0.1");
        assert_eq!(bracketed("a.b"), "a.b");
    }
}
