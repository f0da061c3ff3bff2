//! Converts the rules of a VirtualService.

use std::sync::Arc;

use config::gateway_api::filter::{HttpFilterType, HttpPathModifier, HttpRouteFilter, UrlRewriteFilter};
use config::gateway_api::http_route::{HttpRouteMatch, HttpRouteRule, PathMatchType};
use config::istio::{HttpAction, HttpMatchRequest, HttpRoute, VirtualService};
use config::{FieldPath, Kind, ObjectKey};
use model::service::ObjectId;

use crate::action;
use crate::context::Context;
use crate::matching::{self, Condition, Uri};
use crate::policy;
use crate::{Prefixes, backend};

/// The most matches of a rule.
const MAX_MATCHES: usize = 64;

/// Converts rules for one port of one Gateway.
pub(crate) struct Rules<'c, 'a> {
    pub(crate) cx: &'c mut Context<'a>,
    /// The original object.
    pub(crate) object: &'c ObjectKey,
    /// The kind of the route.
    pub(crate) kind: Kind,
    /// The namespace of the route.
    pub(crate) namespace: &'c Arc<str>,
    /// The original Gateway.
    pub(crate) gateway: &'c ObjectId,
    /// The port of the listener.
    pub(crate) port: u16,
    /// Whether the listener terminates TLS.
    pub(crate) secure: bool,
}

impl Rules<'_, '_> {
    pub(crate) fn lost(&mut self, path: FieldPath, message: impl Into<String>, hint: &str) {
        self.cx.lost(self.object, path, message, hint);
    }

    pub(crate) fn note(&mut self, path: FieldPath, message: impl Into<String>, hint: &str) {
        self.cx.note(self.object, path, message, hint);
    }

    pub(crate) fn prefixes(&self) -> Prefixes {
        self.cx.options.prefixes
    }

    /// Whether a condition can hold at this port. Those on the client's workload hold at no gateway.
    fn admits(&mut self, found: &HttpMatchRequest, at: &FieldPath) -> bool {
        for (field, is_set) in
            [("sourceLabels", !found.source_labels.is_empty()), ("sourceNamespace", !found.source_namespace.is_empty())]
        {
            if is_set {
                let message = format!("{field} never holds at a gateway; the match is left out");
                self.note(at.field(field), message, "");
                return false;
            }
        }
        let name = format!("{}/{}", self.gateway.namespace, self.gateway.name);
        let names = |gateway: &Arc<str>| *VirtualService::full_gateway(gateway, &self.object.namespace) == *name;
        let here = found.gateways.is_empty() || found.gateways.iter().any(names);
        here && (found.port == 0 || found.port == u32::from(self.port))
    }

    /// The conditions of a rule that can hold here. None if the rule never applies.
    fn conditions(&mut self, rule: &HttpRoute, at: &FieldPath) -> Option<Vec<Condition>> {
        if rule.matches.is_empty() {
            let everything = HttpRouteMatch::default();
            return Some(vec![Condition { uri: Uri::Any, ignore_case: false, rest: everything, at: at.clone() }]);
        }
        let mut all = Vec::new();
        for (index, found) in rule.matches.iter().enumerate() {
            let at = at.field("match").index(index);
            if self.admits(found, &at) {
                all.extend(matching::condition(self, found, &at));
            }
        }
        (!all.is_empty()).then_some(all)
    }
}

/// The change of a path by a rule.
enum PathChange {
    None,
    /// This replaces the matched prefix.
    Prefix(Arc<str>),
    /// This replaces the path.
    Full(Arc<str>),
}

/// Converts a rule: to several, if their matches need different filters.
pub(crate) fn convert(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath) -> Vec<HttpRouteRule> {
    let Some(conditions) = rules.conditions(rule, at) else { return Vec::new() };
    policy::report_faults(rules, rule, at);
    let mut shared = HttpRouteRule { matches: Vec::new(), ..HttpRouteRule::default() };
    shared.filters.extend(action::headers(rules, rule.headers.as_ref(), &at.field("headers")));
    shared.filters.extend(policy::cors(rules, rule, at));
    let change = match rule.action() {
        HttpAction::Redirect(redirect) => {
            let (filter, change) = action::redirect(rules, redirect, &at.field("redirect"));
            shared.filters.push(filter);
            match (&*redirect.prefix_rewrite, change) {
                ("", Some(path)) => PathChange::Full(path),
                ("", None) => PathChange::None,
                _ => PathChange::Prefix(redirect.prefix_rewrite.clone()),
            }
        }
        HttpAction::DirectResponse(response) => {
            let message =
                format!("a route has no fixed response; these requests get 500 instead of {}", response.status);
            rules.lost(at.field("directResponse"), message, "Route these requests to a service that answers so");
            return finish(rule, shared, conditions.iter().map(|one| matching::with_path(rules, one)).collect());
        }
        HttpAction::Delegate(_) => {
            let message = "the delegate was not found; these requests get 500";
            rules.lost(at.field("delegate"), message, "Add the delegate to the files");
            return finish(rule, shared, conditions.iter().map(|one| matching::with_path(rules, one)).collect());
        }
        HttpAction::Route(destinations) => {
            shared.filters.extend(backend::mirrors(rules, rule, at));
            shared.backend_refs = backend::all(rules, destinations, &at.field("route"));
            policy::set_times(rules, rule, at, &mut shared);
            rewrite(rules, rule, at, &mut shared)
        }
    };
    match change {
        PathChange::None => {
            let found = matching::joined(conditions);
            finish(rule, shared, found.iter().map(|one| matching::with_path(rules, one)).collect())
        }
        PathChange::Full(path) => {
            let path = HttpPathModifier { replace_full_path: Some(path), ..HttpPathModifier::default() };
            let shared = with_path(shared, path);
            let matches = conditions.iter().map(|one| matching::with_path(rules, one)).collect();
            finish(rule, shared, matches)
        }
        PathChange::Prefix(value) => {
            // If it is removed, the path and those below it are changed equally.
            let found = if &*value == "/" { matching::joined(conditions) } else { conditions };
            let exact = |text: &str| found.iter().any(|one| matches!(&one.uri, Uri::Exact(other) if **other == *text));
            let mut out = Vec::new();
            for one in &found {
                let is_pair = matches!(&one.uri, Uri::Prefix(text) if text.strip_suffix('/').is_some_and(exact));
                out.push(with_prefix(rules, &shared, one, &value, is_pair));
            }
            out
        }
    }
}

