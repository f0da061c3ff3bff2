//! Filters of HTTPRoutes: header modifiers, mirrors, CORS.

use std::borrow::Cow;
use std::sync::Arc;

use config::gateway_api::filter::{
    CorsFilter, HeaderFilter, HttpHeader, HttpRouteFilter, RequestMirrorFilter, RequestRedirectFilter, UrlRewriteFilter,
};
use config::gateway_api::http_route::HttpRouteRule;
use gateway_api::backends::Backend;
use protos::envoy::config::core::v3::HeaderValueOption;
use protos::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use protos::envoy::config::route::v3::route_action::RequestMirrorPolicy;
use protos::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use protos::envoy::r#type::matcher::v3::StringMatcher;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use protos::envoy::r#type::v3::FractionalPercent;
use protos::envoy::r#type::v3::fractional_percent::DenominatorType;

use super::super::destinations::Destinations;
use super::super::headers::{self, Operations};
use crate::parts::{exact, fraction, hundredths, quoted, regex};

/// The CORS filter.
pub(super) const CORS: &str = "envoy.filters.http.cors";
/// Every origin, as a regular expression.
const ANY_ORIGIN: &str = r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+";
const MILLION: u64 = 1_000_000;

/// The redirect of a rule.
pub(super) fn redirect(rule: &HttpRouteRule) -> Option<&RequestRedirectFilter> {
    rule.filters.iter().find_map(|filter| filter.request_redirect.as_ref())
}

/// The rewrite of a rule.
pub(super) fn rewrite(rule: &HttpRouteRule) -> Option<&UrlRewriteFilter> {
    rule.filters.iter().find_map(|filter| filter.url_rewrite.as_ref())
}

/// The header operations of filters.
pub(super) fn operations(filters: &[HttpRouteFilter]) -> Operations {
    let request = filters.iter().find_map(|filter| filter.request_header_modifier.as_ref());
    let response = filters.iter().find_map(|filter| filter.response_header_modifier.as_ref());
    let authority = request.and_then(|changes| {
        let header = changes.set.iter().chain(&changes.add).find(|header| header.name.eq_ignore_ascii_case("host"))?;
        Some(header.value.to_string())
    });
    Operations {
        request_add: request.map(additions).unwrap_or_default(),
        request_remove: request.map(removals).unwrap_or_default(),
        response_add: response.map(additions).unwrap_or_default(),
        response_remove: response.map(removals).unwrap_or_default(),
        authority,
    }
}

/// Operations in order: those of the rule, then those of the backend. Envoy removes headers before it adds others, so a
/// header that the backend's filters remove must not be added before.
pub(super) fn joined(rule: &Operations, backend: Operations) -> Operations {
    let add = |first: &[HeaderValueOption], removed: &[String], then: Vec<HeaderValueOption>| {
        let stays = |option: &&HeaderValueOption| {
            let key = option.header.as_ref().map_or("", |header| &*header.key);
            !removed.iter().any(|name| name.eq_ignore_ascii_case(key))
        };
        first.iter().filter(stays).cloned().chain(then).collect()
    };
    Operations {
        request_add: add(&rule.request_add, &backend.request_remove, backend.request_add),
        response_add: add(&rule.response_add, &backend.response_remove, backend.response_add),
        request_remove: [&rule.request_remove[..], &backend.request_remove].concat(),
        response_remove: [&rule.response_remove[..], &backend.response_remove].concat(),
        authority: backend.authority.or_else(|| rule.authority.clone()),
    }
}

