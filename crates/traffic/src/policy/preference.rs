//! Priorities of endpoints by location.
//!
//! A DestinationRule decides, else the service (`trafficDistribution`), else the mesh; zone-aware settings win over
//! locality settings. With zone-aware settings Envoy divides requests among the zones of the client's region. Failover
//! needs outlier detection; without it only a service's own preference and fixed shares have an effect.

use std::sync::Arc;

use config::MeshConfig;
use config::istio::{Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use model::service::{Distribution, Service};

use super::EffectivePolicy;

/// The labels that `PreferClose` and `PreferSameZone` compare.
const SAME_ZONE: [&str; 3] =
    ["topology.istio.io/network", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
/// The labels that `PreferSameNode` compares.
const SAME_NODE: [&str; 5] = [
    "topology.istio.io/network",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
    "kubernetes.io/hostname",
];

/// Priorities of a cluster's endpoints.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preference<'a> {
    /// None.
    Equal,
    /// Weights by the client's locality.
    Distribute(&'a [Distribute]),
    /// By labels in common with the client: the more of the first ones, the higher. Then by region, if regions are
    /// listed.
    ByLabels(Names<'a>, &'a [Failover]),
    /// By sub-zone, zone and region, then the failover region, then others.
    ByLocality(&'a [Failover]),
    /// By region, then the failover region, then others; before that by labels in common with the client.
    ByRegion(Names<'a>, &'a [Failover]),
}

/// The zone-aware settings of a policy, enabled or not.
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

/// Names of labels, as configured (`NAME` or `NAME=VALUE`) or built in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Names<'a> {
    /// Configured.
    Written(&'a [Arc<str>]),
    /// Built in.
    BuiltIn(&'static [&'static str]),
}

impl<'a> Names<'a> {
    /// The labels in order, with the value that replaces the client's own.
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

/// The priorities under a policy that includes the mesh's defaults.
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

/// The label name of an entry of `failoverPriority`.
pub(crate) fn label_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// Whether a label follows from a client's topology.
pub(crate) fn is_known(name: &str) -> bool {
    SAME_NODE.contains(&name) || name == "topology.istio.io/cluster"
}
