//! TCP and TLS routes of VirtualServices, and TCP proxies: clusters, weights, idle timeouts, hashing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::istio::{HashKey, LbPolicy, RouteDestination, TcpRoute, TlsRoute, TrafficPolicy, TunnelSettings};
use flow::Reads;
use ipnet::IpNet;
use model::audience::{PolicyKey, Scope};
use model::listener::{TcpChain, Tunnel};
use model::service::{ObjectId, Service, ServiceKey};
use names::{ClusterName, Hostname};
use registry::Services;
use registry::inputs::Mesh;

use crate::policy::{DestinationPolicies, policy_for};
use crate::scope::{self, Ports};
use crate::stats;
use crate::virtual_service::{EffectiveVirtualServices, Guard};

flow::rule! {
    /// The TCP and TLS routes of a VirtualService; no row without any. Listeners read this, so that changes of HTTP routes
    /// do not affect them.
    pub L4Rules: ObjectId => Arc<Rules> = "tcp and tls routes", derive_l4_rules;
}

/// TCP and TLS routes, in order: the first that matches wins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rules {
    /// For SNI passthrough.
    pub tls: Vec<TlsRule>,
    /// For other TCP.
    pub tcp: Vec<TcpRule>,
}

/// A route for TLS connections.
#[derive(Clone, PartialEq, Debug)]
pub struct TlsRule {
    /// Alternatives, of which one must match.
    pub matches: Vec<L4Match>,
    /// The destinations.
    pub targets: Vec<Target>,
}

/// A route for TCP connections.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpRule {
    /// Alternatives, of which one must match; empty matches always.
    pub matches: Vec<L4Match>,
    /// The destinations.
    pub targets: Vec<Target>,
}

/// A match condition on connections.
#[derive(Clone, PartialEq, Debug)]
pub struct L4Match {
    /// The static part, which is decided when the listener is made.
    pub guard: Guard,
    /// Server names; empty for TCP.
    pub sni: Vec<Arc<str>>,
    /// Destination addresses; empty for any.
    pub subnets: Vec<IpNet>,
}

/// A weighted destination.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// The service's host.
    pub host: Hostname,
    /// The subset; empty for the whole service.
    pub subset: Arc<str>,
    /// The service's port, if set.
    pub port: Option<u16>,
    /// The weight; 0 for none, unless it is the only destination.
    pub weight: u32,
}

fn derive_l4_rules(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Rules>> {
    let object = cx.get::<EffectiveVirtualServices>(key)?;
    let tls = object.spec.tls.iter().map(tls_rule).filter(|r| !r.targets.is_empty()).collect();
    let tcp = object.spec.tcp.iter().filter_map(tcp_rule).filter(|r| !r.targets.is_empty()).collect();
    let rules = Rules { tls, tcp };
    (rules != Rules::default()).then(|| Arc::new(rules))
}

flow::rule! {
    /// The part of a DestinationRule that TCP proxies depend on.
    pub TcpPolicies: PolicyKey => TcpPolicy = "tcp policies", derive_tcp_policies;
}

/// See [`TcpPolicies`]. Port-level settings are ignored, because a listener may have several ports.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TcpPolicy {
    idle_timeout_ms: Option<u64>,
    max_connection_duration_ms: Option<u64>,
    hash_source_ip: bool,
    /// Subsets with a load balancer, and whether it hashes the client's address.
    by_subset: BTreeMap<Arc<str>, bool>,
    /// The tunnel of connections to the service.
    tunnel: Option<Tunnel>,
    /// The tunnels of subsets, which do not inherit the service's.
    tunnels: BTreeMap<Arc<str>, Tunnel>,
}

fn derive_tcp_policies(cx: &Reads<'_>, key: &PolicyKey) -> Option<TcpPolicy> {
    let merged = cx.get::<DestinationPolicies>(key)?;
    let tcp = merged.policy.as_ref().and_then(|p| p.connection_pool.as_ref()).and_then(|c| c.tcp.as_ref());
    let subsets = merged.subsets.iter();
    let policy = TcpPolicy {
        idle_timeout_ms: tcp.and_then(|t| t.idle_timeout).map(millis),
        max_connection_duration_ms: tcp.and_then(|t| t.max_connection_duration).map(millis),
        hash_source_ip: merged.policy.as_ref().and_then(hashes_source_ip).unwrap_or(false),
        by_subset: subsets
            .filter_map(|s| Some((s.name.clone(), hashes_source_ip(s.traffic_policy.as_ref()?)?)))
            .collect(),
        tunnel: merged.policy.as_ref().and_then(|p| p.tunnel.as_ref()).map(tunnel),
        tunnels: merged
            .subsets
            .iter()
            .filter_map(|s| Some((s.name.clone(), tunnel(s.traffic_policy.as_ref()?.tunnel.as_ref()?))))
            .collect(),
    };
    (policy != TcpPolicy::default()).then_some(policy)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<L4Rules>();
    b.view::<TcpPolicies>();
}

