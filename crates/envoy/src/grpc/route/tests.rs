use std::time::Duration;

use protos::Any;
use protos::envoy::config::route::v3::QueryParameterMatcher;
use protos::envoy::r#type::matcher::v3::StringMatcher;

use super::*;
use crate::parts::{duration, regex};
use crate::route::everything;

fn header(name: &str, pattern: MatchPattern, invert_match: bool) -> HeaderMatcher {
    let matcher = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher)),
        invert_match,
        ..Default::default()
    }
}

fn with_headers(headers: Vec<HeaderMatcher>) -> Route {
    Route { r#match: Some(RouteMatch { headers, ..everything() }), ..Default::default() }
}

/// The number of header conditions that remain of a condition on the method; `None` if the route is left out.
fn left(pattern: MatchPattern, invert: bool) -> Option<usize> {
    let other = header("x", MatchPattern::Exact("y".to_owned()), false);
    let route = understood(with_headers(vec![header(":method", pattern, invert), other]))?;
    Some(route.r#match?.headers.len())
}

#[test]
fn conditions_on_the_method_are_evaluated() {
    let exact = |text: &str| MatchPattern::Exact(text.to_owned());
    assert_eq!(left(exact("POST"), false), Some(1));
    assert_eq!(left(exact("GET"), false), None);
    assert_eq!(left(exact("GET"), true), Some(1));
    assert_eq!(left(MatchPattern::Prefix("P".to_owned()), false), Some(1));
    assert_eq!(left(MatchPattern::SafeRegex(regex("GET|POST")), false), Some(1));
    assert_eq!(left(MatchPattern::SafeRegex(regex("GET|PUT")), false), None);
}

#[test]
fn routes_with_unsupported_conditions_are_left_out() {
    let mut route = with_headers(Vec::new());
    route.r#match.as_mut().unwrap().query_parameters = vec![QueryParameterMatcher::default()];
    assert_eq!(understood(route), None);
}

#[test]
fn options_of_other_filters_are_left_out() {
    let mut route = with_headers(Vec::new());
    for filter in [FAULT, "envoy.filters.http.cors"] {
        route.typed_per_filter_config.insert(filter.to_owned(), Any::default());
    }
    let route = understood(route).unwrap();
    assert_eq!(route.typed_per_filter_config.keys().collect::<Vec<_>>(), [FAULT]);
}

#[test]
fn a_timeout_becomes_the_maximum_stream_duration() {
    let timed = |time: Duration| {
        let mut action = RouteAction { timeout: Some(duration(time)), ..Default::default() };
        limit_time(&mut action);
        assert_eq!(action.timeout, None);
        action.max_stream_duration.and_then(|d| d.max_stream_duration)
    };
    assert_eq!(timed(Duration::from_millis(1500)), Some(duration(Duration::from_millis(1500))));
    assert_eq!(timed(Duration::ZERO), None);
}
