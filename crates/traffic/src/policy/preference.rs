//! Which endpoints of a service a client prefers by where both are.
//!
//! A DestinationRule decides, else the service (`trafficDistribution`), else the mesh; zone-aware settings before those by
//! locality. With them Envoy itself divides requests among the zones of the client's region. To turn to endpoints further away
//! a client has to notice that the near ones fail, so that without outlier detection only a service's own preference
//! and fixed shares have an effect.

use std::sync::Arc;

use config::MeshConfig;
use config::istio::{Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use model::service::{Distribution, Service};

use super::EffectivePolicy;

/// The labels by which clients of services with `PreferClose` and `PreferSameZone` choose.
const SAME_ZONE: [&str; 3] = [
    "topology.istio.io/network",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// The same for `PreferSameNode`.
const SAME_NODE: [&str; 5] = [
    "topology.istio.io/network",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
    "kubernetes.io/hostname",
];

/// Which endpoints of a cluster go before others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preference<'a> {
    /// None.
    Equal,
    /// Shares by the client's locality.
    Distribute(&'a [Distribute]),
    /// Those that have labels in common with the client: the more of the first ones, the sooner. After that regions, if
    /// they are listed.
    ByLabels(Names<'a>, &'a [Failover]),
    /// The same sub-zone, zone and region, then the region that takes over, then the rest.
    ByLocality(&'a [Failover]),
    /// The same region, then the one that takes over, then the rest; before that those that have labels in common with
    /// the client.
    ByRegion(Names<'a>, &'a [Failover]),
}

/// The zone-aware settings that hold under a policy, in force or not.
pub fn zone_aware<'a>(
    mesh: &'a MeshConfig,
    policy: &EffectivePolicy<'a>,
    service: &Service,
) -> Option<&'a ZoneAwareLoadBalancerSetting> {
    let rule = policy.load_balancer;
    if let Some(setting) = rule.and_then(|lb| lb.zone_aware_lb_setting.as_ref()) {
        return Some(setting);
    }
    let decided = rule.is_some_and(|lb| lb.locality_lb_setting.is_some()) || service.distribution != Distribution::Any;
    mesh.zone_aware_lb_setting.as_ref().filter(|_| !decided)
}

/// Names of labels, as an object lists them (`NAME` or `NAME=VALUE`) or as they are built in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Names<'a> {
    /// Listed.
    Written(&'a [Arc<str>]),
    /// Built in.
    BuiltIn(&'static [&'static str]),
}

impl<'a> Names<'a> {
    /// The labels in order, with the value that stands for the client's own.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let (written, built_in) = match self {
            Names::Written(names) => (names, &[][..]),
            Names::BuiltIn(names) => (&[][..], names),
        };
        let all = written.iter().map(|name| &**name).chain(built_in.iter().copied());
        all.map(|text| match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        })
    }
}

/// The preference under a policy, which has the mesh's defaults in it.
pub fn preference<'a>(mesh: &'a MeshConfig, policy: &EffectivePolicy<'a>, service: &Service) -> Preference<'a> {
    if let Some(setting) = zone_aware(mesh, policy, service) {
        return match setting.enabled {
            Some(false) => Preference::Equal,
            _ => Preference::ByRegion(Names::Written(&setting.failover_priority), &setting.failover),
        };
    }
    let of_rule = policy.load_balancer.and_then(|lb| lb.locality_lb_setting.as_ref());
    let (setting, fails_over) = match (of_rule, service.distribution) {
        (Some(setting), _) => (Some(setting), policy.outlier_detection.is_some()),
        (None, Distribution::SameZone) => return Preference::ByLabels(Names::BuiltIn(&SAME_ZONE), &[]),
        (None, Distribution::SameNode) => return Preference::ByLabels(Names::BuiltIn(&SAME_NODE), &[]),
        (None, Distribution::Any) => (mesh.locality_lb_setting.as_ref(), policy.outlier_detection.is_some()),
    };
    let Some(setting) = setting.filter(|setting| setting.enabled != Some(false)) else {
        return Preference::Equal;
    };
    of_setting(setting, fails_over)
}

fn of_setting(setting: &LocalityLoadBalancerSetting, fails_over: bool) -> Preference<'_> {
    match setting {
        _ if !setting.distribute.is_empty() => Preference::Distribute(&setting.distribute),
        _ if !fails_over => Preference::Equal,
        _ if !setting.failover_priority.is_empty() => {
            Preference::ByLabels(Names::Written(&setting.failover_priority), &setting.failover)
        }
        _ => Preference::ByLocality(&setting.failover),
    }
}

/// The name in an entry of `failoverPriority`.
pub(crate) fn label_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// Whether a label is known of clients without being written.
pub(crate) fn is_known(name: &str) -> bool {
    SAME_NODE.contains(&name) || name == "topology.istio.io/cluster"
}
