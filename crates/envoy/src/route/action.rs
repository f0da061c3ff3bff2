//! Route actions of VirtualServices.

use bytes::Bytes;
use config::MeshConfig;
use config::istio::{
    Destination, HttpBody, HttpDirectResponse, HttpRedirect, HttpRewrite, HttpRoute, HttpRouteDestination,
    RedirectPort, RedirectPortSelection,
};
use protos::envoy::config::core::v3::{DataSource, data_source};
use protos::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::{ClusterSpecifier, HostRewriteSpecifier, RequestMirrorPolicy};
use protos::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use protos::envoy::config::route::v3::{DirectResponseAction, RedirectAction, Route, RouteAction, WeightedCluster};
use protos::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use protos::envoy::r#type::v3::FractionalPercent;

use super::destinations::Destinations;
use super::headers::Operations;
use super::{defaults, retry};
use crate::parts::{fraction, hundredths, millionths, regex};

/// The response of a route without a valid destination.
const NOWHERE: u32 = 503;

/// Forwards requests to the rule's destinations. Header operations of a single destination are added to `out`.
pub(crate) fn forward(
    out: &mut Route,
    rule: &HttpRoute,
    authority: Option<String>,
    destinations: &Destinations,
    mesh: &MeshConfig,
) {
    let mut action = RouteAction::default();
    defaults::set_timeout(&mut action, rule.timeout);
    let mut authority = authority;
    if let Some(rewrite) = &rule.rewrite {
        apply_rewrite(&mut action, rewrite);
        action.append_x_forwarded_host = defaults::appends_forwarded_host(mesh);
        if !rewrite.authority.is_empty() {
            authority = Some(rewrite.authority.to_string());
        }
    }
    action.host_rewrite_specifier =
        authority.filter(|host| !host.is_empty()).map(HostRewriteSpecifier::HostRewriteLiteral);
    action.request_mirror_policies = mirrors(rule, destinations);

    let mut hashed = false;
    match &rule.route[..] {
        [only] => hashed = forward_to_one(out, &mut action, only, destinations),
        several => {
            let weighted: Vec<_> = several.iter().filter(|destination| destination.weight > 0).collect();
            if weighted.is_empty() {
                out.action = Some(Action::DirectResponse(direct_response(NOWHERE, None)));
                return;
            }
            let clusters = weighted.iter().map(|destination| weight(destination, destinations)).collect();
            action.cluster_specifier =
                Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }));
            action.hash_policy = weighted.iter().filter_map(|d| destinations.hash(&d.destination)).collect();
        }
    }
    let retries = rule.retries.as_ref().or(mesh.default_http_retry_policy.as_ref());
    action.retry_policy = retry::policy(retries, hashed);
    out.action = Some(Action::Route(action));
}

/// Answers with a redirect; `port` is that of the listener.
pub(crate) fn redirect(redirect: &HttpRedirect, port: u16) -> Action {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let path = match text(&redirect.prefix_rewrite) {
        Some(prefix) => Some(PathRewriteSpecifier::PrefixRewrite(prefix)),
        None => text(&redirect.uri).map(PathRewriteSpecifier::PathRedirect),
    };
    Action::Redirect(RedirectAction {
        host_redirect: redirect.authority.to_string(),
        port_redirect: redirect_port(redirect, port),
        response_code: redirect_code(redirect.redirect_code).into(),
        scheme_rewrite_specifier: text(&redirect.scheme).map(SchemeRewriteSpecifier::SchemeRedirect),
        path_rewrite_specifier: path,
        ..Default::default()
    })
}

/// The redirect with this status code; 301 for one that Envoy does not support.
pub(crate) fn redirect_code(status: u32) -> RedirectResponseCode {
    match status {
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::MovedPermanently,
    }
}

/// Answers with a fixed response.
pub(crate) fn respond(response: &HttpDirectResponse) -> Action {
    let specifier = match response.body.as_ref() {
        None | Some(HttpBody::Empty) => None,
        Some(HttpBody::Text(text)) => Some(data_source::Specifier::InlineString(text.to_string())),
        Some(HttpBody::Bytes(bytes)) => Some(data_source::Specifier::InlineBytes(Bytes::copy_from_slice(bytes))),
    };
    let body = specifier.map(|specifier| DataSource { specifier: Some(specifier), ..Default::default() });
    Action::DirectResponse(direct_response(response.status, body))
}