/// Builds TCP proxies for one client scope.
pub(crate) struct Router<'a> {
    /// Reads of the calling rule.
    pub(crate) cx: &'a Reads<'a>,
    /// The client's scope.
    pub(crate) scope: &'a Arc<Scope>,
}

impl Router<'_> {
    /// A TCP proxy to the weighted targets of a VirtualService's route; none if all weights are 0.
    pub(crate) fn to_targets(&self, id: &ObjectId, targets: &[Target], listener_port: u16) -> Option<TcpChain> {
        // There is one TCP proxy, so the policy of the first target's service applies.
        let first = self.visible(&targets.first()?.host);
        if let [only] = targets {
            let cluster = self.cluster(only, listener_port);
            return Some(self.to_service(&cluster, first.as_ref().map(|(service, _)| &service.key)));
        }
        let weighted = targets.iter().filter(|t| t.weight > 0);
        let clusters: Vec<(Arc<str>, u32)> =
            weighted.map(|t| (self.cluster(t, listener_port).to_string().into(), t.weight)).collect();
        let first = first.as_ref().map(|(service, _)| &service.key);
        (!clusters.is_empty()).then(|| self.to_clusters(id, clusters, first))
    }

    /// A TCP proxy to the weighted clusters of a route, with the policy of one of its services.
    pub(crate) fn to_clusters(
        &self,
        route: &ObjectId,
        clusters: Vec<(Arc<str>, u32)>,
        first: Option<&ServiceKey>,
    ) -> TcpChain {
        let policy = tcp_policy(self.cx, self.policy_key(first).as_ref());
        TcpChain {
            stat_prefix: format!("{}.{}", route.name, route.namespace).into(),
            clusters,
            idle_timeout_ms: policy.idle_timeout_ms,
            max_connection_duration_ms: policy.max_connection_duration_ms,
            hash_source_ip: policy.hash_source_ip,
            mongo: false,
            tunnel: policy.tunnel,
            by_server_name: None,
            between_networks: false,
            origin: None,
        }
    }

    /// A TCP proxy to the cluster of a service.
    pub(crate) fn to_service(&self, cluster: &ClusterName, service: Option<&ServiceKey>) -> TcpChain {
        let policy = self.policy_key(service);
        let all = to_cluster(self.cx, &cluster.to_string(), policy.as_ref(), &cluster.subset);
        let named = service.and_then(|key| stats::outbound(self.cx, key, cluster.port, &cluster.subset));
        TcpChain { stat_prefix: named.unwrap_or(all.stat_prefix), ..all }
    }

    /// The policy that applies to a service for the client.
    pub(crate) fn policy_key(&self, service: Option<&ServiceKey>) -> Option<PolicyKey> {
        service.and_then(|service| policy_for(self.cx, self.scope, service))
    }

    /// The name of a target's cluster, for a client at a listener of this port.
    fn cluster(&self, target: &Target, listener_port: u16) -> ClusterName {
        let single_port = || self.visible(&target.host).and_then(|(_, only_port)| only_port);
        let port = target.port.or_else(single_port).unwrap_or(listener_port);
        let host = self.behind(&target.host).as_arc().clone();
        ClusterName::outbound(port, target.subset.clone(), host)
    }

    /// The target of a visible alias, else the host.
    fn behind(&self, host: &Hostname) -> Hostname {
        let aliases = registry::aliases::aliases(self.cx);
        let find = |host: &Hostname| scope::find(self.cx, self.scope, host).map(|seen| seen.key);
        scope::behind(&aliases, &find, host).clone()
    }

    /// The service of a host, and its port if the client sees a single one.
    fn visible(&self, host: &Hostname) -> Option<(Arc<Service>, Option<u16>)> {
        let visible = scope::find(self.cx, self.scope, &self.behind(host))?;
        let service = self.cx.get::<Services>(&visible.key)?;
        Some(((*service).clone(), single_port(&visible.ports, &service)))
    }
}

