//! Builds the audiences of endpoints.

use std::sync::Arc;

use model::audience::{EndpointsAudience, OwnEndpoints};

use super::facts::Facts;
use super::location::OwnLocation;
use super::{inbound, location};
use crate::scope::particular;

pub(super) fn audience(facts: &Facts<'_>) -> EndpointsAudience {
    EndpointsAudience {
        scope: particular::shared(facts.cx, &facts.scope.without_assigned()),
        location: facts.location.shared.clone(),
    }
}

/// The audience of the clusters that the proxy shares with fewer others than those of `shared`.
pub(super) fn own(facts: &Facts<'_>, shared: &EndpointsAudience) -> Option<OwnEndpoints> {
    let workload = location::own_workload(facts.proxy, facts.pod, || inbound::first_service(facts));
    if facts.location.own.is_none() && workload.is_none() {
        return None;
    }
    let none = || OwnLocation { location: shared.location.clone(), hosts: Arc::default() };
    let OwnLocation { location, hosts } = facts.location.own.clone().unwrap_or_else(none);
    let audience = EndpointsAudience { scope: shared.scope.clone(), location };
    Some(OwnEndpoints { audience: Arc::new(audience), hosts, workload: workload.map(Arc::new) })
}