/// A fixed response. An invalid HTTP status becomes 500.
pub(crate) fn direct_response(status: u32, body: Option<DataSource>) -> DirectResponseAction {
    let status = if (200..600).contains(&status) { status } else { 500 };
    DirectResponseAction { status, body, ..Default::default() }
}

/// The port to redirect to; 0 for the default port of the scheme.
fn redirect_port(redirect: &HttpRedirect, listener: u16) -> u32 {
    let port = match redirect.port {
        Some(RedirectPort::Port(port)) => port,
        Some(RedirectPort::Derive(RedirectPortSelection::FromRequestPort)) => u32::from(listener),
        Some(RedirectPort::Derive(RedirectPortSelection::FromProtocolDefault)) | None => 0,
    };
    // Without a scheme, Istio takes requests for HTTP, also if the listener terminates TLS.
    let scheme = if redirect.scheme.is_empty() { "http" } else { &*redirect.scheme };
    shown_port(port, scheme)
}

/// The port as a redirect to this scheme has it: 0 for the default port of the scheme.
pub(crate) fn shown_port(port: u32, scheme: &str) -> u32 {
    match (port, scheme) {
        (80, "http") | (443, "https") => 0,
        (port, _) => port.min(u32::from(u16::MAX)),
    }
}

/// Forwards to one destination. Returns whether it selects endpoints by a hash.
fn forward_to_one(
    out: &mut Route,
    action: &mut RouteAction,
    destination: &HttpRouteDestination,
    destinations: &Destinations,
) -> bool {
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(destinations.cluster(&destination.destination)));
    let authority = Operations::of(destination.headers.as_ref()).add_to(out);
    // The authority of the rule overrides that of the destination.
    if let (None, Some(authority)) = (&action.host_rewrite_specifier, authority) {
        action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(authority));
    }
    let hash = destinations.hash(&destination.destination);
    let hashed = hash.is_some();
    action.hash_policy.extend(hash);
    hashed
}

fn weight(destination: &HttpRouteDestination, destinations: &Destinations) -> ClusterWeight {
    let cluster = destinations.cluster(&destination.destination);
    Operations::of(destination.headers.as_ref()).weighted(cluster, u32::try_from(destination.weight).ok())
}

fn apply_rewrite(action: &mut RouteAction, rewrite: &HttpRewrite) {
    match &rewrite.uri_regex_rewrite {
        Some(rule) if !rule.regex.is_empty() => {
            action.regex_rewrite = Some(RegexMatchAndSubstitute {
                pattern: Some(regex(&rule.regex)),
                substitution: rule.rewrite.to_string(),
            });
        }
        _ => action.prefix_rewrite = rewrite.uri.to_string(),
    }
}

fn mirrors(rule: &HttpRoute, destinations: &Destinations) -> Vec<RequestMirrorPolicy> {
    let old = rule.mirror.as_ref().map(|destination| {
        let share = match (&rule.mirror_percentage, rule.mirror_percent) {
            (Some(percentage), _) => millionths(percentage.value),
            (None, percent) => hundredths(percent.unwrap_or(100)),
        };
        (destination, share)
    });
    let new = rule.mirrors.iter().map(|mirror| {
        let share = mirror.percentage.as_ref().map_or(hundredths(100), |percentage| millionths(percentage.value));
        (&mirror.destination, share)
    });
    let policy = |(destination, share): (&Destination, FractionalPercent)| RequestMirrorPolicy {
        cluster: destinations.cluster(destination),
        runtime_fraction: Some(fraction(share)),
        trace_sampled: Some(false),
        // Mirrored requests keep the host that the application expects.
        disable_shadow_host_suffix_append: true,
        ..Default::default()
    };
    let named =
        |(destination, share): &(&Destination, FractionalPercent)| !destination.host.is_empty() && share.numerator > 0;
    old.into_iter().chain(new).filter(named).map(policy).collect()
}
