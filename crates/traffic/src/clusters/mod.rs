//! Clusters: catalogues of audiences, and resolution of cluster names.

mod backends;
mod client_certificate;
mod client_facts;
mod shared;

use std::sync::Arc;

use config::istio::ClientTlsMode;
use config::mesh::ProxyConfigOverride;
use flow::Reads;
use gateway_api::connections::UdpRoutesByPort;
use model::audience::{
    ClusterAudience, ClusterKey, InboundPort, IpFamilies, OutboundKey, OverriddenCluster, PolicyKey, ProxyClass,
    ResourceKey, Scope, Section, SidecarClusterFacts,
};
use model::listener::DnsCache;
use model::service::{Resolution, Service, ServiceKey, ServicePort};
use model::tls::ClientFacts;
use names::{ClusterName, Direction, Hostname, Protocol};
use registry::Services;
use registry::inputs::{Mesh, Sidecars};

use crate::Catalogue;
use crate::policy::{DestinationPolicies, DestinationPolicy, effective, merged, policy_for};
use crate::scope::{self, OutboundPolicy, VisibleService, particular};

pub use client_facts::{RelevantClientFacts, RelevantFacts};
pub use shared::{SharedClusterList, SharedClusters};

/// Names of clusters without a service.
const PASSTHROUGH: &str = "PassthroughCluster";
const DYNAMIC_FORWARD_PROXY: &str = "AllowAnyDynamicDNSCluster";
const BLACK_HOLE: &str = "BlackHoleCluster";
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";

flow::rule! {
    /// The clusters of a service under a policy: for each TCP port one for the service and one for each subset. For gateways also
    /// those of the UDP ports that UDPRoutes lead to.
    pub ServiceClusters: ServiceClustersKey => Vec<(Arc<str>, OutboundKey)> = "service clusters", derive_service_clusters;
}

/// Decides the clusters of a service; all clients with the same policy share them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceClustersKey {
    /// The service.
    pub service: ServiceKey,
    /// The traffic policy.
    pub policy: Option<PolicyKey>,
    /// For gateways, which have no original destination.
    pub gateway: bool,
    /// For clients with an agent.
    pub agent: bool,
}

fn derive_service_clusters(cx: &Reads<'_>, key: &ServiceClustersKey) -> Option<Vec<(Arc<str>, OutboundKey)>> {
    let service = cx.get::<Services>(&key.service)?;
    if service.resolution == Resolution::Alias {
        // Clients use the clusters of the alias's target.
        return None;
    }
    let policy = merged(cx, key.policy.as_ref());
    let mut subsets: Vec<Arc<str>> = vec![Arc::from("")];
    // Services that are resolved on demand have no endpoints, so subsets do not apply.
    let dynamic = service.resolution == Resolution::DynamicDns;
    if let Some(policy) = policy.as_ref().filter(|_| !dynamic) {
        subsets.extend(policy.subsets.iter().map(|s| s.name.clone()));
    }
    let automatic = key.agent && !dynamic && !service.external && uses_mutual_tls(cx);
    let mut out = Vec::new();
    let ports = service.ports.iter().filter(|port| match port.protocol {
        Protocol::Udp => key.gateway && leads_datagrams(cx, &service, port),
        protocol => has_cluster(protocol, dynamic),
    });
    for port in ports {
        for subset in &subsets {
            let cluster = OutboundKey {
                service: key.service.clone(),
                port: port.number,
                subset: subset.clone(),
                policy: key.policy.clone(),
                from_endpoints: key.gateway && service.resolution == Resolution::Passthrough,
                from_gateway: key.gateway && port.protocol.is_unsupported(),
                // The value of most clients; see `for_families`.
                lookup: by_dns(service.resolution).then_some(IpFamilies::V4),
                // See `for_client`.
                view: None,
                sni_passthrough: false,
                client: client_facts(policy.as_deref(), key, (&**subset, port.number), automatic),
                // See `client_certificate::present`.
                client_certificate: None,
            };
            out.push((Arc::from(cluster.cluster_name()), cluster));
        }
    }
    Some(out)
}

/// Whether the mesh uses automatic mutual TLS.
fn uses_mutual_tls(cx: &Reads<'_>) -> bool {
    cx.with::<Mesh, _>(&(), |mesh| mesh.is_some_and(|mesh| mesh.config.enable_auto_mtls))
}

