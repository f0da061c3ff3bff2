//! External authorization of rules.
//!
//! Routes cannot override all settings of Envoy's filter that the API has. The filter is therefore in the options of routes as a
//! whole, and listeners have a filter that executes what the route says.

use std::sync::Arc;
use std::time::Duration;

use config::gateway_api::filter::{ExternalAuthFilter, ExternalAuthProtocol};
use gateway_api::backends::Target;
use protos::Any;
use protos::envoy::config::common::mutation_rules::v3::HeaderMutationRules;
use protos::envoy::config::core::v3::{ApiVersion, GrpcService, HttpUri, http_uri::HttpUpstreamType};
use protos::envoy::extensions::common::matching::v3::{ExtensionWithMatcher, ExtensionWithMatcherPerRoute};
use protos::envoy::extensions::filters::http::composite::v3::{Composite, ExecuteFilterAction};
use protos::envoy::extensions::filters::http::ext_authz::v3::ext_authz::Services;
use protos::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationResponse, BufferSettings, ExtAuthz, HttpService,
};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use protos::envoy::r#type::matcher::v3::{ListStringMatcher, StringMatcher};
use protos::xds::r#type::matcher::v3::Matcher;
use protos::xds::r#type::matcher::v3::matcher::{OnMatch, on_match};

use super::super::destinations::Destinations;
use super::Rule;
use crate::parts::{any, duration, envoy_grpc, extension, http_filter, regex};

/// The filter that executes what the route says.
pub(crate) const FILTER: &str = "rutter.external_auth";
/// The filter that it executes.
const EXECUTED: &str = "envoy.filters.http.ext_authz";
/// The timeout of a question. The API has none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of an answer that are never copied to the request: they describe the answer itself.
const OF_ANSWER: &str = "content-.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|host";

/// The filter of listeners.
pub(crate) fn filter() -> HttpFilter {
    let composite = extension("envoy.filters.http.composite", &Composite::default());
    let config = ExtensionWithMatcher { extension_config: Some(composite), ..Default::default() };
    http_filter(FILTER, &config)
}

/// The service does not exist.
pub(super) struct NoService;

/// The filter's options for the routes of a rule; none if it asks nobody.
pub(super) fn options(rule: &Rule<'_>, destinations: &Destinations) -> Result<Option<Any>, NoService> {
    let Some(settings) = rule.spec.filters.iter().find_map(|filter| filter.external_auth.as_ref()) else {
        return Ok(None);
    };
    let target = rule.authorizers.first().and_then(|one| one.target.as_ref().ok()).ok_or(NoService)?;
    let action = ExecuteFilterAction {
        typed_config: Some(extension(EXECUTED, &asking(settings, target, destinations))),
        ..Default::default()
    };
    let action = on_match::OnMatch::Action(protos::xds::core::v3::TypedExtensionConfig {
        name: EXECUTED.to_owned(),
        typed_config: Some(any(&action)),
    });
    let always = OnMatch { on_match: Some(action), ..Default::default() };
    let matcher = Matcher { matcher_type: None, on_no_match: Some(Box::new(always)) };
    Ok(Some(any(&ExtensionWithMatcherPerRoute { xds_matcher: Some(matcher) })))
}

/// Asks the service. Requests fail if it cannot be asked, or if their body is too large.
fn asking(settings: &ExternalAuthFilter, target: &Target, destinations: &Destinations) -> ExtAuthz {
    let size = settings.forward_body.as_ref().and_then(|body| body.max_size).unwrap_or(0);
    let common = ExtAuthz {
        transport_api_version: ApiVersion::V3.into(),
        with_request_body: (size > 0).then(|| BufferSettings { max_request_bytes: size, ..Default::default() }),
        ..Default::default()
    };
    let (cluster, host) = (destinations.cluster_of(target), target.service.hostname.as_str());
    match settings.protocol {
        ExternalAuthProtocol::Grpc => {
            let service = GrpcService { timeout: Some(duration(TIMEOUT)), ..envoy_grpc(cluster, host) };
            ExtAuthz {
                // An empty list means all headers.
                allowed_headers: settings.grpc.as_ref().and_then(|grpc| headers(&grpc.allowed_headers)),
                services: Some(Services::GrpcService(service)),
                ..common
            }
        }
        ExternalAuthProtocol::Http => {
            let http = settings.http.clone().unwrap_or_default();
            let all = || ListStringMatcher { patterns: vec![pattern(MatchPattern::SafeRegex(regex(".*")))] };
            let response = AuthorizationResponse {
                allowed_upstream_headers: Some(headers(&http.allowed_response_headers).unwrap_or_else(all)),
                ..Default::default()
            };
            let service = HttpService {
                server_uri: Some(HttpUri {
                    uri: format!("http://{host}"),
                    http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
                    timeout: Some(duration(TIMEOUT)),
                }),
                path_prefix: prefix(http.path.as_deref().unwrap_or_default()),
                authorization_response: Some(response),
                ..Default::default()
            };
            ExtAuthz {
                allowed_headers: headers(&http.allowed_headers),
                decoder_header_mutation_rules: Some(HeaderMutationRules {
                    disallow_system: Some(true),
                    disallow_expression: Some(regex(OF_ANSWER)),
                    ..Default::default()
                }),
                services: Some(Services::HttpService(service)),
                ..common
            }
        }
    }
}

/// The prefix of a path, with a slash before it and none behind it.
fn prefix(path: &str) -> String {
    match path.trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    }
}

/// Names of headers, without regard to case; none if the list is empty.
fn headers(names: &[Arc<str>]) -> Option<ListStringMatcher> {
    let patterns = names.iter().map(|name| pattern(MatchPattern::Exact(name.to_string())));
    (!names.is_empty()).then(|| ListStringMatcher { patterns: patterns.collect() })
}

fn pattern(pattern: MatchPattern) -> StringMatcher {
    // Envoy ignores the case of header names, but a regular expression must not ask for that.
    let ignore_case = !matches!(pattern, MatchPattern::SafeRegex(_));
    StringMatcher { match_pattern: Some(pattern), ignore_case }
}
