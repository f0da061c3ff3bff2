//! Matches patches by names and ports.

use config::istio::envoy_filter::{
    ClusterMatch, ListenerMatch, ObjectMatch, PatchContext, RouteConfigurationMatch, VirtualHostMatch,
};
use model::audience::{GatewaySet, ProxyClass, RouteAudience};
use names::Hostname;

use crate::compile::CompiledPatch;

/// The context of a proxy's outbound configuration.
pub(crate) fn outbound<S, G>(class: &ProxyClass<S, G>) -> PatchContext {
    match class {
        ProxyClass::Gateway(_) => PatchContext::Gateway,
        _ => PatchContext::SidecarOutbound,
    }
}

/// The facts of a cluster that patches can match.
pub(crate) struct ClusterFacts<'a> {
    name: &'a str,
    port: u32,
    subset: &'a str,
    host: &'a str,
    /// The service of an inbound port, which is not part of the name.
    own: Option<&'a Hostname>,
}

impl<'a> ClusterFacts<'a> {
    /// Parses a cluster name: `DIRECTION|PORT|SUBSET|HOST`, the same with `_.` instead of bars, or another form.
    /// `own` is the service of an inbound port.
    pub(crate) fn of(name: &'a str, own: Option<&'a Hostname>) -> ClusterFacts<'a> {
        let separator = if name.contains('|') { "|" } else { "_." };
        let mut parts = name.splitn(4, separator).skip(1);
        let (port, subset, host) = (parts.next(), parts.next(), parts.next());
        let (Some(port), Some(subset), Some(host)) = (port, subset, host) else {
            return ClusterFacts { name, port: 0, subset: "", host: "", own };
        };
        ClusterFacts { name, port: port.parse().unwrap_or(0), subset, host, own }
    }

    pub(crate) fn matches(&self, patch: &CompiledPatch) -> bool {
        let Some(ObjectMatch::Cluster(wanted)) = &patch.object else {
            return patch.object.is_none();
        };
        let ClusterMatch { port_number, service, subset, name } = wanted;
        if !name.is_empty() {
            return **name == *self.name;
        }
        let host = self.own.map_or(self.host, |own| own.as_str());
        (subset.is_empty() || **subset == *self.subset)
            && (service.is_empty() || **service == *host)
            && (*port_number == 0 || *port_number == self.port)
    }
}

/// Whether a patch may match a cluster of this name, unless the name lacks the service.
pub(crate) fn may_match(patch: &CompiledPatch, name: &str) -> bool {
    match &patch.object {
        Some(ObjectMatch::Cluster(wanted)) if !wanted.name.is_empty() => *wanted.name == *name,
        Some(ObjectMatch::Cluster(wanted)) => name.ends_with(&*wanted.service),
        _ => true,
    }
}

/// The conditions on a listener; `None` for a patch that never matches listeners.
pub(crate) fn listener_match(patch: &CompiledPatch) -> Option<Option<&ListenerMatch>> {
    match &patch.object {
        None => Some(None),
        Some(ObjectMatch::Listener(wanted)) => Some(Some(wanted)),
        Some(_) => None,
    }
}

/// Whether this is the virtual inbound or outbound listener, whose filter chains belong to many ports.
pub(crate) fn is_virtual(name: &str) -> bool {
    name == "virtualInbound" || name == "virtualOutbound"
}

/// The facts of a route table that patches can match.
pub(crate) struct TableFacts<'a> {
    name: &'a str,
    /// The ports that it serves.
    ports: Vec<u32>,
    port_name: &'a str,
    /// The gateway as `namespace/name`.
    gateway: String,
    of_gateway: bool,
}

