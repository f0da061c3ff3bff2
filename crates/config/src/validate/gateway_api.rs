//! Warnings about Gateway API objects. Errors come from the schemas and their CEL rules.

use crate::diagnostic::FieldPath;
use crate::gateway_api::gateway::{FromListenerNamespaces, Gateway};
use crate::gateway_api::grpc_route::GrpcRoute;
use crate::gateway_api::http_route::{HttpRoute, HttpRouteMatch, PathMatchType, TextMatchType};
use crate::gateway_api::listener::{FromNamespaces, Listener, ListenerSet};
use crate::validate::{Report, regex};

/// Protocols that the API defines.
const PROTOCOLS: [&str; 5] = ["HTTP", "HTTPS", "TLS", "TCP", "UDP"];

pub(super) fn check_gateway(r: &mut Report, spec: &Gateway) {
    listeners(r, &spec.listeners);
    if let Some(allowed) = &spec.allowed_listeners {
        let at = FieldPath::spec().field("allowedListeners").field("namespaces");
        let wanted = allowed.namespaces.from == FromListenerNamespaces::Selector;
        selector(r, &at, wanted, allowed.namespaces.selector.is_some());
    }
}

pub(super) fn check_listener_set(r: &mut Report, spec: &ListenerSet) {
    listeners(r, &spec.listeners);
}

fn listeners(r: &mut Report, listeners: &[Listener]) {
    for (index, listener) in listeners.iter().enumerate() {
        let path = FieldPath::spec().field("listeners").index(index);
        let protocol = &*listener.protocol;
        let is_known = |known: &&&str| known.eq_ignore_ascii_case(protocol) && **known != protocol;
        if let Some(known) = PROTOCOLS.iter().find(is_known) {
            let message = format!("{protocol:?} is none of the protocols of the API, and no gateway may support it");
            let hint = format!("did you mean {known}?");
            r.warning_with(&path.field("protocol"), "bad-value", message, hint);
        }
        let namespaces = &listener.allowed_routes.namespaces;
        let at = path.field("allowedRoutes").field("namespaces");
        let wanted = namespaces.from == FromNamespaces::Selector;
        selector(r, &at, wanted, namespaces.selector.is_some());
    }
}

/// A selector has an effect with `from: Selector` only. The API accepts other combinations.
fn selector(r: &mut Report, path: &FieldPath, wanted: bool, is_set: bool) {
    match (wanted, is_set) {
        (true, false) => r.warning(path, "no-effect", "Selector without a selector selects no namespaces"),
        (false, true) => {
            let message = "a selector has an effect with from: Selector only";
            r.warning(&path.field("selector"), "no-effect", message);
        }
        _ => {}
    }
}

pub(super) fn check_http(r: &mut Report, spec: &HttpRoute) {
    for (rule, at) in spec.rules.iter().zip(rules()) {
        for (index, matches) in rule.matches.iter().enumerate() {
            http_match(r, &at.field("matches").index(index), matches);
        }
    }
}

/// The paths of `spec.rules[0]`, `spec.rules[1]` and so on.
fn rules() -> impl Iterator<Item = FieldPath> {
    (0..).map(|index| FieldPath::spec().field("rules").index(index))
}

fn http_match(r: &mut Report, path: &FieldPath, matches: &HttpRouteMatch) {
    if matches.path.kind == PathMatchType::RegularExpression {
        regular_expression(r, &path.field("path").field("value"), &matches.path.value);
    }
    let headers = matches.headers.iter().map(|header| (header.kind, &header.value));
    regular_expressions(r, &path.field("headers"), headers);
    let params = matches.query_params.iter().map(|param| (param.kind, &param.value));
    regular_expressions(r, &path.field("queryParams"), params);
}

pub(super) fn check_grpc(r: &mut Report, spec: &GrpcRoute) {
    for (rule, at) in spec.rules.iter().zip(rules()) {
        for (index, matches) in rule.matches.iter().enumerate() {
            let at = at.field("matches").index(index);
            let method = matches
                .method
                .iter()
                .filter(|m| m.kind == TextMatchType::RegularExpression);
            for (field, text) in method.flat_map(|m| [("service", &m.service), ("method", &m.method)]) {
                if let Some(text) = text {
                    regular_expression(r, &at.field("method").field(field), text);
                }
            }
            let headers = matches.headers.iter().map(|header| (header.kind, &header.value));
            regular_expressions(r, &at.field("headers"), headers);
        }
    }
}

fn regular_expressions<'v>(
    r: &mut Report,
    path: &FieldPath,
    values: impl Iterator<Item = (TextMatchType, &'v std::sync::Arc<str>)>,
) {
    for (index, (kind, value)) in values.enumerate() {
        if kind == TextMatchType::RegularExpression {
            regular_expression(r, &path.index(index).field("value"), value);
        }
    }
}

/// Warns about a regular expression that Envoy rejects. The API does not check them.
fn regular_expression(r: &mut Report, path: &FieldPath, text: &str) {
    if let Some(problem) = regex::problem(text) {
        r.warning(path, "bad-regex", format!("{problem}; the route cannot be used"));
    }
}
