//! Delegation: merges routes of a delegate VirtualService with the conditions of the root's route.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::{HttpMatchRequest, HttpRoute, StringMatch};

/// The delegate's routes as part of `root`. Routes with contradictory conditions and routes that delegate again are
/// omitted.
pub(super) fn merge(root: &HttpRoute, routes: Vec<HttpRoute>) -> Vec<HttpRoute> {
    routes.into_iter().filter(|r| r.delegate.is_none()).filter_map(|r| merge_route(root, r)).collect()
}

/// The root's settings apply where the delegate sets none.
fn merge_route(root: &HttpRoute, route: HttpRoute) -> Option<HttpRoute> {
    let matches = merge_matches(&root.matches, &route.matches)?;
    let root = root.clone();
    Some(HttpRoute {
        name: joined(&root.name, &route.name),
        matches,
        route: route.route,
        redirect: route.redirect,
        direct_response: route.direct_response.or(root.direct_response),
        delegate: None,
        rewrite: route.rewrite.or(root.rewrite),
        timeout: route.timeout.or(root.timeout),
        retries: route.retries.or(root.retries),
        fault: route.fault.or(root.fault),
        mirror: route.mirror.or(root.mirror),
        mirrors: if route.mirrors.is_empty() { root.mirrors } else { route.mirrors },
        mirror_percent: route.mirror_percent.or(root.mirror_percent),
        mirror_percentage: route.mirror_percentage.or(root.mirror_percentage),
        cors_policy: route.cors_policy.or(root.cors_policy),
        headers: route.headers.or(root.headers),
    })
}

/// The conjunctions of each condition of the delegate with each compatible condition of the root. `None` if one of the
/// delegate's is compatible with none.
fn merge_matches(root: &[HttpMatchRequest], leaf: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() {
        return Some(leaf.to_vec());
    }
    if leaf.is_empty() {
        return Some(root.to_vec());
    }
    let mut out = Vec::new();
    for condition in leaf {
        let before = out.len();
        out.extend(root.iter().filter(|r| !conflict(r, condition)).map(|r| merge_match(r, condition)));
        if out.len() == before {
            return None;
        }
    }
    Some(out)
}

fn merge_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let either = |a: &Option<StringMatch>, b: &Option<StringMatch>| a.clone().or_else(|| b.clone());
    HttpMatchRequest {
        name: joined(&root.name, &leaf.name),
        uri: either(&leaf.uri, &root.uri),
        scheme: either(&leaf.scheme, &root.scheme),
        method: either(&leaf.method, &root.method),
        authority: either(&leaf.authority, &root.authority),
        headers: overlaid(&root.headers, &leaf.headers),
        port: if leaf.port == 0 { root.port } else { leaf.port },
        source_labels: overlaid(&root.source_labels, &leaf.source_labels),
        gateways: if leaf.gateways.is_empty() { root.gateways.clone() } else { leaf.gateways.clone() },
        query_params: overlaid(&root.query_params, &leaf.query_params),
        ignore_uri_case: leaf.ignore_uri_case,
        without_headers: overlaid(&root.without_headers, &leaf.without_headers),
        source_namespace: if leaf.source_namespace.is_empty() {
            &root.source_namespace
        } else {
            &leaf.source_namespace
        }
        .clone(),
        stat_prefix: if leaf.stat_prefix.is_empty() { &root.stat_prefix } else { &leaf.stat_prefix }.clone(),
    }
}

/// Whether the delegate's condition contradicts the root's.
fn conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let texts = [
        (&root.uri, &leaf.uri),
        (&root.scheme, &leaf.scheme),
        (&root.method, &leaf.method),
        (&root.authority, &leaf.authority),
    ];
    let maps = [
        (&root.headers, &leaf.headers),
        (&root.without_headers, &leaf.without_headers),
        (&root.query_params, &leaf.query_params),
    ];
    let labels = &root.source_labels;
    texts.into_iter().any(|(r, l)| text_conflict(r.as_ref(), l.as_ref()))
        || maps.into_iter().any(|(r, l)| l.iter().any(|(key, value)| text_conflict(r.get(key), Some(value))))
        || root.ignore_uri_case != leaf.ignore_uri_case
        || root.port > 0 && leaf.port > 0 && root.port != leaf.port
        || !root.source_namespace.is_empty() && root.source_namespace != leaf.source_namespace
        || leaf.source_labels.iter().any(|(key, value)| labels.get(key).is_some_and(|v| v != value))
        || !root.gateways.is_empty() && leaf.gateways.iter().any(|g| !root.gateways.contains(g))
}

fn text_conflict(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> bool {
    use StringMatch::{Exact, Prefix};
    let (Some(root), Some(leaf)) = (root, leaf) else {
        return false;
    };
    match (root, leaf) {
        (Exact(a), Exact(b)) => a != b,
        (Prefix(a), Exact(b) | Prefix(b)) => !b.starts_with(&**a),
        // Regular expressions cannot be compared with other conditions.
        _ => true,
    }
}

fn joined(root: &Arc<str>, leaf: &Arc<str>) -> Arc<str> {
    match (&**root, &**leaf) {
        (_, "") => root.clone(),
        ("", _) => leaf.clone(),
        (root, leaf) => format!("{root}-{leaf}").into(),
    }
}

fn overlaid<V: Clone>(root: &BTreeMap<Arc<str>, V>, leaf: &BTreeMap<Arc<str>, V>) -> BTreeMap<Arc<str>, V> {
    root.iter().chain(leaf).map(|(k, v)| (k.clone(), v.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> HttpMatchRequest {
        HttpMatchRequest { uri: Some(StringMatch::Prefix(text.into())), ..Default::default() }
    }

    fn route(name: &str, matches: Vec<HttpMatchRequest>) -> HttpRoute {
        HttpRoute { name: name.into(), matches, ..Default::default() }
    }

    #[test]
    fn conditions_must_lie_within_the_roots() {
        let root = route("root", vec![prefix("/a")]);
        let routes = vec![
            route("in", vec![prefix("/a/b")]),
            route("out", vec![prefix("/c")]),
            route("", vec![]),
            route("half", vec![prefix("/a/x"), prefix("/y")]),
        ];
        let merged = merge(&root, routes);
        let names: Vec<&str> = merged.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["root-in", "root"]);
        assert_eq!(merged[0].matches, [prefix("/a/b")]);
        assert_eq!(merged[1].matches, [prefix("/a")]);
    }

    #[test]
    fn conditions_add_up() {
        let mut header = HttpMatchRequest { port: 80, ..Default::default() };
        header.headers.insert("x".into(), StringMatch::Exact("1".into()));
        let merged = merge(&route("", vec![prefix("/a")]), vec![route("", vec![header.clone()])]);
        assert_eq!(merged[0].matches, [HttpMatchRequest { uri: prefix("/a").uri, ..header }]);
    }

    #[test]
    fn regular_expressions_and_presence_conflict() {
        let regex = StringMatch::Regex("a.*".into());
        let exact = StringMatch::Exact("a".into());
        assert!(text_conflict(Some(&regex), Some(&exact)));
        assert!(text_conflict(Some(&exact), Some(&regex)));
        assert!(text_conflict(Some(&exact), Some(&StringMatch::Prefix("a".into()))));
        assert!(!text_conflict(None, Some(&regex)));
    }
}
