//! Filters of the security policies that a listener's requests and connections are subject to.

use std::sync::Arc;

use flow::Reads;
use model::audience::Policies;
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use crate::rbac::{AuthorizationFilters, Filters};

/// Filters of security policies.
#[derive(Default)]
pub(crate) struct PolicyFilters {
    authorization: Option<Arc<Filters>>,
}

impl PolicyFilters {
    /// The filters of a listener. If those of its policies are not known, it denies everything.
    pub(crate) fn of(cx: &Reads<'_>, policies: &Policies) -> PolicyFilters {
        let found = |ids| match cx.get::<AuthorizationFilters>(ids) {
            Some(filters) => (*filters).clone(),
            None => Arc::new(Filters::closed()),
        };
        let ids = &policies.authorization;
        PolicyFilters { authorization: (!ids.is_empty()).then(|| found(ids)) }
    }

    /// The filters of an HTTP connection manager, which precede all others. External services are asked first, as in
    /// Istio; tokens are verified before the rules that depend on them.
    pub(crate) fn http(&self) -> Vec<HttpFilter> {
        let authorization = self.authorization.as_deref();
        let external = authorization.iter().flat_map(|filters| &filters.external);
        let rules = authorization.iter().flat_map(|filters| &filters.http);
        external.chain(rules).cloned().collect()
    }

    /// The filters of connections of other protocols, which precede all others.
    pub(crate) fn tcp(&self) -> Vec<Filter> {
        self.authorization.as_deref().map(|filters| filters.tcp.clone()).unwrap_or_default()
    }
}