/// The client facts that a cluster's TLS depends on. Without a policy, automatic mutual TLS applies if `automatic`.
fn client_facts(
    policy: Option<&DestinationPolicy>,
    key: &ServiceClustersKey,
    (subset, port): (&str, u16),
    automatic: bool,
) -> ClientFacts {
    let Some(tls) = effective(policy, subset, port).tls else {
        return ClientFacts { agent: automatic, gateway: false };
    };
    match tls.mode {
        ClientTlsMode::Disable => ClientFacts::default(),
        ClientTlsMode::Simple | ClientTlsMode::Mutual if !tls.credential_name.is_empty() => {
            ClientFacts { agent: false, gateway: key.gateway }
        }
        ClientTlsMode::Simple | ClientTlsMode::Mutual | ClientTlsMode::IstioMutual => {
            ClientFacts { agent: key.agent, gateway: false }
        }
    }
}

flow::rule! {
    /// The clusters of an audience, or a section of them. The audience of [`Section::Shared`] has no inbound ports.
    pub ClusterCatalogue: (Section, Arc<ClusterAudience>) => Catalogue = "cluster catalogue", derive_cluster_catalogue;
}

fn derive_cluster_catalogue(
    cx: &Reads<'_>,
    (section, audience): &(Section, Arc<ClusterAudience>),
) -> Option<Catalogue> {
    let mut entries = match section {
        Section::All | Section::Shared => outbound_clusters(cx, audience)?,
        Section::Own => own_outbound(cx, audience),
    };
    if *section != Section::Shared && audience.class.sidecar().is_some() {
        entries.push(entry(INBOUND_PASSTHROUGH, ClusterKey::InboundPassthrough(audience.ip)));
        entries.extend(audience.inbound().iter().map(|port| inbound(cx, audience, port)));
    }
    if let Some(overrides) = &audience.overrides {
        override_all(overrides, &mut entries);
    }
    Some(Catalogue::new(entries))
}

/// The outbound clusters that the clients of a sidecar's namespace have otherwise than others, and rows that hide those that they
/// do not have.
fn own_outbound(cx: &Reads<'_>, audience: &ClusterAudience) -> Vec<Entry> {
    let Some(hosts) = particular::few_hosts(cx, &audience.scope) else {
        return Vec::new();
    };
    let of_hosts = |scope: &Arc<Scope>| {
        let client = ClientFacts { agent: audience.agent, gateway: false };
        let mut entries = Vec::new();
        for service in hosts.iter().filter_map(|host| scope::find(cx, scope, host)) {
            add_service(cx, scope, &service, client, &mut entries);
        }
        backends::add(cx, scope, client, |host| hosts.contains(host), &mut entries);
        for_client(cx, audience, &mut entries);
        for_families(audience.ip, &mut entries);
        Catalogue::new(entries)
    };
    of_hosts(&audience.scope).beside(&of_hosts(&particular::base(cx, &audience.scope))).entries
}

/// All clusters but those for inbound traffic.
fn outbound_clusters(cx: &Reads<'_>, audience: &ClusterAudience) -> Option<Vec<Entry>> {
    let gateway = match &audience.class {
        ProxyClass::Sidecar(_) => None,
        ProxyClass::Gateway(facts) => Some(facts),
        // gRPC clients subscribe by name.
        ProxyClass::Grpc | ProxyClass::Waypoint | ProxyClass::Ztunnel => return None,
    };
    let client = ClientFacts { agent: audience.agent, gateway: gateway.is_some() };
    let mut entries = match scope::is_open(cx, &audience.scope) {
        true => shared::seen_by(cx, &audience.scope, client),
        false => restricted(cx, &audience.scope, client)?,
    };
    backends::add(cx, &audience.scope, client, |_| true, &mut entries);
    if gateway.is_some_and(|facts| facts.sni_passthrough) {
        let passthrough: Vec<Entry> = entries.iter().filter_map(|e| sni_passthrough(cx, e)).collect();
        entries.extend(passthrough);
    }
    entries.push(entry(BLACK_HOLE, ClusterKey::BlackHole));
    if let Some(facts) = audience.class.sidecar() {
        add_sidecar_clusters(cx, audience, facts, &mut entries);
    }
    if let Some(certificate) = gateway.and_then(|facts| facts.client_certificate.as_ref()) {
        client_certificate::present(cx, certificate, &mut entries);
    }
    for_client(cx, audience, &mut entries);
    for_families(audience.ip, &mut entries);
    Some(entries)
}

/// Adds the outbound clusters that only sidecars have.
fn add_sidecar_clusters(
    cx: &Reads<'_>,
    audience: &ClusterAudience,
    facts: &SidecarClusterFacts,
    entries: &mut Vec<Entry>,
) {
    entries.push(entry(PASSTHROUGH, ClusterKey::Passthrough));
    if scope::outbound_policy(cx, &audience.scope) == OutboundPolicy::ByName {
        let cache = DnsCache { host: None, families: audience.ip, resolver: facts.resolver };
        entries.push(entry(DYNAMIC_FORWARD_PROXY, ClusterKey::DynamicForwardProxy(cache)));
    }
}