impl<'a> TableFacts<'a> {
    /// A table that is sent over RDS.
    pub(crate) fn discovered(audience: &RouteAudience, name: &'a str) -> TableFacts<'a> {
        match &audience.class {
            ProxyClass::Gateway(facts) => TableFacts::gateway(&facts.set, name),
            _ => TableFacts::sidecar(name),
        }
    }

    /// A table of a sidecar: `PORT`, or `inbound|PORT||` within a listener.
    pub(crate) fn sidecar(name: &'a str) -> TableFacts<'a> {
        let port = match name.strip_prefix("inbound|") {
            Some(rest) => rest.split('|').next().unwrap_or_default(),
            None => name,
        };
        TableFacts {
            name,
            ports: vec![port.parse().unwrap_or(0)],
            port_name: "",
            gateway: String::new(),
            of_gateway: false,
        }
    }

    /// `http.PORT` or `https.PORT.NAME.GATEWAY.NAMESPACE`, optionally followed by an address.
    fn gateway(set: &GatewaySet, name: &'a str) -> TableFacts<'a> {
        let mut parts = name.splitn(4, '.');
        let scheme = parts.next().unwrap_or_default();
        let port: u32 = parts.next().and_then(|port| port.parse().ok()).unwrap_or(0);
        let (port_name, gateway) = match (scheme, parts.next(), parts.next().and_then(gateway_of)) {
            ("https", Some(name), Some(gateway)) => (name, gateway),
            _ => ("", String::new()),
        };
        // The service ports, if they differ from the workload's port.
        let services = set.ports.iter();
        let mut ports: Vec<u32> = services
            .filter(|(_, workload)| u32::from(*workload) == port)
            .map(|(service, _)| u32::from(*service))
            .collect();
        if ports.is_empty() {
            ports.push(port);
        }
        TableFacts { name, ports, port_name, gateway, of_gateway: true }
    }

    /// The context of its patches.
    pub(crate) fn context(&self) -> PatchContext {
        match self.of_gateway {
            true => PatchContext::Gateway,
            false => PatchContext::SidecarOutbound,
        }
    }

    pub(crate) fn matches(&self, patch: &CompiledPatch) -> bool {
        let Some(wanted) = route_match(patch) else {
            return patch.object.is_none();
        };
        let of_gateway = !self.of_gateway
            || ((wanted.port_name.is_empty() || *wanted.port_name == *self.port_name)
                && (wanted.gateway.is_empty() || *wanted.gateway == *self.gateway));
        of_gateway
            && (wanted.name.is_empty() || *wanted.name == *self.name)
            && (wanted.port_number == 0 || self.ports.contains(&wanted.port_number))
    }
}

/// `NAMESPACE/GATEWAY` from `GATEWAY.NAMESPACE`, optionally followed by an address. The names of listeners of the Gateway API may
/// contain dots, and have no address.
fn gateway_of(text: &str) -> Option<String> {
    let (gateway, namespace) = match text.contains("~istio-autogenerated-k8s-gateway~") {
        true => text.rsplit_once('.')?,
        false => {
            let (gateway, rest) = text.split_once('.')?;
            (gateway, rest.split('.').next()?)
        }
    };
    Some(format!("{namespace}/{gateway}"))
}

/// The conditions on a route table, if there are any.
pub(crate) fn route_match(patch: &CompiledPatch) -> Option<&RouteConfigurationMatch> {
    match &patch.object {
        Some(ObjectMatch::RouteConfiguration(wanted)) => Some(wanted),
        _ => None,
    }
}

/// The conditions on a virtual host, if there are any.
pub(crate) fn host_match(patch: &CompiledPatch) -> Option<&VirtualHostMatch> {
    route_match(patch)?.vhost.as_ref()
}

/// Whether a patch matches a virtual host of this name. `has` tests for a domain.
pub(crate) fn matches_host(patch: &CompiledPatch, name: &str, has: impl Fn(&str) -> bool) -> bool {
    host_match(patch).is_none_or(|wanted| {
        (wanted.name.is_empty() || *wanted.name == *name) && (wanted.domain_name.is_empty() || has(&wanted.domain_name))
    })
}
