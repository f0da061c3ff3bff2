//! Validation of decoded objects: the rules of Istio's admission webhook, and the CEL rules of the schemas.
//!
//! An object with errors is rejected. A warning means that the object does not do what it seems to do.

mod attachment;
mod attribute;
mod authentication;
mod authorization;
mod cel;
mod common;
mod core;
mod destination_rule;
mod envoy_filter;
mod extension;
mod gateway;
mod gateway_api;
mod headers;
mod hosts;
mod http_policy;
mod http_route;
mod ingress;
mod locality;
mod lua;
mod mesh;
mod networks;
mod operators;
mod providers;
mod regex;
mod report;
mod service_entry;
mod sidecar;
mod telemetry;
mod traffic_policy;
mod unreachable;

mod virtual_service;
mod workload;

pub use self::headers::is_name as is_header_name;
pub(crate) use self::regex::problem as regex_problem;
pub(crate) use report::{Finding, Report};

use crate::diagnostic::{Diagnostic, FieldPath};
use crate::object::{AnyObject, Kind, Meta};
use crate::rules::{Outcome, Rules};
use crate::schema::{Normalization, find_kind, normalize};
use crate::yaml::Node;

/// Validates an object that does not come from a file. An object with errors must be rejected.
pub fn validate(object: &AnyObject) -> Vec<Diagnostic> {
    findings(object)
        .into_iter()
        .map(|finding| finding.into_diagnostic(object))
        .collect()
}

/// Validates an object.
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
        AnyObject::EnvoyFilter(o) => envoy_filter::check(r, &o.spec),
        AnyObject::ProxyConfig(o) => extension::check_proxy_config(r, &o.spec),
        AnyObject::AuthorizationPolicy(o) => authorization::check(r, &o.meta, &o.spec),
        AnyObject::PeerAuthentication(o) => authentication::check_peer(r, &o.spec),
        AnyObject::RequestAuthentication(o) => authentication::check_request(r, &o.spec),
        AnyObject::Telemetry(o) => telemetry::check(r, &o.spec),
        AnyObject::WasmPlugin(o) => extension::check_plugin(r, &o.spec),
        AnyObject::TrafficExtension(o) => extension::check_extension(r, &o.spec),
        AnyObject::KubeGateway(o) => gateway_api::check_gateway(r, &o.spec),
        AnyObject::ListenerSet(o) => gateway_api::check_listener_set(r, &o.spec),
        AnyObject::HttpRoute(o) => gateway_api::check_http(r, &o.spec),
        AnyObject::GrpcRoute(o) => gateway_api::check_grpc(r, &o.spec),
        AnyObject::Service(o) => core::check_service(r, &o.spec),
        AnyObject::EndpointSlice(o) => core::check_endpoint_slice(r, &o.spec),
        AnyObject::Pod(o) => core::check_pod(r, &o.spec),
        AnyObject::Secret(o) => core::check_credential(r, o.spec.flaws()),
        AnyObject::ConfigMap(o) => core::check_credential(r, o.spec.roots().and_then(Result::err)),
        AnyObject::Ingress(o) => ingress::check(r, &o.spec),
        AnyObject::MeshConfig(o) => mesh::check(r, &o.spec),
        AnyObject::MeshNetworks(o) => networks::check(r, &o.spec),
        AnyObject::ServiceImport(o) => core::check_service_import(r, &o.spec),
        AnyObject::GatewayClass(_)
        | AnyObject::TlsRoute(_)
        | AnyObject::TcpRoute(_)
        | AnyObject::UdpRoute(_)
        | AnyObject::BackendTlsPolicy(_)
        | AnyObject::BackendTrafficPolicy(_)
        | AnyObject::InferencePool(_)
        | AnyObject::ReferenceGrant(_)
        | AnyObject::ServiceExport(_)
        | AnyObject::Node(_)
        | AnyObject::Namespace(_)
        | AnyObject::IngressClass(_) => {}
    }
    if object.kind().is_istio() {
        annotations(r, object.meta());
    }
    report.into_findings()
}

/// The CEL rules of the kind's schema that an object violates. If `complete` is false, the object has other errors, and
/// rules that cannot be evaluated are not reported.
pub(crate) fn violations(kind: Kind, root: &Node, complete: bool) -> Vec<Finding> {
    let mut report = Report::default();
    let Some(definition) = find_kind(kind.group(), kind.name()) else {
        return Vec::new();
    };
    let mut object = root.to_json();
    let mut defaults = Normalization {
        defaults: true,
        ..Normalization::default()
    };
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
const FORBIDDEN: [&str; 3] = [
    "internal.istio.io/parents",
    "internal.istio.io/parent-namespace",
    "internal.istio.io/webhook-always-reject",
];

fn annotations(r: &mut Report, meta: &Meta) {
    let path = FieldPath::root().field("metadata").field("annotations");
    let dry_run = Some(authorization::DRY_RUN).filter(|_| meta.kind != Kind::AuthorizationPolicy);
    let forbidden = FORBIDDEN.into_iter().chain(dry_run);
    for name in forbidden.filter(|name| meta.annotations.contains_key(*name)) {
        r.error(
            &path.key(name),
            "bad-value",
            "the annotation must not be set on this kind of object",
        );
    }
}
