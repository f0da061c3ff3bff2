//! Validation of Telemetry.

use crate::diagnostic::FieldPath;
use crate::istio::Telemetry;
use crate::istio::telemetry::{MetricName, MetricsOverride, TagOperation, Tracing};
use crate::validate::{Report, attachment, cel, common};

pub(super) fn check(r: &mut Report, spec: &Telemetry) {
    let path = FieldPath::spec();
    attachment::check(r, spec.selector.as_ref(), spec.target_ref.as_ref(), &spec.target_refs);
    if spec.tracing.len() > 1 {
        let message = "multiple entries are not supported; only the first is used";
        r.warning(&path.field("tracing"), "unsupported", message);
    }
    for (index, entry) in spec.tracing.iter().enumerate() {
        tracing(r, &path.field("tracing").index(index), entry);
    }
    for (index, entry) in spec.metrics.iter().enumerate() {
        let at = path.field("metrics").index(index);
        common::duration(r, &at.field("reportingInterval"), entry.reporting_interval);
        for (index, change) in entry.overrides.iter().enumerate() {
            metrics_override(r, &at.field("overrides").index(index), change);
        }
    }
    for (index, entry) in spec.access_logging.iter().enumerate() {
        if let Some(filter) = &entry.filter {
            let at = path
                .field("accessLogging")
                .index(index)
                .field("filter")
                .field("expression");
            if let Some(problem) = cel::problem(&filter.expression) {
                r.error(&at, "bad-expression", format!("not a valid CEL expression: {problem}"));
            }
        }
    }
}

fn tracing(r: &mut Report, path: &FieldPath, entry: &Tracing) {
    if entry.providers.len() > 1 {
        let message = "multiple providers are not supported; only the first is used";
        r.warning(&path.field("providers"), "unsupported", message);
    }
    for (name, tag) in &entry.custom_tags {
        let at = path.field("customTags").key(name.clone());
        if name.is_empty() {
            r.error(&at, "bad-value", "a tag requires a name");
        }
        if tag.source.is_none() {
            let message = "a tag requires literal, environment, header or formatter";
            r.error(&at, "missing-field", message);
        }
    }
}

fn metrics_override(r: &mut Report, path: &FieldPath, change: &MetricsOverride) {
    for (name, tag) in &change.tag_overrides {
        let at = path.field("tagOverrides").key(name.clone());
        if name.is_empty() {
            r.warning(&at, "bad-value", "a dimension requires a name");
        }
        match tag.operation {
            TagOperation::Upsert if tag.value.is_empty() => {
                r.error(&at, "missing-field", "the operation UPSERT requires a value");
            }
            TagOperation::Remove if !tag.value.is_empty() => {
                r.error(
                    &at.field("value"),
                    "exclusive-fields",
                    "the operation REMOVE does not allow a value",
                );
            }
            _ => {}
        }
    }
    let metric = change.matches.as_ref().and_then(|m| m.metric.as_ref());
    if let Some(MetricName::CustomMetric(name)) = metric
        && name.is_empty()
    {
        let at = path.field("match").field("customMetric");
        r.error(&at, "missing-field", "a metric requires a name");
    }
}
