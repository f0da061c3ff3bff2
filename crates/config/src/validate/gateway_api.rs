//! Warnings about Gateway API objects. Errors come from the schemas and their CEL rules.

use crate::decode::{Relations, Report};
use crate::form;
use crate::gateway_api::backend_policy::RequestRate;
use crate::gateway_api::gateway::{FromListenerNamespaces, ListenerNamespaces};
use crate::gateway_api::grpc_route::{GrpcHeaderMatch, GrpcMethodMatch, GrpcRouteRule};
use crate::gateway_api::http_route::{
    HttpHeaderMatch, HttpPathMatch, HttpQueryParamMatch, HttpRouteRule, PathMatchType, TextMatchType,
};
use crate::gateway_api::listener::{FromNamespaces, Listener, RouteNamespaces};
use crate::gateway_api::session::{SessionPersistence, SessionPersistenceType};
use crate::problem::FieldPath;

/// Protocols that the API defines.
const PROTOCOLS: [&str; 5] = ["HTTP", "HTTPS", "TLS", "TCP", "UDP"];

impl Relations for Listener {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let protocol = &*self.protocol;
        let is_known = |known: &&&str| known.eq_ignore_ascii_case(protocol) && **known != protocol;
        if let Some(known) = PROTOCOLS.iter().find(is_known) {
            let message = format!("{protocol:?} is none of the protocols of the API, and no gateway may support it");
            let hint = format!("did you mean {known}?");
            r.warning_with(&path.field("protocol"), "bad-value", message, hint);
        }
    }
}

impl Relations for RequestRate {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        // API servers set the default.
        if self.interval.is_some_and(|interval| interval != RequestRate::INTERVAL) {
            let message =
                "the interval has no effect: Envoy always allows a number of concurrent retries (count), not a rate";
            r.warning(&path.field("interval"), "no-effect", message);
        }
    }
}

impl Relations for ListenerNamespaces {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let wanted = self.from == FromListenerNamespaces::Selector;
        selector(r, path, wanted, self.selector.is_some());
    }
}

impl Relations for RouteNamespaces {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        selector(r, path, self.from == FromNamespaces::Selector, self.selector.is_some());
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

impl Relations for HttpPathMatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.kind == PathMatchType::RegularExpression {
            regular_expression(r, &path.field("value"), &self.value);
        }
    }
}

impl Relations for HttpHeaderMatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        typed(r, &path.field("value"), self.kind, &self.value);
    }
}

impl Relations for HttpQueryParamMatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        typed(r, &path.field("value"), self.kind, &self.value);
    }
}

impl Relations for GrpcHeaderMatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        typed(r, &path.field("value"), self.kind, &self.value);
    }
}

impl Relations for GrpcMethodMatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        for (field, text) in [("service", &self.service), ("method", &self.method)] {
            if let Some(text) = text {
                typed(r, &path.field(field), self.kind, text);
            }
        }
    }
}

fn typed(r: &mut Report, path: &FieldPath, kind: TextMatchType, text: &str) {
    if kind == TextMatchType::RegularExpression {
        regular_expression(r, path, text);
    }
}

impl Relations for HttpRouteRule {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        of_several(r, path, self.session_persistence.as_ref(), self.backend_refs.len());
    }
}

impl Relations for GrpcRouteRule {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        of_several(r, path, self.session_persistence.as_ref(), self.backend_refs.len());
    }
}

/// Warns about sessions whose identification does not say which of several backends they belong to.
fn of_several(r: &mut Report, path: &FieldPath, session: Option<&SessionPersistence>, backends: usize) {
    if backends > 1 && session.is_some_and(|session| session.kind == SessionPersistenceType::Header) {
        let message = "a header identifies an endpoint of one backend only: with several backends, requests of a session are \
                       divided by weight";
        r.warning_with(&path.field("sessionPersistence").field("type"), "no-effect", message, "use the type Cookie");
    }
}

impl Relations for SessionPersistence {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        for (field, message) in self.limits() {
            r.warning(&path.field(field), "no-effect", message);
        }
    }
}

/// Warns about a regular expression that Envoy rejects. The API does not check them.
fn regular_expression(r: &mut Report, path: &FieldPath, text: &str) {
    if let Err(problem) = form::check_regex(text) {
        r.warning(path, "bad-regex", format!("{problem}; the route cannot be used"));
    }
}
