//! Session persistence of rules.
//!
//! Envoy looks for the endpoint of a session in the cluster of the route. If a rule has several backends, a second
//! cookie therefore names that of the session: each backend has a route for the requests with its cookie, before the route that
//! chooses by weight. As the specification requires, sessions also stay with a backend whose weight is 0. A header has no
//! second one, so that its sessions are divided by weight; validation warns about it.

use std::slice;

use config::gateway_api::http_route::{HttpBackendRef, HttpRouteRule};
use gateway_api::backends::{Backend, Target};
use model::kube::RouteId;
use model::session::Session;
use model::xds::Version;
use protos::envoy::config::core::v3::HeaderValueOption;
use protos::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use protos::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use protos::envoy::config::route::v3::{HeaderMatcher, Route};
use protos::envoy::r#type::matcher::v3::StringMatcher;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::super::destinations::Destinations;
use super::super::headers;
use super::{Context, Rule};
use crate::parts::{quoted, regex};

/// The session affinity of a rule. It does not depend on the position of a rule with a name.
pub(super) fn of(rule: &HttpRouteRule, route: &RouteId, index: usize) -> Option<Session> {
    let settings = rule.session_persistence.as_ref()?;
    let name = rule.name.as_deref().map_or_else(|| index.to_string(), str::to_owned);
    Some(Session::of(settings, &format!("{route:?}/{name}")))
}

/// The routes of a rule for the requests of sessions with each of its backends, and their conditions.
pub(super) fn routes(rule: &Rule<'_>, index: usize, context: &Context<'_>) -> Vec<(Route, HeaderMatcher)> {
    if !rule.marks {
        return Vec::new();
    }
    let backends = rule.spec.backend_refs.iter().zip(rule.backends);
    let route = |(reference, backend): (&HttpBackendRef, &Backend)| {
        let only = HttpBackendRef { weight: 1, ..reference.clone() };
        let spec = HttpRouteRule { backend_refs: vec![only], ..rule.spec.clone() };
        let condition = condition(rule.session.as_ref()?, backend.target.as_ref().ok()?, context.destinations)?;
        let rule = Rule { spec: &spec, backends: slice::from_ref(backend), marks: false, ..rule.clone() };
        Some((super::route(&rule, index, context), condition))
    };
    backends.filter_map(route).collect()
}

/// Names the backend of a new session in a cookie.
pub(super) fn mark(rule: &Rule<'_>, target: Option<&Target>, destinations: &Destinations) -> Option<HeaderValueOption> {
    let (Some(Session::Cookie { name, path, lifetime }), true) = (&rule.session, rule.marks) else { return None };
    let mut cookie = format!("{}; HttpOnly", pair(name, target?, destinations));
    if !path.is_empty() {
        cookie.push_str(&format!("; Path={path}"));
    }
    if let Some(lifetime) = lifetime {
        cookie.push_str(&format!("; Max-Age={}", lifetime.as_secs()));
    }
    // A percent sign would start a variable.
    Some(headers::option("set-cookie", &cookie.replace('%', "%%"), HeaderAppendAction::AppendIfExistsOrAdd))
}

/// Matches requests of sessions with a backend.
fn condition(session: &Session, target: &Target, destinations: &Destinations) -> Option<HeaderMatcher> {
    let Session::Cookie { name, .. } = session else { return None };
    let pattern = format!("(?:.*[; ])?{}(?:[; ].*)?", quoted(&pair(name, target, destinations)));
    let text = StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex(&pattern))), ignore_case: false };
    let specifier = HeaderMatchSpecifier::StringMatch(text);
    Some(HeaderMatcher { name: "cookie".to_owned(), header_match_specifier: Some(specifier), ..Default::default() })
}

/// The cookie that names a backend. It tells nobody more than which sessions have the same.
fn pair(session: &str, target: &Target, destinations: &Destinations) -> String {
    format!("{session}-backend={}", Version::of(destinations.cluster_of(target).as_bytes()))
}
