//! Matches of HTTPRoutes.

use config::gateway_api::http_route::{HttpRouteMatch, PathMatchType, TextMatchType};
use protos::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use protos::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use protos::envoy::config::route::v3::route_match::PathSpecifier;
use protos::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use protos::envoy::r#type::matcher::v3::StringMatcher;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::parts::{exact, regex};

/// The longest regular expression, in bytes, as in Istio.
const MAX_REGEX_LENGTH: usize = 1024;

/// The condition of a match. `None` if a regular expression is invalid: such a match never holds.
pub(super) fn translate(condition: &HttpRouteMatch) -> Option<RouteMatch> {
    let mut headers: Vec<HeaderMatcher> = Vec::new();
    for header in &condition.headers {
        // The first of equal names counts.
        if headers.iter().any(|known| known.name.eq_ignore_ascii_case(&header.name)) {
            continue;
        }
        headers.push(matcher(&header.name, text(header.kind, &header.value)?));
    }
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    headers.extend(condition.method.map(|method| matcher(":method", exact(method.name()))));
    let mut queries: Vec<QueryParameterMatcher> = Vec::new();
    for query in &condition.query_params {
        if queries.iter().any(|known| *known.name == *query.name) {
            continue;
        }
        let specifier = QueryParameterMatchSpecifier::StringMatch(text(query.kind, &query.value)?);
        let name = query.name.to_string();
        queries.push(QueryParameterMatcher { name, query_parameter_match_specifier: Some(specifier) });
    }
    Some(RouteMatch {
        path_specifier: Some(path(condition)?),
        headers,
        query_parameters: queries,
        ..Default::default()
    })
}

/// The prefix of a match without a trailing slash, so that `/` is empty. `None` if it has another condition on the path.
pub(super) fn prefix(condition: &HttpRouteMatch) -> Option<&str> {
    (condition.path.kind == PathMatchType::PathPrefix).then(|| condition.path.value.trim_end_matches('/'))
}

fn path(condition: &HttpRouteMatch) -> Option<PathSpecifier> {
    let value = &condition.path.value;
    Some(match condition.path.kind {
        PathMatchType::Exact => PathSpecifier::Path(value.to_string()),
        PathMatchType::RegularExpression => PathSpecifier::SafeRegex(regex(usable(value)?)),
        PathMatchType::PathPrefix => match prefix(condition)? {
            "" => PathSpecifier::Prefix("/".to_owned()),
            prefix => PathSpecifier::PathSeparatedPrefix(prefix.to_owned()),
        },
    })
}

fn matcher(name: &str, text: StringMatcher) -> HeaderMatcher {
    let specifier = HeaderMatchSpecifier::StringMatch(text);
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

fn text(kind: TextMatchType, value: &str) -> Option<StringMatcher> {
    Some(match kind {
        TextMatchType::Exact => exact(value),
        TextMatchType::RegularExpression => {
            let pattern = MatchPattern::SafeRegex(regex(usable(value)?));
            StringMatcher { match_pattern: Some(pattern), ignore_case: false }
        }
    })
}

/// The regular expression, if Envoy accepts it.
fn usable(text: &str) -> Option<&str> {
    let fits = (1..=MAX_REGEX_LENGTH).contains(&text.len());
    let fits = fits && config::regex_program_size(text).is_some_and(|size| size <= config::MAX_PROGRAM_SIZE);
    fits.then_some(text)
}
