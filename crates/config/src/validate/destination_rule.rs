//! Validation of DestinationRule.

use std::collections::BTreeSet;

use crate::diagnostic::FieldPath;
use crate::istio::DestinationRule;
use crate::object::Meta;
use crate::validate::common::{self, ExportScope};
use crate::validate::{Report, attachment, hosts, traffic_policy};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &DestinationRule) {
    let path = FieldPath::spec();
    match &*spec.host {
        "" => r.error(
            &path.field("host"),
            "missing-field",
            "a DestinationRule requires a host",
        ),
        host => hosts::wildcard_host(r, &path.field("host"), host),
    }
    let (at, policy) = (path.field("trafficPolicy"), spec.traffic_policy.as_ref());
    traffic_policy::check(r, &at, &meta.namespace, policy);
    let mut names = BTreeSet::new();
    for (index, subset) in spec.subsets.iter().enumerate() {
        let at = path.field("subsets").index(index);
        common::subset_name(r, &at.field("name"), &subset.name);
        if !names.insert(&subset.name) {
            r.error(
                &at.field("name"),
                "duplicate",
                format!("duplicate subset {:?}", &*subset.name),
            );
        }
        common::labels(r, &at.field("labels"), &subset.labels);
        let policy = subset.traffic_policy.as_ref();
        traffic_policy::check(r, &at.field("trafficPolicy"), &meta.namespace, policy);
    }
    let scope = if spec.workload_selector.is_some() {
        ExportScope::Selected
    } else {
        ExportScope::Routes
    };
    common::export_to(r, &path.field("exportTo"), &meta.namespace, &spec.export_to, scope);
    attachment::selector(r, &path.field("workloadSelector"), spec.workload_selector.as_ref());
}
