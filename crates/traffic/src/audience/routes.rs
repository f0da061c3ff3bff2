//! Builds the audience of route tables.

use std::sync::Arc;

use flow::Reads;
use model::audience::{ProxyClass, RouteAudience, Source};

use super::class::Class;
use super::facts::Facts;
use super::filters::Selected;
use super::overrides::Overrides;
use super::{HttpSourceLabels, select};
use crate::scope;

/// Whether the tables of an audience have virtual hosts that other tables share.
pub(super) fn shares_hosts(cx: &Reads<'_>, audience: &RouteAudience) -> bool {
    audience.class == ProxyClass::Sidecar(()) && audience.overrides.is_none() && scope::is_open(cx, &audience.scope)
}

pub(super) fn audience(facts: &Facts<'_>, class: &Class, filters: &Selected, overrides: &Overrides) -> RouteAudience {
    let source = facts.source(select::named::<HttpSourceLabels>(facts.cx, facts.labels));
    let regex_limit = Some(facts.proxy.regex_limit());
    RouteAudience {
        scope: facts.scope.clone(),
        class: match class {
            ProxyClass::Sidecar(_) => ProxyClass::Sidecar(()),
            ProxyClass::Gateway(gateway) => ProxyClass::Gateway(gateway.clone()),
            ProxyClass::Waypoint => ProxyClass::Waypoint,
            ProxyClass::Ztunnel => ProxyClass::Ztunnel,
            ProxyClass::Grpc => ProxyClass::Grpc,
        },
        source: Arc::new(Source { regex_limit, ..(*source).clone() }),
        filters: filters.routes.clone(),
        overrides: overrides.routes.clone(),
    }
}
