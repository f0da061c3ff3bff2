//! Unused parts of DestinationRules, because others for the same host have precedence.

use std::sync::Arc;

use config::istio::DestinationRule;
use config::{FieldPath, Kind, Object};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::DestinationRules;

use super::{Conflicts, conflict, row};
use crate::hosts::Pattern;
use crate::policy::{DestinationRuleSummaries, DestinationRulesByHost, merged_before};

flow::rule! {
    /// The conflicts of each DestinationRule.
    pub DestinationRuleConflicts: ObjectId => Conflicts = "conflicts on destination rules", derive_destination_rule_conflicts;
}

fn derive_destination_rule_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let summary = cx.get::<DestinationRuleSummaries>(key)?;
    let members = cx.get::<DestinationRulesByHost>(&Pattern::of(&summary.host))?;
    let rivals: Vec<&ObjectId> = members.iter().filter(|id| id.namespace == key.namespace).collect();
    if rivals.len() < 2 {
        return None;
    }
    let summaries = rivals.into_iter().filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
    let rules = summaries.filter(|s| s.host == summary.host).map(|s| (*s).clone()).collect();
    let before: Vec<(ObjectId, Arc<Object<DestinationRule>>)> = merged_before(rules, key)
        .into_iter()
        .filter_map(|id| Some((id.clone(), (*cx.get::<DestinationRules>(&id)?).clone())))
        .collect();
    let own = cx.get::<DestinationRules>(key)?;
    let mut conflicts = Vec::new();
    let mut say = |path, other: &ObjectId, what: &str| {
        let message = format!(
            "DestinationRule {}/{} is for the same host and takes precedence: {what}",
            other.namespace, other.name
        );
        let hint = "keep what concerns a host in one DestinationRule";
        conflicts.push(conflict(Kind::DestinationRule, key, path, message, hint));
    };
    let with_policy = before.iter().find(|(_, rule)| rule.spec.traffic_policy.is_some());
    if let Some((other, _)) = with_policy.filter(|_| own.spec.traffic_policy.is_some()) {
        say(FieldPath::spec().field("trafficPolicy"), other, "its trafficPolicy is used");
    }
    for (index, subset) in own.spec.subsets.iter().enumerate() {
        let has = |rule: &DestinationRule| rule.subsets.iter().any(|other| other.name == subset.name);
        if let Some((other, _)) = before.iter().find(|(_, rule)| has(&rule.spec)) {
            let path = FieldPath::spec().field("subsets").index(index);
            say(path, other, &format!("its subset {} is used", subset.name));
        }
    }
    row(conflicts)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<DestinationRuleConflicts>();
}
