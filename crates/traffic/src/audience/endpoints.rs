//! Builds the audiences of endpoints.

use std::sync::Arc;

use model::audience::{EndpointsAudience, OwnEndpoints};

use super::facts::Facts;
use super::location::OwnLocation;
use super::{inbound, location};
use crate::scope::particular;

pub(super) fn audience(facts: &Facts<'_>) -> EndpointsAudience {
    EndpointsAudience {
        scope: particular::base(facts.cx, &facts.scope.without_assigned()),
        location: facts.location.shared.clone(),
    }
}

/// The audience of the clusters that the proxy shares with fewer others than those of `shared`: their endpoints depend on its
/// location, or their services or policies are those of its namespace.
pub(super) fn own(facts: &Facts<'_>, shared: &EndpointsAudience) -> Option<OwnEndpoints> {
    let workload = location::own_workload(facts.proxy, facts.pod, || inbound::first_service(facts));
    let particular = particular::few_hosts(facts.cx, &facts.scope);
    if facts.location.own.is_none() && particular.is_none() && workload.is_none() {
        return None;
    }
    let none = || OwnLocation { location: shared.location.clone(), hosts: Arc::default() };
    let OwnLocation { location, mut hosts } = facts.location.own.clone().unwrap_or_else(none);
    let mut scope = shared.scope.clone();
    if let Some(particular) = particular {
        scope = facts.scope.without_assigned();
        Arc::make_mut(&mut hosts).extend(particular.iter().map(|host| host.as_arc().clone()));
    }
    let audience = EndpointsAudience { scope, location };
    Some(OwnEndpoints { audience: Arc::new(audience), hosts, workload: workload.map(Arc::new) })
}
