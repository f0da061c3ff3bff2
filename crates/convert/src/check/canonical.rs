//! Routes and connections in one form, whatever objects they come from.
//!
//! A route is divided into conditions on an exact path, a prefix of characters or a regular expression, each with its
//! action ([`Atom`]). A prefix of whole segments is two of them, `P` and `P/…`. Actions that Envoy performs equally have equal
//! JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::path::{Change, Text, Written};
use super::view::list;

/// The prefix of names of Secrets in the namespace of a proxy.
const OWN_SECRET: &str = "kubernetes://";
/// The prefix of names of Secrets in any namespace.
const ANY_SECRET: &str = "kubernetes-gateway://";
/// The regular expression for any origin.
const ANY_ORIGIN: &str = r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+";
/// The maximum age of an answer to a preflight request that does not say it.
const MAX_AGE: &str = "5";
/// A retry condition that only matters with status codes.
const STATUS_CODES: &str = "retriable-status-codes";

/// One condition on the path with its action.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Atom {
    pub(super) path: Text,
    /// Further conditions, all of which must hold, by what they concern.
    pub(super) conditions: BTreeSet<(String, Text)>,
    pub(super) action: Json,
}

impl Atom {
    /// The redirect of each request to a virtual host that requires TLS.
    pub(super) fn https_redirect() -> Atom {
        Atom {
            path: Text::Prefix("/".to_owned()),
            conditions: BTreeSet::new(),
            action: json!({"redirect": {"schemeRedirect": "https"}}),
        }
    }

    /// The answer to requests that no route matches.
    pub(super) fn not_found() -> Atom {
        Atom { path: Text::Prefix("/".to_owned()), conditions: BTreeSet::new(), action: Json::Null }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.action.is_null()
    }

    /// Whether no request matches both.
    pub(super) fn is_disjoint(&self, other: &Atom) -> bool {
        let apart = |(name, text): &(String, Text)| {
            other.conditions.iter().any(|(theirs, other)| name == theirs && text.is_disjoint(other))
        };
        self.path.is_disjoint(&other.path) || self.conditions.iter().any(apart)
    }

    /// The kind of its action.
    pub(super) fn does(&self) -> Option<&'static str> {
        ["route", "redirect", "directResponse"].into_iter().find(|kind| self.action.get(*kind).is_some())
    }

    /// The main part of the action.
    pub(super) fn shown_action(&self) -> String {
        let route = &self.action["route"];
        let clusters = list(&route["weightedClusters"]["clusters"]).iter().map(|cluster| &cluster["name"]);
        let clusters: Vec<&str> = clusters.chain([&route["cluster"]]).filter_map(Json::as_str).collect();
        let redirect = self.action.get("redirect").map(|redirect| format!("a redirect {redirect}"));
        let response = self.action["directResponse"]["status"].as_u64().map(|status| status.to_string());
        let mut out = redirect.or(response).unwrap_or_else(|| clusters.join(", "));
        if let Some(path) = self.action["path"].as_str() {
            out.push_str(&format!(", path {path}"));
        }
        out
    }

    pub(super) fn shown_with_action(&self) -> String {
        format!("{} to {}", self.shown(), self.shown_action())
    }

    pub(super) fn shown(&self) -> String {
        let mut out = self.path.shown();
        for (name, text) in &self.conditions {
            out.push_str(&format!(" {name}={}", text.shown()));
        }
        out
    }
}

/// The atoms of a route.
pub(super) fn atoms(route: &Json, secure: bool) -> Vec<Atom> {
    let mut action = route.clone();
    for name in ["match", "name", "metadata", "decorator", "statPrefix"] {
        remove(&mut action, name);
    }
    normalize(&mut action);
    push_headers_down(&mut action);
    let mut change = Change::None;
    if let Some(redirect) = action.get_mut("redirect") {
        redirects(redirect, secure);
        change = Change::take(redirect);
    }
    if let Some(route) = action.get_mut("route") {
        forwards(route);
        change = Change::take(route);
    }
    without_nulls(&mut action);
    let conditions = conditions(&route["match"]);
    let Some(written) = Written::of(&route["match"]) else {
        let path = Text::Other(route["match"].to_string());
        return vec![Atom { path, conditions, action }];
    };
    let any_case = route["match"]["caseSensitive"] == false;
    let atom = |(path, done): (Text, super::path::Done)| {
        let mut action = action.clone();
        if let (Some(fields), false) = (action.as_object_mut(), done.json().is_null()) {
            fields.insert("path".to_owned(), done.json());
        }
        let path = if any_case { ignoring_case(path) } else { path };
        Atom { path, conditions: conditions.clone(), action }
    };
    written.parts(&change).into_iter().map(atom).collect()
}

