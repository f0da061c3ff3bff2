//! Authorization filters (RBAC, and external authorization) of requests and connections.

mod conditions;
mod external;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use flow::Reads;
use model::audience::PolicyIds;
use model::authorization::{Action, Check, Rules};
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::config::rbac::v3::{Policy, Rbac, rbac};
use protos::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use security::authorization::Plans;

use crate::parts::{http_filter, network_filter};

/// The names of the filters, under which they also write dynamic metadata.
const HTTP: &str = "envoy.filters.http.rbac";
const NETWORK: &str = "envoy.filters.network.rbac";
/// The prefix of the statistics of network filters.
const STAT_PREFIX: &str = "tcp.";
/// The prefix of statistics and metadata of rules for which an external service decides.
const EXTERNAL: &str = "istio_ext_authz_";

flow::rule! {
    /// The filters of a set of AuthorizationPolicies. Listeners with this set share them.
    pub AuthorizationFilters: PolicyIds => Arc<Filters> = "authorization filters", derive_authorization_filters;
}

/// Filters of AuthorizationPolicies.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Filters {
    /// Of external services, for HTTP requests.
    pub(crate) external: Vec<HttpFilter>,
    /// For HTTP requests.
    pub(crate) http: Vec<HttpFilter>,
    /// For connections of other protocols.
    pub(crate) tcp: Vec<Filter>,
}

impl Filters {
    /// Filters that deny everything.
    pub(crate) fn closed() -> Filters {
        let nothing = closed();
        Filters { external: Vec::new(), http: of_requests(&nothing), tcp: of_connections(&nothing) }
    }
}

fn derive_authorization_filters(cx: &Reads<'_>, ids: &PolicyIds) -> Option<Arc<Filters>> {
    let plan = cx.get::<Plans>(ids)?;
    let mut filters = Filters::default();
    for check in &plan.http {
        match check {
            Check::External { .. } => filters.external.extend(of_requests(check)),
            Check::Local { .. } => filters.http.extend(of_requests(check)),
        }
    }
    filters.tcp = plan.tcp.iter().flat_map(of_connections).collect();
    Some(Arc::new(filters))
}

fn of_requests(check: &Check) -> Vec<HttpFilter> {
    match check {
        Check::Local { action, enforced, dry_run } => {
            let filter = HttpRbac {
                rules: enforced.as_ref().map(|rules| engine(*action, rules)),
                shadow_rules: dry_run.as_ref().map(|rules| engine(*action, rules)),
                shadow_rules_stat_prefix: dry_run.as_ref().map(|_| dry_run_prefix(*action)).unwrap_or_default(),
                ..Default::default()
            };
            vec![http_filter(HTTP, &filter)]
        }
        Check::External { provider, service, rules } => {
            let matched = HttpRbac {
                shadow_rules: Some(engine(Action::Deny, rules)),
                shadow_rules_stat_prefix: EXTERNAL.to_owned(),
                ..Default::default()
            };
            vec![http_filter(HTTP, &matched), external::of_requests(service, matching(HTTP, provider))]
        }
    }
}

fn of_connections(check: &Check) -> Vec<Filter> {
    match check {
        Check::Local { action, enforced, dry_run } => {
            let filter = NetworkRbac {
                stat_prefix: STAT_PREFIX.to_owned(),
                rules: enforced.as_ref().map(|rules| engine(*action, rules)),
                shadow_rules: dry_run.as_ref().map(|rules| engine(*action, rules)),
                shadow_rules_stat_prefix: dry_run.as_ref().map(|_| dry_run_prefix(*action)).unwrap_or_default(),
                ..Default::default()
            };
            vec![network_filter(NETWORK, &filter)]
        }
        Check::External { provider, service, rules } => {
            let matched = NetworkRbac {
                stat_prefix: STAT_PREFIX.to_owned(),
                shadow_rules: Some(engine(Action::Deny, rules)),
                shadow_rules_stat_prefix: EXTERNAL.to_owned(),
                ..Default::default()
            };
            let asked = external::of_connections(service, matching(NETWORK, provider));
            [network_filter(NETWORK, &matched)].into_iter().chain(asked).collect()
        }
    }
}

/// The filters of a gRPC server, each of which needs a name of its own.
pub(crate) fn of_calls(check: &Check) -> Vec<HttpFilter> {
    let mut filters = of_requests(check);
    if let Check::Local { action: Action::Deny, .. } = check {
        filters.iter_mut().for_each(|filter| filter.name = format!("{HTTP}.DENY"));
    }
    filters
}

/// The check that denies everything.
pub(crate) fn closed() -> Check {
    Check::Local { action: Action::Allow, enforced: Some(Rules::new()), dry_run: None }
}

/// Matches requests for which a filter before noted a rule of the provider.
fn matching(filter: &str, provider: &str) -> protos::envoy::r#type::matcher::v3::MetadataMatcher {
    let prefix = model::authorization::external_prefix(provider);
    let key = format!("{EXTERNAL}shadow_effective_policy_id");
    conditions::metadata(filter, [&*key], conditions::prefix_value(prefix))
}

fn dry_run_prefix(action: Action) -> String {
    match action {
        Action::Allow => "istio_dry_run_allow_".to_owned(),
        Action::Deny => "istio_dry_run_deny_".to_owned(),
        Action::Audit => String::new(),
    }
}

/// The rules with their action.
fn engine(action: Action, rules: &Rules) -> Rbac {
    let action = match action {
        Action::Allow => rbac::Action::Allow,
        Action::Deny => rbac::Action::Deny,
        Action::Audit => rbac::Action::Log,
    };
    let policy = |rule: &model::authorization::Rule| Policy {
        permissions: rule.permissions.iter().map(|all| conditions::permission(all)).collect(),
        principals: rule.principals.iter().map(|all| conditions::principal(all)).collect(),
        ..Default::default()
    };
    Rbac {
        action: action.into(),
        policies: rules.iter().map(|(name, rule)| (name.to_string(), policy(rule))).collect(),
        ..Default::default()
    }
}
