//! Warnings about Gateway API objects. Errors come from the schemas and their CEL rules.

use crate::decode::{Relations, Report};
use crate::form;
use crate::gateway_api::gateway::{FromListenerNamespaces, ListenerNamespaces};
use crate::gateway_api::grpc_route::{GrpcHeaderMatch, GrpcMethodMatch};
use crate::gateway_api::http_route::{
    HttpHeaderMatch, HttpPathMatch, HttpQueryParamMatch, PathMatchType, TextMatchType,
};
use crate::gateway_api::listener::{FromNamespaces, Listener, RouteNamespaces};
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

/// Warns about a regular expression that Envoy rejects. The API does not check them.
fn regular_expression(r: &mut Report, path: &FieldPath, text: &str) {
    if let Err(problem) = form::check_regex(text) {
        r.warning(path, "bad-regex", format!("{problem}; the route cannot be used"));
    }
}