/// A TCP proxy to one cluster, with the policy of its service.
pub(crate) fn to_cluster(cx: &Reads<'_>, cluster: &str, policy: Option<&PolicyKey>, subset: &str) -> TcpChain {
    let policy = tcp_policy(cx, policy);
    let cluster: Arc<str> = cluster.into();
    TcpChain {
        stat_prefix: cluster.clone(),
        clusters: vec![(cluster, 1)],
        idle_timeout_ms: policy.idle_timeout_ms,
        max_connection_duration_ms: policy.max_connection_duration_ms,
        hash_source_ip: policy.by_subset.get(subset).copied().unwrap_or(policy.hash_source_ip),
        mongo: false,
        tunnel: match subset {
            "" => policy.tunnel,
            subset => policy.tunnels.get(subset).cloned(),
        },
        by_server_name: None,
        between_networks: false,
        origin: None,
    }
}

fn tcp_policy(cx: &Reads<'_>, key: Option<&PolicyKey>) -> TcpPolicy {
    let policy = key.and_then(|key| cx.get::<TcpPolicies>(key));
    policy.map(|p| (*p).clone()).unwrap_or_default()
}

/// How long inspectors wait for the first bytes of a connection, in milliseconds; 0 for no limit.
pub(crate) fn detection_timeout_ms(cx: &Reads<'_>) -> u64 {
    cx.get::<Mesh>(&()).map_or(0, |mesh| millis(mesh.config.protocol_detection_timeout))
}

/// The only port of a service, if the client sees a single one.
pub(crate) fn single_port(seen: &Ports, service: &Service) -> Option<u16> {
    match (seen, &service.ports[..]) {
        (Ports::Only(ports), _) if ports.len() == 1 => ports.first().copied(),
        (_, [only]) => Some(only.number),
        _ => None,
    }
}

/// The rule of a TLS route.
pub(crate) fn tls_rule(rule: &TlsRoute) -> TlsRule {
    let matches = rule.matches.iter();
    TlsRule {
        matches: matches.filter_map(|m| condition(Guard::of_tls(m), &m.sni_hosts, &m.destination_subnets)).collect(),
        targets: targets(&rule.route),
    }
}

/// The rule of a TCP route; none if it never matches.
pub(crate) fn tcp_rule(rule: &TcpRoute) -> Option<TcpRule> {
    let matches = rule.matches.iter();
    let matches: Vec<L4Match> =
        matches.filter_map(|m| condition(Guard::of_tcp(m), &[], &m.destination_subnets)).collect();
    // No conditions match always; conditions that are all impossible match never.
    let never = matches.is_empty() && !rule.matches.is_empty();
    (!never).then(|| TcpRule { matches, targets: targets(&rule.route) })
}

/// A condition; none if its addresses are invalid, so that it never matches.
fn condition(guard: Guard, sni: &[Arc<str>], written: &[Arc<str>]) -> Option<L4Match> {
    let net = |text: &Arc<str>| text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let subnets: Vec<IpNet> = written.iter().filter_map(net).collect();
    let never = subnets.is_empty() && !written.is_empty();
    (!never).then(|| L4Match { guard, sni: sni.to_vec(), subnets })
}

fn targets(routes: &[RouteDestination]) -> Vec<Target> {
    let target = |route: &RouteDestination| {
        let destination = &route.destination;
        Some(Target {
            host: Hostname::parse(&destination.host).ok()?,
            subset: destination.subset.clone(),
            port: destination.port.as_ref().and_then(|p| u16::try_from(p.number).ok()).filter(|p| *p != 0),
            weight: u32::try_from(route.weight).unwrap_or(0),
        })
    };
    routes.iter().filter_map(target).collect()
}

/// Whether a policy hashes the client's address; none if it has no load balancer.
fn hashes_source_ip(policy: &TrafficPolicy) -> Option<bool> {
    let by_hash = match &policy.load_balancer.as_ref()?.policy {
        Some(LbPolicy::ConsistentHash(hash)) => matches!(hash.key, Some(HashKey::UseSourceIp(true))),
        _ => false,
    };
    Some(by_hash)
}

fn tunnel(settings: &TunnelSettings) -> Tunnel {
    let (host, port) = (&settings.target_host, settings.target_port);
    Tunnel {
        target: match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{port}").into(),
            false => format!("{host}:{port}").into(),
        },
        post: &*settings.protocol == "POST",
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
