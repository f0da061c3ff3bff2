//! Filters of the security policies that a listener's requests and connections are subject to.

use std::sync::Arc;

use flow::Reads;
use model::jwt::JwtPlan;
use model::listener::{Direction, ListenerSpec};
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use security::request_authentication::JwtPlans;

use crate::jwt;
use crate::rbac::{AuthorizationFilters, Filters};

/// Filters of security policies.
#[derive(Default)]
pub(crate) struct PolicyFilters {
    authorization: Option<Arc<Filters>>,
    authentication: Option<Arc<JwtPlan>>,
    /// Routes are selected again when tokens are verified: those of gateways may match claims.
    routes_by_claims: bool,
}

impl PolicyFilters {
    /// The filters of a listener. If those of its policies are not known, it denies everything.
    pub(crate) fn of(cx: &Reads<'_>, spec: &ListenerSpec) -> PolicyFilters {
        let found = |ids| match cx.get::<AuthorizationFilters>(ids) {
            Some(filters) => (*filters).clone(),
            None => Arc::new(Filters::closed()),
        };
        let (authorization, authentication) = (&spec.policies.authorization, &spec.policies.authentication);
        let plan = |ids| match cx.get::<JwtPlans>(ids) {
            Some(plan) => (*plan).clone(),
            None => Arc::new(JwtPlan::closed()),
        };
        PolicyFilters {
            authorization: (!authorization.is_empty()).then(|| found(authorization)),
            authentication: (!authentication.is_empty()).then(|| plan(authentication)),
            routes_by_claims: spec.direction == Direction::Gateway,
        }
    }

    /// The filters of an HTTP connection manager, which precede all others. External services are asked first, as in
    /// Istio; tokens are verified before the rules that depend on them.
    pub(crate) fn http(&self) -> Vec<HttpFilter> {
        let authorization = self.authorization.as_deref();
        let external = authorization.iter().flat_map(|filters| &filters.external);
        let rules = authorization.iter().flat_map(|filters| &filters.http);
        let verified = self.authentication.as_deref().and_then(|plan| jwt::filter(plan, self.routes_by_claims));
        external.cloned().chain(verified).chain(rules.cloned()).collect()
    }

    /// The filters of connections of other protocols, which precede all others.
    pub(crate) fn tcp(&self) -> Vec<Filter> {
        self.authorization.as_deref().map(|filters| filters.tcp.clone()).unwrap_or_default()
    }
}
