//! External authorization filters, which ask a service about requests and connections.

use std::sync::Arc;
use std::time::Duration;

use config::mesh::{ExtAuthzHttpProvider, ExtAuthzRequestBody};
use model::authorization::{ExternalService, ExternalSettings, Text};
use protos::envoy::config::core::v3::{ApiVersion, GrpcService, HeaderValue, HttpUri, http_uri};
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::filters::http::ext_authz::v3::ext_authz::Services;
use protos::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService,
};
use protos::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as NetworkExtAuthz;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use protos::envoy::r#type::matcher::v3::{ListStringMatcher, MetadataMatcher, StringMatcher};
use protos::envoy::r#type::v3::{HttpStatus, StatusCode};

use super::STAT_PREFIX;
use crate::parts::{duration, envoy_grpc, http_filter, network_filter};

const HTTP: &str = "envoy.filters.http.ext_authz";
const NETWORK: &str = "envoy.filters.network.ext_authz";
/// The timeout of a question if the provider sets none.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The filter that asks about the requests that `enabled` matches.
pub(super) fn of_requests(service: &ExternalService, enabled: MetadataMatcher) -> HttpFilter {
    let common = ExtAuthz {
        transport_api_version: ApiVersion::V3.into(),
        filter_enabled_metadata: Some(enabled),
        ..Default::default()
    };
    let filter = match &service.settings {
        ExternalSettings::Http(http) => ExtAuthz {
            failure_mode_allow: http.fail_open,
            clear_route_cache: http.clear_route_cache,
            status_on_error: status(&http.status_on_error),
            with_request_body: body(http.include_request_body_in_check.as_ref()),
            allowed_headers: headers(match http.include_request_headers_in_check.is_empty() {
                true => &http.include_headers_in_check,
                false => &http.include_request_headers_in_check,
            }),
            services: Some(Services::HttpService(http_service(service, http))),
            ..common
        },
        ExternalSettings::Grpc(grpc) => ExtAuthz {
            failure_mode_allow: grpc.fail_open,
            clear_route_cache: grpc.clear_route_cache,
            status_on_error: status(&grpc.status_on_error),
            with_request_body: body(grpc.include_request_body_in_check.as_ref()),
            services: Some(Services::GrpcService(grpc_service(service, grpc.timeout))),
            ..common
        },
    };
    http_filter(HTTP, &filter)
}

/// The filter that asks about the connections that `enabled` matches; none for a service that knows HTTP requests only.
pub(super) fn of_connections(service: &ExternalService, enabled: MetadataMatcher) -> Option<Filter> {
    let ExternalSettings::Grpc(grpc) = &service.settings else {
        return None;
    };
    let filter = NetworkExtAuthz {
        stat_prefix: STAT_PREFIX.to_owned(),
        grpc_service: Some(grpc_service(service, grpc.timeout)),
        failure_mode_allow: grpc.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        filter_enabled_metadata: Some(enabled),
        ..Default::default()
    };
    Some(network_filter(NETWORK, &filter))
}

fn grpc_service(service: &ExternalService, timeout: Option<Duration>) -> GrpcService {
    GrpcService {
        timeout: Some(duration(timeout.unwrap_or(TIMEOUT))),
        ..envoy_grpc(&*service.cluster, &service.authority)
    }
}

fn http_service(service: &ExternalService, http: &ExtAuthzHttpProvider) -> HttpService {
    let added = http.include_additional_headers_in_check.iter().map(|(name, value)| HeaderValue {
        key: name.to_string(),
        value: value.to_string(),
        ..Default::default()
    });
    let request = AuthorizationRequest { headers_to_add: added.collect(), ..Default::default() };
    let response = AuthorizationResponse {
        allowed_upstream_headers: headers(&http.headers_to_upstream_on_allow),
        allowed_client_headers: headers(&http.headers_to_downstream_on_deny),
        allowed_client_headers_on_success: headers(&http.headers_to_downstream_on_allow),
        ..Default::default()
    };
    HttpService {
        server_uri: Some(HttpUri {
            uri: format!("http://{}", service.authority),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(service.cluster.to_string())),
            timeout: Some(duration(http.timeout.unwrap_or(TIMEOUT))),
        }),
        path_prefix: http.path_prefix.to_string(),
        authorization_request: (request != AuthorizationRequest::default()).then_some(request),
        authorization_response: (response != AuthorizationResponse::default()).then_some(response),
        ..Default::default()
    }
}

/// The status of requests about which the service could not be asked. Validation reports one that Envoy does not know.
fn status(written: &str) -> Option<HttpStatus> {
    let code = written.parse().ok().and_then(|code: i32| StatusCode::try_from(code).ok());
    code.filter(|code| *code != StatusCode::Empty).map(|code| HttpStatus { code: code.into() })
}

fn body(settings: Option<&ExtAuthzRequestBody>) -> Option<BufferSettings> {
    settings.map(|settings| BufferSettings {
        max_request_bytes: settings.max_request_bytes,
        allow_partial_message: settings.allow_partial_message,
        pack_as_bytes: settings.pack_as_bytes,
    })
}

/// Names of headers, with wildcards and without regard to case; none if the list is empty.
fn headers(names: &[Arc<str>]) -> Option<ListStringMatcher> {
    let pattern = |name: &Arc<str>| match Text::with_wildcard(name) {
        Text::Suffix(text) => MatchPattern::Suffix(text.to_string()),
        Text::Prefix(text) => MatchPattern::Prefix(text.to_string()),
        _ => MatchPattern::Exact(name.to_string()),
    };
    let patterns = names.iter().map(|name| StringMatcher { match_pattern: Some(pattern(name)), ignore_case: true });
    (!names.is_empty()).then(|| ListStringMatcher { patterns: patterns.collect() })
}
