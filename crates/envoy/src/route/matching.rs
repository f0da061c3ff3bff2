//! Match conditions on requests.

use std::sync::Arc;

use config::istio::{HttpMatchRequest, StringMatch};
use protos::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use protos::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use protos::envoy::config::route::v3::route_match::PathSpecifier;
use protos::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, Route, RouteMatch};
use protos::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment::Segment};
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use protos::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, StringMatcher, ValueMatcher, list_matcher, value_matcher,
};

use crate::jwt::{FILTER, PAYLOAD};
use crate::parts::regex;

/// The prefix of header names that represent JWT claims.
const CLAIM_PREFIX: &str = "@request.auth.claims";

/// The condition that every request matches.
pub(crate) fn everything() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_owned())), ..Default::default() }
}

/// Whether every request matches the condition of a route.
pub(crate) fn is_catch_all(route: &Route) -> bool {
    let Some(condition) = &route.r#match else { return false };
    let any_path = match &condition.path_specifier {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => prefix == "/",
        Some(PathSpecifier::SafeRegex(matcher)) => matcher.regex == ".*",
        _ => false,
    };
    any_path
        && condition.headers.is_empty()
        && condition.query_parameters.is_empty()
        && condition.dynamic_metadata.is_empty()
}

/// Converts a VirtualService's condition. Parts that do not depend on the request (port, gateways, the client's labels
/// and namespace) were evaluated before.
pub(crate) fn translate(condition: &HttpMatchRequest) -> RouteMatch {
    let mut out = RouteMatch {
        path_specifier: Some(path(condition.uri.as_ref())),
        case_sensitive: Some(!condition.ignore_uri_case),
        ..Default::default()
    };
    for (name, text) in &condition.headers {
        match claims(name) {
            Some(claims) => out.dynamic_metadata.push(claim(&claims, text, false)),
            None => out.headers.push(header(name, text)),
        }
    }
    for (name, text) in &condition.without_headers {
        match claims(name) {
            Some(claims) => out.dynamic_metadata.push(claim(&claims, text, true)),
            None => out.headers.push(without(name, text)),
        }
    }
    out.headers.sort_by(|a, b| a.name.cmp(&b.name));
    let pseudo = [(":method", &condition.method), (":authority", &condition.authority), (":scheme", &condition.scheme)];
    out.headers.extend(pseudo.into_iter().filter_map(|(name, text)| Some(header(name, text.as_ref()?))));
    out.query_parameters = condition.query_params.iter().map(|(name, text)| query(name, text)).collect();
    out
}

/// A text condition; `None` if every text matches.
pub(crate) fn string_matcher(text: &StringMatch) -> Option<StringMatcher> {
    let pattern = match text {
        StringMatch::Present => return None,
        StringMatch::Exact(text) => MatchPattern::Exact(text.to_string()),
        // Envoy rejects empty prefixes and expressions. `*` is not a valid expression, but users write it.
        StringMatch::Prefix(prefix) if prefix.is_empty() => return None,
        StringMatch::Regex(regex) if &**regex == "*" => return None,
        StringMatch::Regex(regex) if regex.is_empty() => MatchPattern::Exact(String::new()),
        StringMatch::Prefix(prefix) => MatchPattern::Prefix(prefix.to_string()),
        StringMatch::Regex(text) => MatchPattern::SafeRegex(regex(text)),
    };
    Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false })
}

fn path(uri: Option<&StringMatch>) -> PathSpecifier {
    match uri {
        Some(StringMatch::Exact(path)) => PathSpecifier::Path(path.to_string()),
        Some(StringMatch::Prefix(prefix)) => PathSpecifier::Prefix(prefix.to_string()),
        Some(StringMatch::Regex(text)) if !text.is_empty() => PathSpecifier::SafeRegex(regex(text)),
        Some(StringMatch::Regex(_)) => PathSpecifier::Path(String::new()),
        Some(StringMatch::Present) | None => PathSpecifier::Prefix("/".to_owned()),
    }
}

