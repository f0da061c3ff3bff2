//! Domains of a service's virtual host.

use std::net::IpAddr;
use std::sync::Arc;

use flow::Reads;
use model::service::{Registry, Resolution, Service, ServiceKey};
use names::Hostname;
use registry::Services;
use registry::inputs::Mesh;

flow::rule! {
    /// A service's virtual host name and domains, shared by all clients with the same view of them.
    pub ServiceHosts: ServiceHostKey => Arc<ServiceHost> = "service hosts", derive_service_hosts;
}

/// Decides the domains of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceHostKey {
    /// The service.
    pub service: ServiceKey,
    /// The service port.
    pub port: u16,
    /// The client is in the namespace of the Kubernetes service, so short names work.
    pub local: bool,
    /// The table serves several ports: domains include the port; without port they exist for port 80 only.
    pub with_port: bool,
    /// The client's cluster, as in `Scope`.
    pub cluster: Arc<str>,
    /// The client calls automatically assigned addresses, as in `Scope`.
    pub assigned: bool,
    /// Aliases of the service, and whether the client is in the namespace of each.
    pub aliases: Arc<[(Hostname, bool)]>,
}

/// The domains of a service at an HTTP or undeclared port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceHost {
    /// `HOST:PORT`.
    pub name: Arc<str>,
    /// The domains; the first is the hostname.
    pub domains: Vec<Arc<str>>,
    /// It is an alias: requests go to its target unless a VirtualService has routes.
    pub alias: bool,
}

fn derive_service_hosts(cx: &Reads<'_>, key: &ServiceHostKey) -> Option<Arc<ServiceHost>> {
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

/// The namespace in the hostname of a Kubernetes service, whose clients can use the short name.
pub(crate) fn local_namespace(host: &str) -> Option<&str> {
    let mut labels = host.split('.').skip(1);
    let namespace = labels.next()?;
    (labels.next() == Some("svc")).then_some(namespace)
}

/// The domains of a service: its hostname and aliases, with and without a trailing dot, short forms of Kubernetes
/// names, wildcards for headless services, and its addresses. With a port, each has the port as suffix; port 80 may be
/// omitted.
fn domains(service: &Service, mesh_domain: &str, key: &ServiceHostKey, port: Option<u16>) -> Vec<Arc<str>> {
    let own = (&service.key.hostname, key.local);
    let aliases = key.aliases.iter().map(|(alias, local)| (alias, *local));
    let all = std::iter::once(own).chain(aliases);
    let mut names: Vec<String> = all.flat_map(|(host, local)| forms(host.as_str(), mesh_domain, local)).collect();
    if service.resolution == Resolution::Passthrough && service.registry == Registry::Kubernetes {
        // Pods of a headless service have names below the service's name.
        let pods: Vec<String> = names.iter().map(|name| format!("*.{name}")).collect();
        names.extend(pods);
    }
    let single =
        service.addresses_in(&key.cluster, key.assigned).iter().filter(|net| net.prefix_len() == net.max_prefix_len());
    let addresses = single.map(|net| net.addr()).filter(|ip| !ip.is_unspecified());
    names.extend(addresses.map(|ip| bracketed(&ip.to_string())));
    with_port(names, port)
}

/// The forms of a name: itself, with a trailing dot, and the short forms of a Kubernetes name.
fn forms(host: &str, mesh_domain: &str, local: bool) -> Vec<String> {
    let mut forms = vec![bracketed(host)];
    if host.parse::<IpAddr>().is_err() {
        forms.push(format!("{host}."));
    }
    forms.extend(short_forms(host, mesh_domain, local));
    forms
}

/// The names with the port as suffix, in a table of several ports; for port 80 without the port, too.
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
    let Some(short) = host.strip_suffix(mesh_domain).and_then(|rest| rest.strip_suffix(".svc.")) else {
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

/// IPv6 addresses in a `Host` header are in brackets.
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
