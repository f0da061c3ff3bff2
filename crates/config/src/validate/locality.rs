//! Locality and zone preferences.

use std::sync::Arc;

use crate::decode::{Relations, Report};
use crate::istio::{Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use crate::problem::FieldPath;

/// Labels that describe the locality of a node.
const TOPOLOGY: [&str; 3] =
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];

impl Relations for LocalityLoadBalancerSetting {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if !self.failover.is_empty() {
            topology(r, path, &self.failover_priority, |label| {
                format!("failover cannot be combined with the label {label}")
            });
        }
        let from = self.distribute.iter().enumerate();
        let from: Vec<(FieldPath, &Arc<str>)> =
            from.map(|(index, d)| (path.field("distribute").index(index).field("from"), &d.from)).collect();
        localities(r, &from);
    }
}

impl Relations for ZoneAwareLoadBalancerSetting {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        topology(r, path, &self.failover_priority, |label| {
            format!("the label {label} is not allowed: zone-aware routing already considers regions and zones")
        });
    }
}

/// Reports labels of the topology.
fn topology(r: &mut Report, path: &FieldPath, labels: &[Arc<str>], message: impl Fn(&str) -> String) {
    for (index, label) in labels.iter().enumerate() {
        if TOPOLOGY.contains(&&**label) {
            let at = path.field("failoverPriority").index(index);
            r.error(&at, "exclusive-fields", message(label));
        }
    }
}

impl Relations for Distribute {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let at = path.field("to");
        let total: u64 = self.to.values().map(|weight| u64::from(*weight)).sum();
        if total != 100 {
            let message = format!("the percentages must add up to 100, not {total}");
            r.error(&at, "out-of-range", message);
        }
        let mut to: Vec<(FieldPath, &Arc<str>)> = self.to.keys().map(|name| (at.key(name.clone()), name)).collect();
        // A map has no order: sort wildcards last, because they cover the remaining localities.
        to.sort_by_key(|(_, name)| name.contains('*'));
        localities(r, &to);
    }
}

impl Relations for Failover {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.from == self.to {
            r.error(path, "bad-value", "a region must not fail over to itself");
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
            r.error(at, "bad-value", format!("{locality:?} may contain only one wildcard, at its end"));
        } else if locality.splitn(3, '/').any(str::is_empty) {
            r.error(at, "bad-value", format!("{locality:?} has an empty region, zone or subzone"));
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
    let mut differing = earlier.splitn(3, '/').zip(later.splitn(3, '/')).skip_while(|(x, y)| x == y);
    differing.next().is_none_or(|(x, _)| x == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_localities() {
        for (a, b) in [("*", "a"), ("a", "a/b"), ("a/b", "a"), ("a/*", "a/b/c"), ("a/b", "a/b"), ("a/b/*", "a/b/c")] {
            assert!(overlap(a, b), "{a} {b}");
        }
        for (a, b) in [("a", "b"), ("a", "*"), ("a/b/c", "a/*"), ("a/b", "a/c"), ("a/b/c", "a/b/d"), ("a/*", "b/c")] {
            assert!(!overlap(a, b), "{a} {b}");
        }
    }
}
