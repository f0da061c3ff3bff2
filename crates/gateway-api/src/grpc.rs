//! GRPCRoutes as HTTPRoutes: a call is a request with the path `/SERVICE/METHOD`.
//!
//! Two differences are left to the users: the rank of matches ([`Rank::of_grpc`](crate::rank::Rank)), and how calls fail.

use std::borrow::Cow;
use std::sync::Arc;

use config::gateway_api::filter::{GrpcFilterType, GrpcRouteFilter, HttpFilterType, HttpRouteFilter};
use config::gateway_api::grpc_route::{
    GrpcBackendRef, GrpcHeaderMatch, GrpcMethodMatch, GrpcRouteMatch, GrpcRouteRule,
};
use config::gateway_api::http_route::{
    HttpBackendRef, HttpHeaderMatch, HttpPathMatch, HttpRouteMatch, HttpRouteRule, PathMatchType, TextMatchType,
};
use config::gateway_api::{GrpcRoute, HttpRoute};
use registry::inputs::RouteObject;

/// The HTTPRoute that an HTTPRoute or GRPCRoute is. None for other routes.
pub fn http_route(object: &RouteObject) -> Option<Cow<'_, HttpRoute>> {
    match object {
        RouteObject::Http(object) => Some(Cow::Borrowed(&object.spec)),
        RouteObject::Grpc(object) => Some(Cow::Owned(as_http(&object.spec))),
        RouteObject::Tls(_) | RouteObject::Tcp(_) | RouteObject::Udp(_) => None,
    }
}

fn as_http(route: &GrpcRoute) -> HttpRoute {
    HttpRoute {
        parent_refs: route.parent_refs.clone(),
        hostnames: route.hostnames.clone(),
        rules: route.rules.iter().map(rule).collect(),
        ..HttpRoute::default()
    }
}

fn rule(rule: &GrpcRouteRule) -> HttpRouteRule {
    HttpRouteRule {
        name: rule.name.clone(),
        matches: matches(rule).map(|condition| as_http_match(&condition)).collect(),
        filters: rule.filters.iter().map(filter).collect(),
        backend_refs: rule.backend_refs.iter().map(backend).collect(),
        session_persistence: rule.session_persistence.clone(),
        ..HttpRouteRule::default()
    }
}

/// The matches of a rule. One without any matches all calls.
pub(crate) fn matches(rule: &GrpcRouteRule) -> impl Iterator<Item = Cow<'_, GrpcRouteMatch>> {
    let all = rule.matches.is_empty().then(|| Cow::Owned(GrpcRouteMatch::default()));
    rule.matches.iter().map(Cow::Borrowed).chain(all)
}

/// The condition on a request.
pub(crate) fn as_http_match(condition: &GrpcRouteMatch) -> HttpRouteMatch {
    let header =
        |one: &GrpcHeaderMatch| HttpHeaderMatch { kind: one.kind, name: one.name.clone(), value: one.value.clone() };
    HttpRouteMatch {
        path: condition.method.as_ref().map(path).unwrap_or_default(),
        headers: condition.headers.iter().map(header).collect(),
        ..HttpRouteMatch::default()
    }
}

/// The service and method that a condition names. An empty name is none.
pub(crate) fn named(condition: &GrpcMethodMatch) -> (Option<&str>, Option<&str>) {
    fn given(text: &Option<Arc<str>>) -> Option<&str> {
        text.as_deref().filter(|text| !text.is_empty())
    }
    (given(&condition.service), given(&condition.method))
}

/// The condition on the path. Without a service, a method can only be found by a regular expression.
fn path(condition: &GrpcMethodMatch) -> HttpPathMatch {
    let exact = condition.kind == TextMatchType::Exact;
    let (kind, value) = match named(condition) {
        (None, None) => return HttpPathMatch::default(),
        (Some(service), Some(method)) if exact => (PathMatchType::Exact, format!("/{service}/{method}")),
        (Some(service), None) if exact => (PathMatchType::PathPrefix, format!("/{service}/")),
        (None, Some(method)) if exact => (PathMatchType::RegularExpression, format!("/[^/]+/{method}")),
        (service, method) => {
            let part = |text: Option<&str>| text.map_or_else(|| "[^/]+".to_owned(), |text| format!("(?:{text})"));
            (PathMatchType::RegularExpression, format!("/{}/{}", part(service), part(method)))
        }
    };
    HttpPathMatch { kind, value: value.into() }
}

fn filter(filter: &GrpcRouteFilter) -> HttpRouteFilter {
    HttpRouteFilter {
        kind: match filter.kind {
            GrpcFilterType::RequestHeaderModifier => HttpFilterType::RequestHeaderModifier,
            GrpcFilterType::ResponseHeaderModifier => HttpFilterType::ResponseHeaderModifier,
            GrpcFilterType::RequestMirror => HttpFilterType::RequestMirror,
            GrpcFilterType::ExtensionRef => HttpFilterType::ExtensionRef,
        },
        request_header_modifier: filter.request_header_modifier.clone(),
        response_header_modifier: filter.response_header_modifier.clone(),
        request_mirror: filter.request_mirror.clone(),
        extension_ref: filter.extension_ref.clone(),
        ..HttpRouteFilter::default()
    }
}

fn backend(backend: &GrpcBackendRef) -> HttpBackendRef {
    HttpBackendRef {
        group: backend.group.clone(),
        kind: backend.kind.clone(),
        name: backend.name.clone(),
        namespace: backend.namespace.clone(),
        port: backend.port,
        weight: backend.weight,
        filters: backend.filters.iter().map(filter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_paths() {
        use PathMatchType::{Exact, PathPrefix, RegularExpression};
        let of = |kind, service: &str, method: &str| {
            let given = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
            let method = GrpcMethodMatch { kind, service: given(service), method: given(method) };
            let condition = GrpcRouteMatch { method: Some(method), ..Default::default() };
            let path = as_http_match(&condition).path;
            (path.kind, path.value.to_string())
        };
        let text = TextMatchType::Exact;
        assert_eq!(of(text, "a.B", "Get"), (Exact, "/a.B/Get".into()));
        assert_eq!(of(text, "a.B", ""), (PathPrefix, "/a.B/".into()));
        assert_eq!(of(text, "", "Get"), (RegularExpression, "/[^/]+/Get".into()));
        let regex = TextMatchType::RegularExpression;
        assert_eq!(of(regex, "a|b", "G.*"), (RegularExpression, "/(?:a|b)/(?:G.*)".into()));
        assert_eq!(of(regex, "a.*", ""), (RegularExpression, "/(?:a.*)/[^/]+".into()));
        assert_eq!(of(regex, "", "G.*"), (RegularExpression, "/[^/]+/(?:G.*)".into()));
        assert_eq!(as_http_match(&GrpcRouteMatch::default()), HttpRouteMatch::default());
    }

    #[test]
    fn a_rule_without_matches_matches_all_calls() {
        let route = as_http(&GrpcRoute { rules: vec![GrpcRouteRule::default()], ..GrpcRoute::default() });
        assert_eq!(route.rules[0].matches, [HttpRouteMatch::default()]);
        assert!(as_http(&GrpcRoute::default()).rules.is_empty());
    }
}