/// A condition on a path that ignores case, as a regular expression.
fn ignoring_case(path: Text) -> Text {
    let quoted = |text: &str| {
        let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
        text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect::<String>()
    };
    match path {
        Text::Prefix(text) if text == "/" => Text::Prefix(text),
        Text::Exact(text) => Text::Regex(format!("(?i){}", quoted(&text))),
        Text::Prefix(text) => Text::Regex(format!("(?i){}.*", quoted(&text))),
        // Case-sensitivity does not concern regular expressions.
        other => other,
    }
}

/// The conditions beside that on the path.
fn conditions(found: &Json) -> BTreeSet<(String, Text)> {
    let mut out = BTreeSet::new();
    for (field, prefix) in [("headers", "header "), ("queryParameters", "query ")] {
        for matcher in list(&found[field]) {
            let name = format!("{prefix}{}", matcher["name"].as_str().unwrap_or_default().to_lowercase());
            let text = match (&matcher["presentMatch"], &matcher["stringMatch"]) {
                (present, _) if *present == true => Text::Prefix(String::new()),
                (_, text) if text.is_object() => Text::of_matcher(text),
                _ => Text::Other(matcher.to_string()),
            };
            let inverted = matcher["invertMatch"] == true || matcher["treatMissingHeaderAsEmpty"] == true;
            out.insert((name, if inverted { Text::Other(matcher.to_string()) } else { text }));
        }
    }
    let known = ["path", "prefix", "pathSeparatedPrefix", "safeRegex", "headers", "queryParameters", "caseSensitive"];
    for (name, value) in found.as_object().into_iter().flatten().filter(|(name, _)| !known.contains(&name.as_str())) {
        out.insert((name.clone(), Text::Other(value.to_string())));
    }
    out
}

/// Fractions as parts of a million.
fn normalize(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            if let Some(numerator) = fields.get("numerator").and_then(Json::as_u64)
                && fields.keys().all(|name| name == "numerator" || name == "denominator")
            {
                let scale = match fields.get("denominator").and_then(Json::as_str) {
                    Some("MILLION") => 1,
                    Some("TEN_THOUSAND") => 100,
                    _ => 10_000,
                };
                *value = json!({"millionths": numerator.saturating_mul(scale)});
                return;
            }
            fields.values_mut().for_each(normalize);
        }
        Json::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

/// The lists of header changes, of which Envoy performs those of a cluster before those of the route.
const CHANGES: [(&str, &str); 2] =
    [("requestHeadersToRemove", "requestHeadersToAdd"), ("responseHeadersToRemove", "responseHeadersToAdd")];

/// Joins the header changes of the route and those of its clusters, by header.
fn push_headers_down(action: &mut Json) {
    let own: Vec<Json> = CHANGES.iter().flat_map(|(gone, more)| [remove(action, gone), remove(action, more)]).collect();
    let merge = |first: Option<&mut Json>| {
        let mut changes: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        let mut add = |kind: &str, gone: &Json, more: &Json| {
            for name in list(gone).iter().filter_map(Json::as_str) {
                changes.entry(format!("{kind} {}", name.to_lowercase())).or_default().push("remove".into());
            }
            for option in list(more) {
                let name = option["header"]["key"].as_str().unwrap_or_default().to_lowercase();
                let mut option = option.clone();
                remove(&mut option["header"], "key");
                changes.entry(format!("{kind} {name}")).or_default().push(option);
            }
        };
        if let Some(cluster) = first {
            for (kind, (gone, more)) in ["request", "response"].into_iter().zip(CHANGES) {
                let (gone, more) = (remove(cluster, gone), remove(cluster, more));
                add(kind, &gone, &more);
            }
        }
        add("request", &own[0], &own[1]);
        add("response", &own[2], &own[3]);
        // The last value that is set, or a removal, makes earlier changes pointless.
        for steps in changes.values_mut() {
            let overwrites = |step: &Json| *step == "remove" || step["appendAction"] == "OVERWRITE_IF_EXISTS_OR_ADD";
            if let Some(last) = steps.iter().rposition(overwrites) {
                steps.drain(..last);
            }
        }
        json!(changes)
    };
    // The authority of the route overrides that of a cluster.
    let host = action["route"]["hostRewriteLiteral"].clone();
    let clusters = action.pointer_mut("/route/weightedClusters/clusters").and_then(Json::as_array_mut);
    let weighted = clusters.is_some();
    match clusters {
        Some(clusters) => {
            for cluster in clusters {
                let changes = merge(Some(cluster));
                cluster["headers"] = changes;
                if !host.is_null() {
                    cluster["hostRewriteLiteral"] = host.clone();
                }
            }
        }
        None => {
            let changes = merge(None);
            action["headers"] = changes;
        }
    }
    if weighted {
        action.get_mut("route").map(|route| remove(route, "hostRewriteLiteral"));
    }
}

