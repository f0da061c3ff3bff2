//! Validation of locality and zone preferences.

use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::{Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use crate::validate::Report;

/// Labels that describe the locality of a node.
const TOPOLOGY: [&str; 3] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
];

pub(super) fn check(r: &mut Report, path: &FieldPath, setting: &LocalityLoadBalancerSetting, has_outlier: bool) {
    if !setting.distribute.is_empty() && !setting.failover.is_empty() {
        r.error(
            &path.field("failover"),
            "exclusive-fields",
            "only one of distribute and failover may be set",
        );
    }
    if !setting.failover.is_empty() {
        for (index, label) in setting.failover_priority.iter().enumerate() {
            if TOPOLOGY.contains(&&**label) {
                let message = format!("failover cannot be combined with the label {label}");
                r.error(
                    &path.field("failoverPriority").index(index),
                    "exclusive-fields",
                    message,
                );
            }
        }
    }
    for (index, distribute) in setting.distribute.iter().enumerate() {
        let at = path.field("distribute").index(index).field("to");
        for (locality, weight) in &distribute.to {
            if !(1..=100).contains(weight) {
                let message = format!("a percentage must be between 1 and 100, not {weight}");
                r.error(&at.key(locality.clone()), "out-of-range", message);
            }
        }
        let total: u64 = distribute.to.values().map(|weight| u64::from(*weight)).sum();
        if total != 100 {
            r.error(
                &at,
                "out-of-range",
                format!("the percentages must add up to 100, not {total}"),
            );
        }
        let mut to: Vec<(FieldPath, &Arc<str>)> =
            distribute.to.keys().map(|name| (at.key(name.clone()), name)).collect();
        // A map has no order: sort wildcards last, because they cover the remaining localities.
        to.sort_by_key(|(_, name)| name.contains('*'));
        localities(r, &to);
    }
    let from = setting.distribute.iter().enumerate();
    let from: Vec<(FieldPath, &Arc<str>)> = from
        .map(|(index, d)| (path.field("distribute").index(index).field("from"), &d.from))
        .collect();
    localities(r, &from);
    failover(r, path, &setting.failover, &setting.failover_priority, has_outlier);
}

pub(super) fn check_zone_aware(
    r: &mut Report,
    path: &FieldPath,
    setting: &ZoneAwareLoadBalancerSetting,
    has_outlier: bool,
) {
    for (index, label) in setting.failover_priority.iter().enumerate() {
        if TOPOLOGY.contains(&&**label) {
            let message =
                format!("the label {label} is not allowed: zone-aware routing already considers regions and zones");
            r.error(
                &path.field("failoverPriority").index(index),
                "exclusive-fields",
                message,
            );
        }
    }
    failover(r, path, &setting.failover, &setting.failover_priority, has_outlier);
}

fn failover(r: &mut Report, path: &FieldPath, failover: &[Failover], priority: &[Arc<str>], has_outlier: bool) {
    if !has_outlier && (!failover.is_empty() || !priority.is_empty()) {
        let message = "failover has no effect without outlierDetection, which detects unhealthy endpoints";
        r.warning(path, "no-effect", message);
    }
    for (index, Failover { from, to }) in failover.iter().enumerate() {
        let at = path.field("failover").index(index);
        if from == to {
            r.error(&at, "bad-value", "a region must not fail over to itself");
        }
        for (field, region) in [("from", from), ("to", to)] {
            if region.contains(['/', '*']) {
                let message = format!("{region:?} is not a valid region; zones and wildcards are not supported");
                r.error(&at.field(field), "bad-value", message);
            }
        }
    }
}

/// Checks that localities are well-formed and do not overlap. A wildcard may cover earlier localities: it matches the
/// remaining ones.
fn localities(r: &mut Report, localities: &[(FieldPath, &Arc<str>)]) {
    let mut seen: Vec<&str> = Vec::new();
    for (at, locality) in localities {
        let stars = locality.matches('*').count();
        if stars > 1 || (stars == 1 && !locality.ends_with('*')) {
            r.error(
                at,
                "bad-value",
                format!("{locality:?} may contain only one wildcard, at its end"),
            );
        } else if locality.splitn(3, '/').any(str::is_empty) {
            r.error(
                at,
                "bad-value",
                format!("{locality:?} has an empty region, zone or subzone"),
            );
        } else if let Some(other) = seen.iter().find(|other| overlap(other, locality)) {
            r.error(at, "duplicate", format!("{locality:?} overlaps with {other:?}"));
        }
        if seen.len() < MAX_COMPARED {
            seen.push(locality);
        }
    }
}

/// Maximum number of localities that are compared with each other.
const MAX_COMPARED: usize = 500;

/// Whether a later locality equals the earlier one, is within it, or contains it without being a wildcard.
fn overlap(earlier: &str, later: &str) -> bool {
    let mut differing = earlier
        .splitn(3, '/')
        .zip(later.splitn(3, '/'))
        .skip_while(|(x, y)| x == y);
    differing.next().is_none_or(|(x, _)| x == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_localities() {
        for (a, b) in [
            ("*", "a"),
            ("a", "a/b"),
            ("a/b", "a"),
            ("a/*", "a/b/c"),
            ("a/b", "a/b"),
            ("a/b/*", "a/b/c"),
        ] {
            assert!(overlap(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("a", "b"),
            ("a", "*"),
            ("a/b/c", "a/*"),
            ("a/b", "a/c"),
            ("a/b/c", "a/b/d"),
            ("a/*", "b/c"),
        ] {
            assert!(!overlap(a, b), "{a} {b}");
        }
    }
}
