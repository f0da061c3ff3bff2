//! Builds the audience of route tables.

use flow::Reads;
use model::audience::{ProxyClass, RouteAudience};

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
    RouteAudience {
        scope: facts.scope.clone(),
        class: match class {
            ProxyClass::Sidecar(_) => ProxyClass::Sidecar(()),
            ProxyClass::Gateway(gateway) => ProxyClass::Gateway(gateway.clone()),
            ProxyClass::Waypoint => ProxyClass::Waypoint,
            ProxyClass::Ztunnel => ProxyClass::Ztunnel,
            ProxyClass::Grpc => ProxyClass::Grpc,
        },
        source: facts.source(select::named::<HttpSourceLabels>(facts.cx, facts.labels)),
        filters: filters.routes.clone(),
        overrides: overrides.routes.clone(),
    }
}
