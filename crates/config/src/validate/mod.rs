//! Relations between fields that Istio's admission webhook checks, and the CEL rules of the schemas.
//!
//! An object with errors is rejected. A warning means that the object does not do what it seems to do.

mod authorization;
mod common;
mod core;
mod envoy_filter;
mod gateway;
mod gateway_api;
mod http_route;
mod locality;
mod mesh;
mod service_entry;
mod sidecar;
mod telemetry;
mod traffic_policy;
mod unreachable;
mod virtual_service;
mod workload;

use crate::decode::{Finding, Report};
use crate::form::host;
use crate::object::{AnyObject, Kind, Meta};
use crate::problem::FieldPath;
use crate::rules::{Outcome, Rules};
use crate::schema::{Normalization, find_kind, normalize};
use crate::yaml::Node;

use common::{ExportScope, export_to};

/// Checks an object for what depends on its metadata. Decoding checks the rest (see [`crate::decode::Relations`]).
pub(crate) fn check(object: &AnyObject, r: &mut Report) {
    let meta = object.meta();
    let exports = FieldPath::spec().field("exportTo");
    match object {
        AnyObject::ServiceEntry(o) => {
            service_entry::check(r, meta, &o.spec);
            export_to(r, &exports, &meta.namespace, &o.spec.export_to, ExportScope::Services);
        }
        AnyObject::WorkloadEntry(o) => workload::address(r, &FieldPath::spec(), &o.spec, workload::Addresses::Any),
        AnyObject::VirtualService(o) => {
            export_to(r, &exports, &meta.namespace, &o.spec.export_to, ExportScope::Routes);
        }
        AnyObject::DestinationRule(o) => {
            traffic_policy::config_maps(r, meta, &o.spec);
            let scope = match o.spec.workload_selector {
                Some(_) => ExportScope::Selected,
                None => ExportScope::Routes,
            };
            export_to(r, &exports, &meta.namespace, &o.spec.export_to, scope);
        }
        AnyObject::Gateway(_) if !host::is_label(&meta.name) => {
            let at = FieldPath::root().field("metadata").field("name");
            r.error(&at, "bad-name", "the name of a Gateway must not contain dots");
        }
        AnyObject::Sidecar(o) => sidecar::overlaps(r, meta, &o.spec),
        AnyObject::AuthorizationPolicy(o) => authorization::dry_run(r, meta, &o.spec),
        AnyObject::Secret(o) => core::credential(r, o.spec.flaws()),
        AnyObject::ConfigMap(o) => core::credential(r, o.spec.flaws()),
        _ => {}
    }
    if object.kind().is_istio() {
        annotations(r, meta);
    }
}

/// The CEL rules of the kind's schema that an object violates. If `complete` is false, the object has other errors, and
/// rules that cannot be evaluated are not reported.
pub(crate) fn violations(kind: Kind, root: &Node, complete: bool) -> Vec<Finding> {
    let mut report = Report::default();
    let Some(definition) = find_kind(kind.group(), kind.name()) else {
        return Vec::new();
    };
    let mut object = root.to_json();
    let mut defaults = Normalization { defaults: true, ..Normalization::default() };
    normalize(&mut object, &definition.schema, &mut defaults);
    Rules::of(&definition.schema).check(&object, None, &mut |violation| {
        let message = match &violation.outcome {
            Outcome::False => violation.message.clone(),
            _ if !complete => return true,
            Outcome::Failed(error) => format!("{error} evaluating rule: {}", violation.message),
            Outcome::TooExpensive(rule) => format!("the object is too large for the rule to be checked: {rule}"),
        };
        report.error(&violation.path.to_field_path(), "validation-rule", message);
        true
    });
    report.into_findings()
}

/// Annotations reserved for communication between Istio's controllers. Users who could set them would gain privileges.
const FORBIDDEN: [&str; 3] =
    ["internal.istio.io/parents", "internal.istio.io/parent-namespace", "internal.istio.io/webhook-always-reject"];

fn annotations(r: &mut Report, meta: &Meta) {
    let path = FieldPath::root().field("metadata").field("annotations");
    let dry_run = Some(authorization::DRY_RUN).filter(|_| meta.kind != Kind::AuthorizationPolicy);
    let forbidden = FORBIDDEN.into_iter().chain(dry_run);
    for name in forbidden.filter(|name| meta.annotations.contains_key(*name)) {
        r.error(&path.key(name), "bad-value", "the annotation must not be set on this kind of object");
    }
}
