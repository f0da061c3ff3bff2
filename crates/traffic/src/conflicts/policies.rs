//! Unused parts of DestinationRules, because others for the same host have precedence, and references that do not resolve.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::service::ObjectId;
use names::Hostname;
use registry::inputs::DestinationRules;

use super::credentials::MissingOfDestinationRule;
use super::references::UnresolvedByDestinationRule;
use super::{Conflicts, conflict, row};
use crate::hosts::Pattern;
use crate::policy::{DestinationRuleSummaries, DestinationRulesByHost, merged_together};

flow::rule! {
    /// The conflicts of each DestinationRule.
    pub DestinationRuleConflicts: ObjectId => Conflicts = "conflicts on destination rules", derive_destination_rule_conflicts;
}

fn derive_destination_rule_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let unresolved = cx.get::<UnresolvedByDestinationRule>(key);
    let missing = cx.get::<MissingOfDestinationRule>(key);
    let first = unresolved.iter().chain(&missing);
    let mut conflicts: Vec<Diagnostic> = first.flat_map(|all| all.iter().cloned()).collect();
    let Some(before) = cx.get::<OverriddenRules>(key) else {
        return row(conflicts);
    };
    let own = cx.get::<DestinationRules>(key)?;
    let mut say = |path, other: &ObjectId, what: &str| {
        let message = format!(
            "DestinationRule {}/{} is for the same host and takes precedence: {what}",
            other.namespace, other.name
        );
        let hint = "keep what concerns a host in one DestinationRule";
        conflicts.push(conflict(Kind::DestinationRule, key, path, message, hint));
    };
    if let Some(other) = &before.policy {
        say(FieldPath::spec().field("trafficPolicy"), other, "its trafficPolicy is used");
    }
    for (index, subset) in own.spec.subsets.iter().enumerate() {
        if let Some(other) = before.subsets.get(&subset.name) {
            let path = FieldPath::spec().field("subsets").index(index);
            say(path, other, &format!("its subset {} is used", subset.name));
        }
    }
    row(conflicts)
}

/// The rules whose parts are used instead of those of another one.
#[derive(Clone, PartialEq, Debug, Default)]
struct Instead {
    policy: Option<ObjectId>,
    /// By subset.
    subsets: BTreeMap<Arc<str>, ObjectId>,
}

flow::rule! {
    /// The overridden parts of a DestinationRule. A relation of its own, so that a change of other rules stops here.
    OverriddenRules: ObjectId => Instead = "overridden destination rules", derive_overridden;
    /// The overridden DestinationRules of a namespace for a host. They are found together, because each can override any
    /// other.
    OverriddenByHost: (Arc<str>, Hostname) => Arc<BTreeMap<ObjectId, Instead>> = "overridden destination rules by host", derive_overridden_by_host;
}

fn derive_overridden(cx: &Reads<'_>, key: &ObjectId) -> Option<Instead> {
    let host = cx.with::<DestinationRuleSummaries, _>(key, |summary| summary.map(|summary| summary.host.clone()))?;
    cx.with::<OverriddenByHost, _>(&(key.namespace.clone(), host), |rules| rules?.get(key).cloned())
}

fn derive_overridden_by_host(
    cx: &Reads<'_>,
    (namespace, host): &(Arc<str>, Hostname),
) -> Option<Arc<BTreeMap<ObjectId, Instead>>> {
    let members = cx.get::<DestinationRulesByHost>(&Pattern::of(host))?;
    // Members are sorted by namespace.
    let own = members.iter_from(|id| id.namespace < *namespace).take_while(|id| id.namespace == *namespace);
    let summaries = own.filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
    let rules: Vec<_> = summaries.filter(|summary| summary.host == *host).map(|summary| (*summary).clone()).collect();
    if rules.len() < 2 {
        return None;
    }
    let mut overridden: BTreeMap<ObjectId, Instead> = BTreeMap::new();
    for group in merged_together(rules) {
        let mut first = Instead::default();
        for id in group.iter().map(|summary| &summary.id) {
            let Some(rule) = cx.get::<DestinationRules>(id) else { continue };
            if rule.spec.traffic_policy.is_some() {
                let other = first.policy.get_or_insert_with(|| id.clone());
                if other != id {
                    overridden.entry(id.clone()).or_default().policy.get_or_insert_with(|| other.clone());
                }
            }
            for subset in &rule.spec.subsets {
                let other = first.subsets.entry(subset.name.clone()).or_insert_with(|| id.clone());
                if other != id {
                    let instead = overridden.entry(id.clone()).or_default();
                    instead.subsets.entry(subset.name.clone()).or_insert_with(|| other.clone());
                }
            }
        }
    }
    Some(Arc::new(overridden))
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<OverriddenByHost>();
    b.view::<OverriddenRules>();
    b.view::<DestinationRuleConflicts>();
}
