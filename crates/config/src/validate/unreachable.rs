//! Detection of VirtualService rules that can never match because earlier rules match all of their traffic.

use crate::decode::Report;
use crate::istio::{HttpMatchRequest, StringMatch, VirtualService};
use crate::problem::FieldPath;

pub(super) fn check(r: &mut Report, path: &FieldPath, spec: &VirtualService) {
    let http: Vec<&[HttpMatchRequest]> = spec.http.iter().map(|route| &*route.matches).collect();
    // Names do not affect when a match applies.
    let same = |a: &HttpMatchRequest, b: &HttpMatchRequest| {
        a == b || HttpMatchRequest { name: b.name.clone(), stat_prefix: b.stat_prefix.clone(), ..a.clone() } == *b
    };
    rules(r, &path.field("http"), &http, same);
    prefixes(r, &path.field("http"), &http);
    let tls: Vec<_> = spec.tls.iter().map(|route| &*route.matches).collect();
    rules(r, &path.field("tls"), &tls, |a, b| a == b);
    let tcp: Vec<_> = spec.tcp.iter().map(|route| &*route.matches).collect();
    rules(r, &path.field("tcp"), &tcp, |a, b| a == b);
}

/// Maximum number of matches that are compared with each other. Comparing more takes too long for a warning.
const MAX_COMPARED: usize = 500;

/// Reports rules after one that always matches, and repeated matches.
fn rules<M>(r: &mut Report, path: &FieldPath, rules: &[&[M]], same: impl Fn(&M, &M) -> bool) {
    let always = rules.iter().position(|matches| matches.is_empty());
    let mut seen: Vec<(usize, &M)> = Vec::new();
    for (index, matches) in rules.iter().enumerate() {
        let at = path.index(index);
        if let Some(always) = always.filter(|always| *always < index) {
            let message = format!("the rule never matches: rule {always} matches all traffic");
            r.warning(&at, "unreachable", message);
            continue;
        }
        let mut repeated = 0;
        for (number, condition) in matches.iter().enumerate() {
            match seen.iter().find(|(_, earlier)| same(earlier, condition)) {
                Some((earlier, _)) => {
                    repeated += 1;
                    let message = format!("the match repeats a match of rule {earlier}");
                    r.warning(&at.field("match").index(number), "unreachable", message);
                }
                None if seen.len() < MAX_COMPARED => seen.push((index, condition)),
                None => {}
            }
        }
        if repeated > 0 && repeated == matches.len() {
            r.warning(&at, "unreachable", "the rule never matches: earlier rules contain all of its matches");
        }
    }
}

/// Reports path prefix matches that an earlier match with a shorter prefix covers.
fn prefixes(r: &mut Report, path: &FieldPath, rules: &[&[HttpMatchRequest]]) {
    let all = rules.iter().enumerate().flat_map(|(rule, matches)| {
        matches.iter().enumerate().filter_map(move |(number, m)| match &m.uri {
            Some(StringMatch::Prefix(prefix)) if !prefix.is_empty() => Some((rule, number, &**prefix, m)),
            _ => None,
        })
    });
    let all: Vec<_> = all.take(MAX_COMPARED).collect();
    for (position, (rule, number, prefix, later)) in all.iter().enumerate() {
        let covers = |(_, _, shorter, earlier): &&(usize, usize, &str, &HttpMatchRequest)| {
            prefix.len() > shorter.len() && prefix.starts_with(shorter) && is_weaker(earlier, later)
        };
        if let Some((earlier, _, shorter, _)) = all[..position].iter().find(covers) {
            let at = path.index(*rule).field("match").index(*number);
            let message = format!("the match never applies: the prefix {shorter:?} of rule {earlier} covers it");
            r.warning(&at, "unreachable", message);
        }
    }
}

/// Whether the second match has all conditions of the first, apart from the path.
fn is_weaker(first: &HttpMatchRequest, second: &HttpMatchRequest) -> bool {
    let texts =
        [(&first.scheme, &second.scheme), (&first.method, &second.method), (&first.authority, &second.authority)];
    let maps = [
        (&first.headers, &second.headers),
        (&first.query_params, &second.query_params),
        (&first.without_headers, &second.without_headers),
    ];
    let labels = &second.source_labels;
    texts.iter().all(|(a, b)| a.is_none() || a == b)
        && maps.iter().all(|(a, b)| a.iter().all(|(name, text)| b.get(name) == Some(text)))
        && first.source_labels.iter().all(|(name, value)| labels.get(name) == Some(value))
        && (first.port == 0 || first.port == second.port)
        && (first.gateways.is_empty() || first.gateways == second.gateways)
        && (first.source_namespace.is_empty() || first.source_namespace == second.source_namespace)
        && (first.ignore_uri_case || !second.ignore_uri_case)
}
