//! Telemetry, and environment variables of Wasm modules.

use crate::decode::{Relations, Report};
use crate::istio::Telemetry;
use crate::istio::extension::{EnvValueSource, EnvVar};
use crate::istio::telemetry::{MetricName, MetricSelector, MetricsOverride, TagOperation, TagOverride, Tracing};
use crate::problem::FieldPath;

impl Relations for EnvVar {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.value_from != EnvValueSource::Inline && !self.value.is_empty() {
            let message = "value requires valueFrom INLINE";
            r.error(&path.field("value"), "exclusive-fields", message);
        }
    }
}

impl Relations for Telemetry {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.tracing.len() > 1 {
            let message = "multiple entries are not supported; only the first is used";
            r.warning(&path.field("tracing"), "unsupported", message);
        }
    }
}

impl Relations for Tracing {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.providers.len() > 1 {
            let message = "multiple providers are not supported; only the first is used";
            r.warning(&path.field("providers"), "unsupported", message);
        }
    }
}

impl Relations for MetricsOverride {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.tag_overrides.contains_key("") {
            let at = path.field("tagOverrides").key("");
            r.warning(&at, "bad-value", "a dimension requires a name");
        }
    }
}

impl Relations for TagOverride {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        match self.operation {
            TagOperation::Upsert if self.value.is_empty() => {
                r.error(path, "missing-field", "the operation UPSERT requires a value");
            }
            TagOperation::Remove if !self.value.is_empty() => {
                let message = "the operation REMOVE does not allow a value";
                r.error(&path.field("value"), "exclusive-fields", message);
            }
            _ => {}
        }
    }
}

impl Relations for MetricSelector {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if matches!(&self.metric, Some(MetricName::CustomMetric(name)) if name.is_empty()) {
            r.error(&path.field("customMetric"), "missing-field", "a metric requires a name");
        }
    }
}