/// The port of a redirect is left out if it is the default one of the scheme.
fn redirects(redirect: &mut Json, secure: bool) {
    let scheme = redirect["schemeRedirect"].as_str().unwrap_or(if secure { "https" } else { "http" });
    let default = if scheme == "https" { 443 } else { 80 };
    if redirect["portRedirect"] == default || redirect["portRedirect"] == 0 {
        remove(redirect, "portRedirect");
    }
}

fn forwards(route: &mut Json) {
    // Only matters if the cluster does not exist.
    remove(route, "clusterNotFoundResponseCode");
    if let Some(policy) = route.get_mut("retryPolicy").filter(|policy| policy.is_object()) {
        let codes = !list(&policy["retriableStatusCodes"]).is_empty();
        let on = policy["retryOn"].as_str().unwrap_or_default();
        let on: BTreeSet<&str> = on.split(',').filter(|one| codes || *one != STATUS_CODES).collect();
        let on = on.into_iter().collect::<Vec<_>>().join(",");
        policy["retryOn"] = on.into();
        if let Some(codes) = policy.get_mut("retriableStatusCodes").and_then(Json::as_array_mut) {
            codes.sort_by_key(Json::as_u64);
        }
    }
    let clusters = route.pointer_mut("/weightedClusters/clusters").and_then(Json::as_array_mut);
    let Some(clusters) = clusters else { return };
    let sum: u64 = clusters.iter().filter_map(|cluster| cluster["weight"].as_u64()).sum();
    for cluster in clusters.iter_mut() {
        let weight = cluster["weight"].as_u64().unwrap_or_default();
        // Parts of a billion.
        cluster["weight"] = weight.saturating_mul(1_000_000_000).checked_div(sum).unwrap_or_default().into();
    }
    clusters.sort_by_key(|cluster| (cluster["name"].to_string(), cluster.to_string()));
}

/// The settings of a virtual host or a cluster.
pub(super) fn settings(host: &Json) -> Json {
    let mut out = host.clone();
    for name in ["name", "domains", "routes", "requireTls", "metadata"] {
        remove(&mut out, name);
    }
    out
}

/// The settings of a filter chain without names. Secrets without a namespace are in `namespace`.
pub(super) fn connection(chain: &Json, namespace: &str) -> Json {
    let mut out = chain.clone();
    for name in ["name", "metadata", "filterChainMatch"] {
        remove(&mut out, name);
    }
    anonymous(&mut out, namespace);
    out
}

/// Removes names of route tables and statistics, and completes the names of Secrets.
fn anonymous(value: &mut Json, namespace: &str) {
    match value {
        Json::Object(fields) => {
            for name in ["routeConfigName", "statPrefix", "routeConfig"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(|value| anonymous(value, namespace));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| anonymous(item, namespace)),
        Json::String(text) => {
            let full = match (text.strip_prefix(ANY_SECRET), text.strip_prefix(OWN_SECRET)) {
                (Some(name), _) => Some(format!("Secret {name}")),
                (None, Some(name)) => Some(format!("Secret {namespace}/{name}")),
                (None, None) => None,
            };
            *text = full.unwrap_or_else(|| std::mem::take(text));
        }
        _ => {}
    }
}

/// Removes and returns a field.
fn remove(value: &mut Json, name: &str) -> Json {
    value.as_object_mut().and_then(|fields| fields.remove(name)).unwrap_or_default()
}

/// Removes what is absent, and puts CORS policies into one form.
fn without_nulls(action: &mut Json) {
    let Some(fields) = action.as_object_mut() else { return };
    fields.retain(|name, value| !value.is_null() && (name != "headers" || *value != json!({})));
    for options in fields.get_mut("typedPerFilterConfig").and_then(Json::as_object_mut).into_iter() {
        if let Some(cors) = options.get_mut("envoy.filters.http.cors").and_then(Json::as_object_mut) {
            canonical_cors(cors);
        }
    }
}

fn canonical_cors(cors: &mut Map<String, Json>) {
    if cors.get("maxAge").and_then(Json::as_str).is_none_or(str::is_empty) {
        cors.insert("maxAge".to_owned(), MAX_AGE.into());
    }
    let origins = cors.remove("allowOriginStringMatch").unwrap_or_default();
    let origin = |matcher: &Json| match Text::of_matcher(matcher) {
        Text::Regex(regex) if regex == ANY_ORIGIN => "*".to_owned(),
        Text::Exact(text) => text,
        other => other.shown(),
    };
    let origins: BTreeSet<String> = list(&origins).iter().map(origin).collect();
    cors.insert("origins".to_owned(), json!(origins));
}
