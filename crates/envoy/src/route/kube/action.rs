//! Actions of rules: forward, redirect, fail.

use std::sync::Arc;

use config::MeshConfig;
use config::gateway_api::filter::{HttpPathModifier, PathModifierType, RequestRedirectFilter};
use config::gateway_api::http_route::{HttpBackendRef, HttpRouteRule};
use config::istio::HttpRetry;
use gateway_api::backends::{Target, UNKNOWN_SERVICE};
use protos::Any;
use protos::envoy::config::route::v3::redirect_action::{PathRewriteSpecifier, SchemeRewriteSpecifier};
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier,
};
use protos::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use protos::envoy::config::route::v3::{RedirectAction, Route, RouteAction, WeightedCluster};
use protos::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;

use super::super::action::{direct_response, redirect_code, shown_port};
use super::super::destinations::Destinations;
use super::super::headers::Operations;
use super::super::{defaults, retry, sessions};
use super::{Rule, filters, session};
use crate::parts::{quoted, regex};
use crate::pickers;

/// The conditions of a retry, beside the status codes of the route.
const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled";
/// A further condition, if attempts have a timeout: that is a reset for Envoy.
const RETRY_ON_TIMEOUT: &str = ",reset";
const DEFAULT_RETRIES: u32 = 2;

/// The answer of a rule without a valid backend, or with a filter that is not supported.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// With the status code 500.
    Request,
    /// With the gRPC status UNAVAILABLE, to which Envoy translates the status code 503.
    Call,
}

impl Failure {
    /// Rejects requests.
    pub(super) fn action(self) -> Action {
        let status = match self {
            Failure::Request => 500,
            Failure::Call => 503,
        };
        Action::DirectResponse(direct_response(status, None))
    }

    /// Rejects requests to a cluster that does not exist.
    fn without_cluster(self) -> ClusterNotFoundResponseCode {
        match self {
            Failure::Request => ClusterNotFoundResponseCode::InternalServerError,
            Failure::Call => ClusterNotFoundResponseCode::ServiceUnavailable,
        }
    }
}

/// A backend that gets requests.
struct Weighted<'a> {
    reference: &'a HttpBackendRef,
    /// The service; none if the reference is invalid.
    target: Option<&'a Target>,
}

/// Forwards requests to the backends of a rule. Header operations are added to `out`.
pub(super) fn forward(out: &mut Route, rule: &Rule<'_>, destinations: &Destinations, mesh: &MeshConfig) {
    let pairs = rule.spec.backend_refs.iter().zip(rule.backends).filter(|(reference, _)| reference.weight > 0);
    let weighted: Vec<Weighted<'_>> =
        pairs.map(|(reference, backend)| Weighted { reference, target: backend.target.as_ref().ok() }).collect();
    let mut action = RouteAction {
        cluster_not_found_response_code: rule.failure.without_cluster().into(),
        request_mirror_policies: filters::mirrors(rule.spec, rule.mirrors, destinations),
        ..Default::default()
    };
    let mut operations = filters::operations(&rule.spec.filters);
    if let Some(rewrite) = filters::rewrite(rule.spec) {
        action.append_x_forwarded_host = defaults::appends_forwarded_host(mesh);
        operations.authority = rewrite.hostname.as_deref().map(str::to_owned).or(operations.authority);
    }
    let hashes: Vec<_> = weighted.iter().filter_map(|one| destinations.hash_at(one.target?)).collect();
    let mut hashed = false;
    match &weighted[..] {
        [] => {
            operations.add_to(out);
            out.action = Some(rule.failure.action());
            return;
        }
        [only] => {
            let mut operations = filters::joined(&operations, filters::operations(&only.reference.filters));
            operations.response_add.extend(session::mark(rule, only.target, destinations));
            action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster(only, destinations)));
            action.host_rewrite_specifier = operations.add_to(out).map(HostRewriteSpecifier::HostRewriteLiteral);
            hashed = !hashes.is_empty();
            out.typed_per_filter_config.extend(picked(only));
        }
        several => {
            let clusters = weigh(out, &mut action, (rule, several), operations, destinations);
            action.cluster_specifier =
                Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }));
        }
    }
    action.hash_policy = hashes;
    set_times(&mut action, rule.spec, hashed, mesh);
    let of_backends = || weighted.iter().filter_map(|one| destinations.session_of(one.target?)).next();
    let options = rule
        .session
        .as_ref()
        .or_else(of_backends)
        .map(|session| (sessions::FILTER.to_owned(), sessions::options(session)));
    out.typed_per_filter_config.extend(options);
    out.action = Some(Action::Route(action));
}

/// The options of the filter that asks the endpoint picker of a backend.
fn picked(backend: &Weighted<'_>) -> Option<(String, Any)> {
    let picker = backend.target?.picker.as_ref()?;
    Some((pickers::FILTER.to_owned(), pickers::options(picker)))
}

fn cluster(backend: &Weighted<'_>, destinations: &Destinations) -> String {
    backend.target.map_or_else(|| UNKNOWN_SERVICE.to_owned(), |target| destinations.cluster_of(target))
}

