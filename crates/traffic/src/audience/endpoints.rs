//! Builds the audience of endpoints.

use std::sync::Arc;

use model::audience::EndpointsAudience;

use super::facts::Facts;
use super::{inbound, location};
use crate::scope::particular;

pub(super) fn audience(facts: &Facts<'_>) -> EndpointsAudience {
    let own = location::own_workload(facts.proxy, facts.pod, || inbound::first_service(facts));
    EndpointsAudience {
        scope: particular::shared(facts.cx, &facts.scope.without_assigned()),
        location: facts.location.clone(),
        own: own.map(Arc::new),
    }
}
