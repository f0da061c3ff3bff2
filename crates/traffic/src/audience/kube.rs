//! The Gateways of the Gateway API that a proxy serves.

use std::sync::Arc;

use config::Timestamp;
use gateway_api::binding::GatewaysByService;
use gateway_api::plan::OwnPlans;
use model::kube::GATEWAY_NAME;
use model::service::ObjectId;

use super::facts::Facts;
use super::inbound;

/// The Gateways of a proxy, the oldest first: the one that its label names, and those whose services lead to its workload. All
/// are in its namespace.
pub(super) fn gateways(facts: &Facts<'_>) -> Vec<ObjectId> {
    let namespace = &facts.proxy.namespace;
    let named = facts.labels.get(GATEWAY_NAME);
    let named = named.map(|name| ObjectId { namespace: namespace.clone(), name: name.clone() });
    let mut found: Vec<ObjectId> = named.into_iter().collect();
    for service in inbound::services(facts) {
        let by_service = facts.cx.get::<GatewaysByService>(&service);
        found.extend(by_service.iter().flat_map(|members| members.iter().cloned()));
    }
    let mut dated: Vec<(Option<Timestamp>, Arc<str>)> = Vec::new();
    for id in found {
        let created = facts.cx.get::<OwnPlans>(&id).map(|plan| plan.created);
        dated.extend(created.map(|created| (created, id.name)));
    }
    dated.sort();
    dated.dedup();
    dated.into_iter().map(|(_, name)| ObjectId { namespace: namespace.clone(), name }).collect()
}