pub(crate) fn by_dns(resolution: Resolution) -> bool {
    matches!(resolution, Resolution::Dns | Resolution::DnsRace | Resolution::DnsRoundRobin | Resolution::DynamicDns)
}

/// Whether a port of this protocol has clusters. Dynamic resolution needs a protocol that names the host.
fn has_cluster(protocol: Protocol, by_name: bool) -> bool {
    match by_name {
        true => matches!(protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc | Protocol::Tls),
        false => protocol != Protocol::Udp,
    }
}

/// Whether gateways have a cluster for a UDP port. If a TCP port has the same number, they use its cluster.
fn leads_datagrams(cx: &Reads<'_>, service: &Service, port: &ServicePort) -> bool {
    let tcp = |other: &ServicePort| other.number == port.number && other.protocol != Protocol::Udp;
    let known = service.resolution != Resolution::DynamicDns && !service.ports.iter().any(tcp);
    known && has_udp_route(cx, &service.key.hostname, port.number)
}

/// Whether a UDPRoute leads to a port of a host, by itself or by an alias.
fn has_udp_route(cx: &Reads<'_>, host: &Hostname, port: u16) -> bool {
    let aliases = registry::aliases::aliases(cx);
    std::iter::once(host).chain(aliases.of(host)).any(|name| cx.contains::<UdpRoutesByPort>(&(name.clone(), port)))
}

/// Sets the client's address families for DNS resolution. Clients with IPv4 only share the keys unchanged.
fn for_families(families: IpFamilies, entries: &mut [Entry]) {
    if families == IpFamilies::V4 {
        return;
    }
    for (_, key) in entries {
        if let ResourceKey::Cluster(ClusterKey::Outbound(key)) = key
            && key.lookup.is_some()
        {
            key.lookup = Some(families);
        }
    }
}

/// Applies the proxy's overrides to all clusters.
fn override_all(overrides: &Arc<ProxyConfigOverride>, entries: &mut [Entry]) {
    for (_, key) in entries {
        if let ResourceKey::Cluster(cluster) = key {
            *cluster = ClusterKey::ProxyConfigOverride(Arc::new(OverriddenCluster {
                cluster: cluster.clone(),
                overrides: overrides.clone(),
            }));
        }
    }
}

/// Sets the client facts by which endpoints in the cluster are selected and prioritized, if its service or policy does so.
fn for_client(cx: &Reads<'_>, audience: &ClusterAudience, entries: &mut [Entry]) {
    let (location, cluster) = (&audience.location, &audience.scope.cluster);
    if location.locality.is_empty() && location.labels.is_empty() && cluster.is_empty() {
        return;
    }
    for (_, key) in entries {
        if let ResourceKey::Cluster(ClusterKey::Outbound(key)) = key
            && key.lookup.is_some()
        {
            let view = cx.with::<RelevantClientFacts, _>(&*key, |facts| facts?.preference(location, cluster));
            key.view = view.map(Arc::new);
        }
    }
}

/// The SNI passthrough variant of a cluster, if the service is in the mesh.
fn sni_passthrough(cx: &Reads<'_>, (_, key): &Entry) -> Option<Entry> {
    let ResourceKey::Cluster(ClusterKey::Outbound(key)) = key else {
        return None;
    };
    if cx.with::<Services, _>(&key.service, |s| s.is_none_or(|s| s.external)) {
        return None;
    }
    let key = OutboundKey { sni_passthrough: true, client: ClientFacts::default(), ..key.clone() };
    Some(entry(key.cluster_name(), ClusterKey::Outbound(key)))
}

/// A name and its key.
type Entry = (Arc<str>, ResourceKey);

/// The clusters of the services that a `Sidecar` imports.
fn restricted(cx: &Reads<'_>, scope: &Arc<Scope>, client: ClientFacts) -> Option<Vec<Entry>> {
    let visible = scope::visible(cx, scope)?;
    let mut entries = Vec::with_capacity(visible.services.len() * 2);
    for service in visible.services.iter() {
        add_service(cx, scope, service, client, &mut entries);
    }
    Some(entries)
}

/// Adds the clusters of a service for the clients of a scope.
fn add_service(cx: &Reads<'_>, scope: &Scope, service: &VisibleService, client: ClientFacts, entries: &mut Vec<Entry>) {
    let policy = policy_for(cx, scope, &service.key);
    let key = ServiceClustersKey { service: service.key.clone(), policy, gateway: client.gateway, agent: client.agent };
    cx.with::<ServiceClusters, _>(&key, |clusters| {
        let seen = clusters.into_iter().flatten().filter(|(_, key)| service.ports.include(key.port));
        entries.extend(seen.map(|(name, key)| entry(name.clone(), ClusterKey::Outbound(key.clone()))));
    });
}