/// The rewrite of a rule. Adds the filter without its path.
fn rewrite(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath, out: &mut HttpRouteRule) -> PathChange {
    let Some(rewrite) = &rule.rewrite else { return PathChange::None };
    let at = at.field("rewrite");
    if rewrite.uri_regex_rewrite.is_some() {
        let message = "a rewrite by regular expression has no place in a route; the path is not changed";
        rules.lost(at.field("uriRegexRewrite"), message, "Replace a prefix, or let the application accept the path");
    }
    let hostname = action::hostname(rules, &rewrite.authority, &at.field("authority"));
    if hostname.is_some() || !rewrite.uri.is_empty() {
        let rewrite = UrlRewriteFilter { hostname, path: None };
        out.filters.push(HttpRouteFilter {
            kind: HttpFilterType::UrlRewrite,
            url_rewrite: Some(rewrite),
            ..HttpRouteFilter::default()
        });
    }
    match &*rewrite.uri {
        "" => PathChange::None,
        _ => PathChange::Prefix(rewrite.uri.clone()),
    }
}

/// A rule with one match, whose prefix `value` replaces. `is_pair`: another match has the path without the slash at its end.
fn with_prefix(
    rules: &mut Rules<'_, '_>,
    shared: &HttpRouteRule,
    condition: &Condition,
    value: &Arc<str>,
    is_pair: bool,
) -> HttpRouteRule {
    let prefix = match (&condition.uri, condition.ignore_case) {
        (Uri::Any, _) => Some("/"),
        (Uri::Prefix(text), false) if matching::is_path(text) => Some(&**text),
        (Uri::Segments(text), _) => Some(&**text),
        (Uri::Prefix(_), _) => {
            let message = "only a prefix of whole segments, in their case, can be replaced; the whole path is replaced";
            rules.lost(condition.at.field("uri"), message, "Write the prefix as segments of valid characters");
            None
        }
        // Envoy replaces the whole path.
        (Uri::Exact(_) | Uri::Regex(_), _) => None,
    };
    let Some(prefix) = prefix else {
        let path = HttpPathModifier { replace_full_path: Some(value.clone()), ..HttpPathModifier::default() };
        let matches = vec![matching::with_path(rules, condition)];
        return HttpRouteRule { matches, ..with_path(shared.clone(), path) };
    };
    let is_whole = is_pair || matches!(condition.uri, Uri::Any | Uri::Segments(_));
    if !is_whole {
        matching::widened(rules, condition, prefix);
    }
    if !matches!(condition.uri, Uri::Segments(_)) && prefix.ends_with('/') != value.ends_with('/') {
        let message = format!(
            "replacing {prefix} by {value} joins or doubles slashes; ReplacePrefixMatch puts one slash between segments"
        );
        rules.lost(condition.at.field("uri"), message, "Check the paths that the application gets");
    }
    let path = HttpPathModifier {
        kind: config::gateway_api::filter::PathModifierType::ReplacePrefixMatch,
        replace_prefix_match: Some(value.clone()),
        replace_full_path: None,
    };
    let path_match = matching::path(PathMatchType::PathPrefix, prefix.to_owned());
    let matches = vec![HttpRouteMatch { path: path_match, ..condition.rest.clone() }];
    HttpRouteRule { matches, ..with_path(shared.clone(), path) }
}

/// The rule with a change of the path in its redirect or rewrite.
fn with_path(mut rule: HttpRouteRule, path: HttpPathModifier) -> HttpRouteRule {
    for filter in &mut rule.filters {
        if let Some(redirect) = &mut filter.request_redirect {
            redirect.path = Some(path.clone());
        }
        if let Some(rewrite) = &mut filter.url_rewrite {
            rewrite.path = Some(path.clone());
        }
    }
    rule
}

/// The rules for these matches.
fn finish(rule: &HttpRoute, shared: HttpRouteRule, matches: Vec<HttpRouteMatch>) -> Vec<HttpRouteRule> {
    let named = matches.len() <= MAX_MATCHES && is_rule_name(&rule.name);
    let name = named.then(|| rule.name.clone());
    matches
        .chunks(MAX_MATCHES)
        .map(|part| HttpRouteRule { name: name.clone(), matches: part.to_vec(), ..shared.clone() })
        .collect()
}

/// Whether a rule can have the name.
fn is_rule_name(name: &str) -> bool {
    crate::listener::is_hostname(name) && !name.starts_with('*') && !name.bytes().any(|c| c.is_ascii_uppercase())
}