/// Headers to set, then headers to append.
fn additions(changes: &HeaderFilter) -> Vec<HeaderValueOption> {
    let option = |header: &HttpHeader, action| headers::option(&header.name, &literal(&header.value), action);
    let set = distinct(&changes.set).map(|header| option(header, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = distinct(&changes.add).map(|header| option(header, HeaderAppendAction::AppendIfExistsOrAdd));
    set.chain(add).collect()
}

/// The headers that Envoy can change. Of equal names, the first counts.
fn distinct(headers: &[HttpHeader]) -> impl Iterator<Item = &HttpHeader> {
    let changeable = headers.iter().enumerate().filter(|(_, header)| !headers::is_internal(&header.name));
    let first = move |index: usize, name: &str| !headers[..index].iter().any(|h| h.name.eq_ignore_ascii_case(name));
    changeable.filter(move |(index, header)| first(*index, &header.name)).map(|(_, header)| header)
}

fn removals(changes: &HeaderFilter) -> Vec<String> {
    changes.remove.iter().filter(|name| !headers::is_internal(name)).map(|name| name.to_string()).collect()
}

/// A value in Envoy's format. Command operators such as `%PROTOCOL%` have their meaning, as in Istio; any other `%` is
/// escaped, because Envoy would reject it.
fn literal(value: &str) -> Cow<'_, str> {
    let parts: Vec<&str> = value.split('%').collect();
    let is_operator = |part: &&str| part.is_empty() || part.starts_with(|c: char| c.is_ascii_uppercase());
    match parts.len() % 2 == 1 && parts.iter().skip(1).step_by(2).all(is_operator) {
        true => Cow::Borrowed(value),
        false => Cow::Owned(value.replace('%', "%%")),
    }
}

/// The mirrors of a rule, with their backends in the same order. Invalid backends are left out.
pub(super) fn mirrors(
    rule: &HttpRouteRule,
    backends: &[Backend],
    destinations: &Destinations,
) -> Vec<RequestMirrorPolicy> {
    let mirrors = rule.filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
    let policy = |(mirror, backend): (&RequestMirrorFilter, &Backend)| {
        let target = backend.target.as_ref().ok()?;
        let share = share(mirror);
        (share.numerator > 0).then(|| RequestMirrorPolicy {
            cluster: destinations.cluster_of(target),
            runtime_fraction: Some(fraction(share)),
            trace_sampled: Some(false),
            // Mirrored requests keep the host that the application expects.
            disable_shadow_host_suffix_append: true,
            ..Default::default()
        })
    };
    mirrors.zip(backends).filter_map(policy).collect()
}

/// The share of requests that is mirrored.
fn share(mirror: &RequestMirrorFilter) -> FractionalPercent {
    let Some(part) = &mirror.fraction else { return hundredths(mirror.percent.unwrap_or(100)) };
    let numerator = u64::from(part.numerator) * MILLION / u64::from(part.denominator.max(1));
    FractionalPercent { numerator: numerator.min(MILLION) as u32, denominator: DenominatorType::Million.into() }
}

/// The options of the CORS filter.
pub(super) fn cors(rule: &HttpRouteRule) -> Option<CorsPolicy> {
    let cors = rule.filters.iter().find_map(|filter| filter.cors.as_ref())?;
    Some(options(cors))
}

fn options(cors: &CorsFilter) -> CorsPolicy {
    let join = |names: &[Arc<str>]| names.join(",");
    CorsPolicy {
        allow_origin_string_match: cors.allow_origins.iter().map(|origin| matcher(origin)).collect(),
        allow_methods: join(&cors.allow_methods),
        allow_headers: join(&cors.allow_headers),
        expose_headers: join(&cors.expose_headers),
        max_age: cors.max_age.to_string(),
        allow_credentials: cors.allow_credentials,
        filter_enabled: Some(fraction(hundredths(100))),
        forward_not_matching_preflights: Some(false),
        ..Default::default()
    }
}

/// An origin, whose host may start with `*`.
fn matcher(origin: &str) -> StringMatcher {
    let expression = match origin.split_once('*') {
        None => return exact(origin),
        Some(("", "")) => ANY_ORIGIN.to_owned(),
        Some((before, behind)) => format!("{}.*{}", quoted(before), quoted(behind)),
    };
    StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex(&expression))), ignore_case: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_in_header_values() {
        for (value, want) in [
            ("plain", "plain"),
            ("%PROTOCOL%", "%PROTOCOL%"),
            ("a %REQ(x-a)% b", "a %REQ(x-a)% b"),
            ("100%", "100%%"),
            ("a%20b", "a%%20b"),
            ("%20%20", "%%20%%20"),
            ("100%%", "100%%"),
        ] {
            assert_eq!(literal(value), want, "{value}");
        }
    }

    #[test]
    fn origins_as_expressions() {
        let of = |origin: &str| match matcher(origin).match_pattern {
            Some(MatchPattern::SafeRegex(matcher)) => matcher.regex,
            Some(MatchPattern::Exact(text)) => format!("={text}"),
            _ => String::new(),
        };
        assert_eq!(of("*"), ANY_ORIGIN);
        assert_eq!(of("https://a.example.com"), "=https://a.example.com");
        assert_eq!(of("https://*.example.com:8443"), r"https://.*\.example\.com:8443");
        assert_eq!(of("http://*"), "http://.*");
    }
}