/// The clusters of several backends. Envoy applies the operations of a route after those of its clusters. If a backend has
/// filters, which follow those of the rule, all operations are therefore in the clusters.
fn weigh(
    out: &mut Route,
    action: &mut RouteAction,
    (rule, backends): (&Rule<'_>, &[Weighted<'_>]),
    operations: Operations,
    destinations: &Destinations,
) -> Vec<ClusterWeight> {
    let apart = backends.iter().any(|backend| !backend.reference.filters.is_empty());
    let shared = if apart {
        operations
    } else {
        action.host_rewrite_specifier = operations.add_to(out).map(HostRewriteSpecifier::HostRewriteLiteral);
        Operations::default()
    };
    let one = |backend: &Weighted<'_>| {
        let mut operations = filters::joined(&shared, filters::operations(&backend.reference.filters));
        operations.response_add.extend(session::mark(rule, backend.target, destinations));
        let mut cluster = operations.weighted(cluster(backend, destinations), Some(backend.reference.weight));
        cluster.typed_per_filter_config.extend(picked(backend));
        cluster
    };
    backends.iter().map(one).collect()
}

/// Sets timeouts and retries. Without a retry policy, the timeout of an attempt is that of the request.
fn set_times(action: &mut RouteAction, rule: &HttpRouteRule, hashed: bool, mesh: &MeshConfig) {
    let timeouts = rule.timeouts.as_ref();
    let request = timeouts.and_then(|times| times.request).map(|time| time.get());
    let attempt = timeouts.and_then(|times| times.backend_request).map(|time| time.get()).filter(|t| !t.is_zero());
    let Some(asked) = &rule.retry else {
        defaults::set_timeout(action, attempt.or(request));
        action.retry_policy = retry::policy(mesh.default_http_retry_policy.as_ref(), hashed);
        return;
    };
    defaults::set_timeout(action, request);
    let codes = asked.codes.iter().map(|code| format!(",{code}"));
    let conditions = [RETRY_ON, attempt.map_or("", |_| RETRY_ON_TIMEOUT)].map(str::to_owned);
    let policy = HttpRetry {
        attempts: i32::try_from(asked.attempts.unwrap_or(DEFAULT_RETRIES)).unwrap_or(i32::MAX),
        retry_on: conditions.into_iter().chain(codes).collect::<String>().into(),
        per_try_timeout: attempt,
        backoff: asked.backoff.map(|time| time.get()),
        ..Default::default()
    };
    action.retry_policy = retry::policy(Some(&policy), hashed);
}

/// Answers with a redirect, without its path, which depends on the match. `secure` listeners terminate TLS.
pub(super) fn redirect(redirect: &RequestRedirectFilter, port: u16, secure: bool) -> RedirectAction {
    let own_scheme = if secure { "https" } else { "http" };
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), scheme) => shown_port(port.into(), scheme.as_deref().unwrap_or(own_scheme)),
        // The default port of the scheme.
        (None, Some(_)) => 0,
        (None, None) => shown_port(port.into(), own_scheme),
    };
    RedirectAction {
        host_redirect: redirect.hostname.as_deref().unwrap_or_default().to_owned(),
        port_redirect: port,
        response_code: redirect_code(redirect.status_code).into(),
        scheme_rewrite_specifier: redirect
            .scheme
            .as_ref()
            .map(|scheme| SchemeRewriteSpecifier::SchemeRedirect(scheme.to_string())),
        ..Default::default()
    }
}

/// A change of the path.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum PathChange {
    /// The path stays.
    None,
    /// This replaces the path.
    Full(String),
    /// This replaces the matched prefix.
    Prefix(String),
    /// This replaces what the expression matches.
    Regex { pattern: String, substitution: String },
}

/// The change of a path by a match with this prefix, which has no trailing slash. `None` if the match has none and needs one.
pub(super) fn path_change(modifier: &HttpPathModifier, prefix: Option<&str>) -> Option<PathChange> {
    let text = |value: &Option<Arc<str>>| {
        let value = value.as_deref().unwrap_or_default();
        if value.starts_with('/') { value.to_owned() } else { format!("/{value}") }
    };
    if modifier.kind == PathModifierType::ReplaceFullPath {
        return Some(PathChange::Full(text(&modifier.replace_full_path)));
    }
    let (prefix, value) = (prefix?, text(&modifier.replace_prefix_match));
    Some(match (prefix, value.trim_end_matches('/')) {
        ("", "") => PathChange::None,
        // The slash that is replaced belongs to the rest of the path.
        ("", value) => PathChange::Prefix(format!("{value}/")),
        // The rest of the path begins with a slash, unless it is empty.
        (prefix, "") => {
            PathChange::Regex { pattern: format!("^{}(/?)(.*)", quoted(prefix)), substitution: r"/\2".to_owned() }
        }
        (_, value) => PathChange::Prefix(value.to_owned()),
    })
}

/// Sets the path of an action. Others than forwarding and redirects have none.
pub(super) fn set_path(action: &mut Action, change: PathChange) {
    match action {
        Action::Route(action) => match change {
            PathChange::None => {}
            PathChange::Full(path) => action.regex_rewrite = Some(substitute("/.*", &path.replace('\\', r"\\"))),
            PathChange::Prefix(path) => action.prefix_rewrite = path,
            PathChange::Regex { pattern, substitution } => {
                action.regex_rewrite = Some(substitute(&pattern, &substitution));
            }
        },
        Action::Redirect(action) => {
            action.path_rewrite_specifier = match change {
                PathChange::None => None,
                PathChange::Full(path) => Some(PathRewriteSpecifier::PathRedirect(path)),
                PathChange::Prefix(path) => Some(PathRewriteSpecifier::PrefixRewrite(path)),
                PathChange::Regex { pattern, substitution } => {
                    Some(PathRewriteSpecifier::RegexRewrite(substitute(&pattern, &substitution)))
                }
            };
        }
        _ => {}
    }
}

fn substitute(pattern: &str, substitution: &str) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute { pattern: Some(regex(pattern)), substitution: substitution.to_owned() }
}
