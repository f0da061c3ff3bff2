//! Whether an object that could be decoded makes sense: the rules of Istio's admission webhook.
//!
//! An error means that the object is refused; a warning means that it does something else than it seems to.

mod common;
mod core;
mod destination_rule;
mod gateway;
mod headers;
mod hosts;
mod http_policy;
mod http_route;
mod locality;
mod mesh;
mod regex;
mod report;
mod service_entry;
mod sidecar;
mod traffic_policy;
mod unreachable;
mod virtual_service;
mod workload;

pub(crate) use report::{Finding, Report};

use crate::diagnostic::{Diagnostic, FieldPath};
use crate::object::{AnyObject, Meta};

/// What is wrong with an object, for objects that did not come from a file. An object with errors must be refused.
pub fn validate(object: &AnyObject) -> Vec<Diagnostic> {
    findings(object)
        .into_iter()
        .map(|finding| finding.into_diagnostic(object))
        .collect()
}

/// What is wrong with an object.
pub(crate) fn findings(object: &AnyObject) -> Vec<Finding> {
    let mut report = Report::default();
    let r = &mut report;
    match object {
        AnyObject::ServiceEntry(o) => service_entry::check(r, &o.meta, &o.spec),
        AnyObject::WorkloadEntry(o) => workload::check_entry(r, &o.spec),
        AnyObject::WorkloadGroup(o) => workload::check_group(r, &o.spec),
        AnyObject::VirtualService(o) => virtual_service::check(r, &o.meta, &o.spec),
        AnyObject::DestinationRule(o) => destination_rule::check(r, &o.meta, &o.spec),
        AnyObject::Gateway(o) => gateway::check(r, &o.meta, &o.spec),
        AnyObject::Sidecar(o) => sidecar::check(r, &o.meta, &o.spec),
        AnyObject::Service(o) => core::check_service(r, &o.spec),
        AnyObject::EndpointSlice(o) => core::check_endpoint_slice(r, &o.spec),
        AnyObject::Pod(o) => core::check_pod(r, &o.spec),
        AnyObject::MeshConfig(o) => mesh::check(r, &o.spec),
        AnyObject::Node(_) | AnyObject::Namespace(_) => {}
    }
    if object.kind().is_istio() {
        annotations(r, object.meta());
    }
    report.into_findings()
}

/// Annotations by which Istio's own controllers talk to each other, and which would give users more than they have.
const FORBIDDEN: [&str; 4] = [
    "internal.istio.io/parents",
    "internal.istio.io/parent-namespace",
    "internal.istio.io/webhook-always-reject",
    "istio.io/dry-run",
];

fn annotations(r: &mut Report, meta: &Meta) {
    let path = FieldPath::root().field("metadata").field("annotations");
    for name in FORBIDDEN
        .into_iter()
        .filter(|name| meta.annotations.contains_key(*name))
    {
        r.error(
            &path.key(name),
            "bad-value",
            "this annotation may not be set on this kind of object",
        );
    }
}
