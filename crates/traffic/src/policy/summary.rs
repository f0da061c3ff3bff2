//! Summaries of DestinationRules: the fields that decide where they apply.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use config::Timestamp;
use flow::Reads;
use model::proxy::Labels;
use model::service::{ExportTo, ObjectId};
use names::Hostname;
use registry::inputs::{DestinationRules, Mesh};

use crate::hosts::Pattern;

flow::rule! {
    /// The summary of each DestinationRule with a valid host.
    pub DestinationRuleSummaries: ObjectId => Arc<RuleSummary> = "destination rule summaries", derive_destination_rule_summaries;
}

/// The fields that decide where a DestinationRule applies.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleSummary {
    /// The rule.
    pub id: ObjectId,
    /// Its creation time.
    pub created: Option<Timestamp>,
    /// Its host as a full name.
    pub host: Hostname,
    /// Its visibility. A rule with a selector is visible in its own namespace only.
    pub export_to: ExportTo,
    /// The labels of the clients that it selects; none for all.
    pub selector: Option<Labels>,
}

impl RuleSummary {
    /// Whether only its own namespace sees it.
    pub fn is_private(&self) -> bool {
        matches!(&self.export_to, ExportTo::Namespaces(names) if names.iter().eq([&self.id.namespace]))
    }

    /// The order of merging: rules with a selector first, then the oldest.
    pub fn precedence(&self, other: &RuleSummary) -> Ordering {
        let key = |r: &RuleSummary| (r.selector.is_none(), r.created, r.id.name.clone(), r.id.namespace.clone());
        key(self).cmp(&key(other))
    }
}

fn derive_destination_rule_summaries(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<RuleSummary>> {
    let object = cx.get::<DestinationRules>(key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let selector = object.spec.workload_selector.as_ref().map(|s| s.match_labels.clone());
    let export_to = match selector {
        Some(_) => ExportTo::Namespaces(BTreeSet::from([key.namespace.clone()])),
        None => {
            let default = &mesh.config.default_destination_rule_export_to;
            registry::services::export_to(&object.spec.export_to, default, &key.namespace)
        }
    };
    Some(Arc::new(RuleSummary {
        id: key.clone(),
        created: object.meta.creation_timestamp,
        host: Hostname::resolve(&object.spec.host, &key.namespace, &mesh.domain).ok()?,
        export_to,
        selector,
    }))
}

flow::index! {
    /// DestinationRules by their host.
    pub DestinationRulesByHost: Pattern => members of DestinationRuleSummaries = "destination rules by host", destination_rules_by_host_keys;
}

fn destination_rules_by_host_keys(_: &ObjectId, row: &Arc<RuleSummary>) -> Vec<Pattern> {
    vec![Pattern::of(&row.host)]
}
