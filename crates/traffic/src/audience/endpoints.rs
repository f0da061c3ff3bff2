//! Builds the audience of endpoints.

use std::sync::Arc;

use model::audience::{EndpointsAudience, Leds};

use super::facts::Facts;
use super::filters::Selected;
use super::{inbound, location};

pub(super) fn audience(facts: &Facts<'_>, filters: &Selected) -> EndpointsAudience {
    let own = location::own_workload(facts.proxy, facts.pod, || inbound::first_service(facts));
    EndpointsAudience {
        scope: facts.scope.without_assigned(),
        location: facts.location.clone(),
        own: own.map(Arc::new),
        leds: facts.proxy.leds.map(|from| Leds {
            from,
            generation: 0,
            weights: !filters.clusters.is_empty(),
        }),
    }
}
