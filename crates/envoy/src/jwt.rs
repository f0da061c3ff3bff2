//! The filter that verifies JSON Web Tokens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::is_header_name;
use config::istio::JwtRule;
use model::jwt::{FETCH_TIMEOUT, JwtPlan, JwtProvider, ProviderKeys};
use protos::envoy::config::core::v3::{DataSource, HttpUri, data_source, http_uri};
use protos::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::{JwksSourceSpecifier, NormalizePayload};
use protos::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use protos::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use protos::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider as Provider, JwtRequirement, JwtRequirementAndList,
    JwtRequirementOrList, RemoteJwks, RequirementRule,
};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use crate::parts::{duration, http_filter, seconds};
use crate::route;

/// The filter, and the namespace of the metadata in which it stores claims.
pub(crate) const FILTER: &str = "envoy.filters.http.jwt_authn";
/// The key of the metadata.
pub(crate) const PAYLOAD: &str = "payload";
/// How long a proxy uses keys that it fetched itself, in seconds.
const PROXY_CACHE: i64 = 300;
/// Envoy's limit of a timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs((1 << 32) - 1);
/// Claims that are always read as lists separated by spaces.
const LISTS: [&str; 2] = ["permission", "scope"];

/// The filter; none without rules. `routes_by_claims`: routes are selected again after verification, because they may match claims.
///
/// A request without a token is accepted, and one with an invalid token is rejected. If rules read tokens from the same place,
/// a token that is valid for one of them is accepted.
pub(crate) fn filter(plan: &JwtPlan, routes_by_claims: bool) -> Option<HttpFilter> {
    let named = || plan.providers.iter().enumerate().map(|(index, provider)| (format!("origins-{index}"), provider));
    let valid = |name: String| JwtRequirement { requires_type: Some(RequiresType::ProviderName(name)) };
    let missing = || JwtRequirement { requires_type: Some(RequiresType::AllowMissing(())) };
    let any = |requirements| JwtRequirement {
        requires_type: Some(RequiresType::RequiresAny(JwtRequirementOrList { requirements })),
    };
    let mut each: Vec<JwtRequirement> = named().map(|(name, _)| any(vec![valid(name), missing()])).collect();
    let requirement = match each.len() {
        0 => return None,
        1 => each.remove(0),
        _ => {
            let all = RequiresType::RequiresAll(JwtRequirementAndList { requirements: each });
            let all = JwtRequirement { requires_type: Some(all) };
            any(named().map(|(name, _)| valid(name)).chain([all]).collect())
        }
    };
    let config = JwtAuthentication {
        providers: named().map(|(name, provider)| (name, encode(provider, routes_by_claims))).collect(),
        rules: vec![RequirementRule {
            r#match: Some(route::everything()),
            requirement_type: Some(RequirementType::Requires(requirement)),
        }],
        // Browsers send no token with the requests by which they ask for permission.
        bypass_cors_preflight: true,
        ..Default::default()
    };
    Some(http_filter(FILTER, &config))
}

fn encode(provider: &JwtProvider, routes_by_claims: bool) -> Provider {
    let rule = &provider.rule;
    let texts = |list: &[Arc<str>]| list.iter().filter(|text| !text.is_empty()).map(ToString::to_string).collect();
    let lists: BTreeSet<&str> = rule
        .space_delimited_claims
        .iter()
        .map(|claim| &**claim)
        .filter(|claim| !claim.is_empty())
        .chain(LISTS)
        .collect();
    // Envoy would reject the whole listener for an invalid header name. Validation reports it.
    let header = |name: &Arc<str>| if is_header_name(name) { name.to_string() } else { String::new() };
    let from_headers = rule.from_headers.iter().filter(|location| is_header_name(&location.name));
    let claims = rule.output_claim_to_headers.iter();
    let claims = claims.filter(|claim| is_header_name(&claim.header) && !claim.claim.is_empty());
    Provider {
        issuer: rule.issuer.to_string(),
        audiences: texts(&rule.audiences),
        forward: rule.forward_original_token,
        forward_payload_header: header(&rule.output_payload_to_header),
        payload_in_metadata: PAYLOAD.to_owned(),
        normalize_payload_in_metadata: Some(NormalizePayload {
            space_delimited_claims: lists.into_iter().map(str::to_owned).collect(),
        }),
        claim_to_headers: claims
            .map(|claim| JwtClaimToHeader {
                header_name: claim.header.to_string(),
                claim_name: claim.claim.to_string(),
                ..Default::default()
            })
            .collect(),
        from_headers: from_headers
            .map(|location| JwtHeader { name: location.name.to_string(), value_prefix: printable(&location.prefix) })
            .collect(),
        from_params: texts(&rule.from_params),
        from_cookies: texts(&rule.from_cookies),
        clear_route_cache: routes_by_claims,
        jwks_source_specifier: Some(keys(rule, &provider.keys)),
        ..Default::default()
    }
}

fn keys(rule: &JwtRule, keys: &ProviderKeys) -> JwksSourceSpecifier {
    match keys {
        ProviderKeys::Local(keys) => JwksSourceSpecifier::LocalJwks(DataSource {
            specifier: Some(data_source::Specifier::InlineString(keys.json().to_owned())),
            ..Default::default()
        }),
        ProviderKeys::Remote(cluster) => JwksSourceSpecifier::RemoteJwks(RemoteJwks {
            http_uri: Some(HttpUri {
                uri: rule.jwks_uri.to_string(),
                timeout: Some(duration(rule.timeout.unwrap_or(FETCH_TIMEOUT).min(MAX_TIMEOUT))),
                http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(cluster.to_string())),
            }),
            cache_duration: Some(seconds(PROXY_CACHE)),
            ..Default::default()
        }),
    }
}

/// The text without characters that a header cannot have.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\0' | '\r' | '\n')).collect()
}
