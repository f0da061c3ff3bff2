//! Outlier detection: ejects endpoints that return errors.

use config::istio::OutlierDetection;
use protos::envoy::config::cluster::v3::OutlierDetection as Options;
use protos::envoy::config::common::matcher::v3::match_predicate::{MatchSet, Rule};
use protos::envoy::config::common::matcher::v3::{HttpHeadersMatch, MatchPredicate};
use protos::envoy::config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier};
use protos::envoy::extensions::upstreams::http::v3::http_protocol_options;
use protos::envoy::r#type::v3::Percent;

use super::draft::Draft;
use crate::parts::{duration, exact};

/// Sets the errors that count and their consequences. Detection by success rate is off, as in Istio.
pub(crate) fn apply(draft: &mut Draft, outlier: Option<&OutlierDetection>) {
    let Some(outlier) = outlier else { return };
    let (errors, gateway_errors) = (outlier.consecutive_5xx_errors, outlier.consecutive_gateway_errors);
    let local =
        outlier.consecutive_local_origin_failures.filter(|n| *n > 0 && outlier.split_external_local_origin_errors);
    let not_zero = |d: &std::time::Duration| !d.is_zero();
    draft.cluster.outlier_detection = Some(Options {
        enforcing_success_rate: Some(0),
        consecutive_5xx: errors,
        enforcing_consecutive_5xx: errors.map(enforcing),
        consecutive_gateway_failure: gateway_errors,
        enforcing_consecutive_gateway_failure: gateway_errors.map(enforcing),
        interval: outlier.interval.filter(not_zero).map(duration),
        base_ejection_time: outlier.base_ejection_time.filter(not_zero).map(duration),
        max_ejection_percent: u32::try_from(outlier.max_ejection_percent).ok().filter(|n| *n > 0).map(|n| n.min(100)),
        split_external_local_origin_errors: outlier.split_external_local_origin_errors,
        consecutive_local_origin_failure: local,
        enforcing_consecutive_local_origin_failure: local.map(enforcing),
        enforcing_local_origin_success_rate: outlier.split_external_local_origin_errors.then_some(0),
        ..Default::default()
    });
    // Envoy's default of 50 would send traffic to ejected endpoints of small services.
    if outlier.min_health_percent >= 0 {
        let value = f64::from(outlier.min_health_percent.min(100));
        draft.balancing().healthy_panic_threshold = Some(Percent { value });
    }
    if let Some(error_matcher) = status_codes(&outlier.outlier_detection_http_error_codes) {
        draft.http().outlier_detection =
            Some(http_protocol_options::OutlierDetection { error_matcher: Some(error_matcher) });
    }
}

/// The enforcement percentage: 100, or 0 (off) if the number of errors is zero.
fn enforcing(errors: u32) -> u32 {
    if errors > 0 { 100 } else { 0 }
}

/// A predicate that matches responses with one of these codes.
fn status_codes(codes: &[u32]) -> Option<MatchPredicate> {
    let status = |code: &u32| {
        let header = HeaderMatcher {
            name: ":status".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact(&code.to_string()))),
            ..Default::default()
        };
        MatchPredicate { rule: Some(Rule::HttpResponseHeadersMatch(HttpHeadersMatch { headers: vec![header] })) }
    };
    match codes {
        [] => None,
        [code] => Some(status(code)),
        codes => {
            Some(MatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules: codes.iter().map(status).collect() })) })
        }
    }
}