fn entry(name: impl Into<Arc<str>>, key: ClusterKey) -> Entry {
    (name.into(), ResourceKey::Cluster(key))
}

/// The inbound cluster of a port of the workload.
fn inbound(cx: &Reads<'_>, audience: &ClusterAudience, port: &InboundPort) -> Entry {
    let pools = |id: &&model::service::ObjectId| {
        cx.with::<Sidecars, _>(id, |sidecar| {
            let spec = sidecar.map(|s| &s.spec);
            let own = spec.into_iter().flat_map(|s| &s.ingress).any(|l| l.connection_pool.is_some());
            own || spec.is_some_and(|s| s.inbound_connection_pool.is_some())
        })
    };
    let key = ClusterKey::Inbound {
        port: port.port,
        protocol: port.protocol,
        endpoint: port.endpoint.clone(),
        ip: audience.ip,
        sidecar: audience.scope.sidecar.as_ref().filter(pools).cloned(),
        service: port.service.clone(),
        policy: limits(cx, audience, port),
    };
    entry(ClusterName::inbound(port.port).to_string(), key)
}

/// The policy that limits connections to the service of an inbound port. Rules that select clients do not apply to
/// servers.
fn limits(cx: &Reads<'_>, audience: &ClusterAudience, port: &InboundPort) -> Option<(PolicyKey, u16)> {
    let (service, number) = port.service.as_ref()?;
    let scope = Scope { selected_rules: Vec::new(), ..(*audience.scope).clone() };
    let key = policy_for(cx, &scope, service)?;
    let limited = cx.with::<DestinationPolicies, _>(&key, |rule| {
        effective(rule.map(|rule| &**rule), "", *number).connection_pool.is_some()
    });
    limited.then_some((key, *number))
}

/// The outbound cluster of this name, as the clients of a scope see it, if it exists. Used for endpoints, which do not
/// depend on `from_endpoints` and `from_gateway`, so these are not set.
pub fn resolve(cx: &Reads<'_>, scope: &Arc<Scope>, name: &str) -> Option<OutboundKey> {
    let (name, sni_passthrough) = parse(name)?;
    let host = Hostname::parse(&name.host).ok()?;
    let visible = scope::find(cx, scope, &host).filter(|seen| seen.ports.include(name.port));
    let visible = visible.or_else(|| backends::find(cx, &host, name.port))?;
    let policy = policy_for(cx, scope, &visible.key);
    let found = |gateway: bool| {
        let key = ServiceClustersKey { service: visible.key.clone(), policy: policy.clone(), gateway, agent: false };
        cx.with::<ServiceClusters, _>(&key, |clusters| {
            let mut clusters = clusters.into_iter().flatten().map(|(_, key)| key);
            clusters.find(|key| key.port == name.port && key.subset == name.subset).cloned()
        })
    };
    // Only gateways have clusters of UDP ports.
    let is_udp = || has_udp_route(cx, &visible.key.hostname, name.port);
    let key = found(false).or_else(|| if is_udp() { found(true) } else { None })?;
    let client = ClientFacts::default();
    Some(OutboundKey { sni_passthrough, client, from_endpoints: false, from_gateway: false, ..key })
}

/// The hostname in an outbound cluster's name. The rest of the name is not checked. `None` for another form of name or of
/// hostname than those that Rutter writes.
pub fn hostname_in(name: &str) -> Option<&str> {
    let (_, host) = name.strip_prefix("outbound|")?.rsplit_once('|')?;
    let is_other = host.ends_with('.') || host.bytes().any(|byte| byte.is_ascii_uppercase());
    (!is_other).then_some(host)
}

/// Whether this can be the name of an outbound cluster.
pub fn is_outbound(name: &str) -> bool {
    parse(name).is_some()
}

/// Parses an outbound cluster's name; true for SNI passthrough clusters.
fn parse(name: &str) -> Option<(ClusterName, bool)> {
    let passthrough = name.strip_prefix("outbound_.").and_then(|rest| {
        let mut parts = rest.splitn(3, "_.");
        let (port, subset) = (parts.next()?.parse().ok()?, parts.next()?);
        Some((ClusterName::outbound(port, subset, parts.next()?), true))
    });
    passthrough
        .or_else(|| Some((ClusterName::parse(name).ok()?, false)).filter(|(n, _)| n.direction == Direction::Outbound))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ServiceClusters>();
    b.view::<RelevantClientFacts>();
    b.view::<SharedClusters>();
    b.view::<ClusterCatalogue>();
}