fn header(name: &str, text: &StringMatch) -> HeaderMatcher {
    let specifier = match string_matcher(text) {
        Some(matcher) => HeaderMatchSpecifier::StringMatch(matcher),
        None => HeaderMatchSpecifier::PresentMatch(true),
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// A header that must not match. A missing header counts as empty, so that the condition holds without it.
fn without(name: &str, text: &StringMatch) -> HeaderMatcher {
    let matcher = header(name, text);
    let present = matches!(matcher.header_match_specifier, Some(HeaderMatchSpecifier::PresentMatch(_)));
    HeaderMatcher { invert_match: true, treat_missing_header_as_empty: !present, ..matcher }
}

fn query(name: &str, text: &StringMatch) -> QueryParameterMatcher {
    let specifier = match string_matcher(text) {
        Some(matcher) => QueryParameterMatchSpecifier::StringMatch(matcher),
        None => QueryParameterMatchSpecifier::PresentMatch(true),
    };
    QueryParameterMatcher { name: name.to_owned(), query_parameter_match_specifier: Some(specifier) }
}

/// The path of the claim that a header represents: `@request.auth.claims.a.b` or `@request.auth.claims[a][b]`.
fn claims(header: &str) -> Option<Vec<&str>> {
    let head = header.get(..CLAIM_PREFIX.len()).filter(|head| head.eq_ignore_ascii_case(CLAIM_PREFIX))?;
    let rest = &header[head.len()..];
    if let Some(path) = rest.strip_prefix('.').filter(|path| !path.is_empty()) {
        return Some(path.split('.').collect());
    }
    let path = rest.strip_prefix('[')?.strip_suffix(']').filter(|path| !path.is_empty())?;
    Some(path.split("][").collect())
}

/// A condition on a claim, which may be a string or a list of strings.
fn claim(path: &[&str], text: &StringMatch, invert: bool) -> MetadataMatcher {
    let is = |pattern| ValueMatcher { match_pattern: Some(pattern) };
    let value = match string_matcher(text) {
        None => is(value_matcher::MatchPattern::PresentMatch(true)),
        Some(matcher) => {
            let one = is(value_matcher::MatchPattern::StringMatch(matcher));
            let list = list_matcher::MatchPattern::OneOf(Box::new(one.clone()));
            let list = Box::new(ListMatcher { match_pattern: Some(list) });
            let either = vec![is(value_matcher::MatchPattern::ListMatch(list)), one];
            is(value_matcher::MatchPattern::OrMatch(OrMatcher { value_matchers: either }))
        }
    };
    let segment = |key: &&str| PathSegment { segment: Some(Segment::Key((*key).to_owned())) };
    MetadataMatcher {
        filter: FILTER.to_owned(),
        path: std::iter::once(&PAYLOAD).chain(path).map(segment).collect(),
        value: Some(value),
        invert,
    }
}

/// The path of a condition, as shown in traces.
pub(crate) fn shown_path(condition: &RouteMatch) -> Arc<str> {
    match &condition.path_specifier {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => format!("{prefix}*").into(),
        Some(PathSpecifier::Path(path)) => path.as_str().into(),
        Some(PathSpecifier::SafeRegex(matcher)) => matcher.regex.as_str().into(),
        _ => "/*".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_headers_are_parsed() {
        let cases: [(&str, Option<&[&str]>); 9] = [
            ("@request.auth.claims.a", Some(&["a"])),
            ("@Request.Auth.Claims.a.b", Some(&["a", "b"])),
            ("@request.auth.claims[a.b][c]", Some(&["a.b", "c"])),
            ("@request.auth.claims", None),
            ("@request.auth.claims.", None),
            ("@request.auth.claims[]", None),
            ("@request.auth.claims[a", None),
            ("x-claims", None),
            ("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", None),
        ];
        for (header, want) in cases {
            assert_eq!(claims(header).as_deref(), want, "{header}");
        }
    }

    #[test]
    fn text_conditions_that_envoy_would_reject() {
        assert_eq!(string_matcher(&StringMatch::Prefix("".into())), None);
        assert_eq!(string_matcher(&StringMatch::Regex("*".into())), None);
        let empty = string_matcher(&StringMatch::Regex("".into())).unwrap();
        assert_eq!(empty.match_pattern, Some(MatchPattern::Exact(String::new())));
    }
}
