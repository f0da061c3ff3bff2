//! Ancestors in the statuses of policies for backends.
//!
//! A Gateway is one if it sends requests to a target of the policy. A target that no Gateway sends requests to is an ancestor
//! itself, as in Istio, so that its policy has a status: sidecars and gRPC clients follow it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::gateway_api::reference::ParentReference;
use flow::Reads;
use model::service::ObjectId;
use model::standing::{Fact, MESH_CONTROLLERS, ParentStanding, condition};
use registry::Services;

use super::policies::GatewaysOfBackend;
use super::routes::GatewayControllers;
use crate::backend_policy::{PolicyTargetKey, target_of};
use crate::service_objects;

/// The most ancestors in the status of a policy, as the specification allows.
const MOST: usize = 16;

/// A target of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PolicyTarget {
    pub(super) key: PolicyTargetKey,
    /// The name of a port; none for all ports.
    pub(super) section: Option<Arc<str>>,
}

/// The conditions of a policy at a target without problem.
pub(super) struct Conditions {
    pub(super) accepted: Fact,
    /// Conditions that are the same for all targets.
    pub(super) others: Vec<Fact>,
}

impl PolicyTarget {
    /// The condition `Accepted` if the object or its port does not exist.
    pub(super) fn missing(&self, cx: &Reads<'_>) -> Option<Fact> {
        let PolicyTargetKey { entry, id } = &self.key;
        let mut found = false;
        for key in service_objects::keys(cx, *entry, id) {
            let Some(service) = cx.get::<Services>(&key) else { continue };
            if target_of(&service).as_ref() != Some(&self.key) {
                continue;
            }
            found = true;
            let is_named = |section: &Arc<str>| service.ports.iter().any(|port| port.name == *section);
            if self.section.as_ref().is_none_or(is_named) {
                return None;
            }
        }
        let message = match self.section.as_ref().filter(|_| found) {
            Some(section) => format!("{} {id} has no port {section:?}", self.kind()),
            None => format!("{} {id} not found", self.kind()),
        };
        Some(Fact::no(condition::ACCEPTED, "TargetNotFound", message))
    }

    fn kind(&self) -> &'static str {
        service_objects::kind(self.key.entry)
    }

    /// The Gateways that send requests to it, with the controllers of their classes. Routes do not refer to ServiceEntries.
    fn gateways(&self, cx: &Reads<'_>) -> Vec<(ObjectId, &'static str)> {
        let row = (!self.key.entry).then(|| cx.get::<GatewaysOfBackend>(&self.key.id)).flatten();
        let gateways = row.iter().flat_map(|row| row.iter());
        let served = gateways.filter_map(|gateway| Some((gateway.clone(), *cx.get::<GatewayControllers>(gateway)?)));
        served.collect()
    }

    /// The reference to it, as Istio writes it.
    fn reference(&self) -> ParentReference {
        ParentReference {
            group: if self.key.entry { "networking.istio.io" } else { "" }.into(),
            kind: self.kind().into(),
            name: self.key.id.name.clone(),
            section_name: self.section.clone(),
            ..ParentReference::default()
        }
    }
}

/// The ancestors of a policy with these targets, each with its problem: Gateways first.
pub(super) fn of(
    cx: &Reads<'_>,
    targets: &[(PolicyTarget, Option<Fact>)],
    conditions: &Conditions,
) -> Vec<ParentStanding> {
    let mut gateways: BTreeMap<ObjectId, (&'static str, Vec<&Fact>)> = BTreeMap::new();
    let mut unused = Vec::new();
    for (target, problem) in targets {
        let found = target.gateways(cx);
        if found.is_empty() {
            let standing = of_target(target, problem.as_ref(), conditions);
            // Validation does not find every duplicate.
            if !unused.contains(&standing) {
                unused.push(standing);
            }
        }
        for (gateway, controller) in found {
            gateways.entry(gateway).or_insert((controller, Vec::new())).1.extend(problem);
        }
    }
    let gateways = gateways.into_iter().map(|(gateway, (controller, problems))| {
        let (namespace, name) = (Some(gateway.namespace), gateway.name);
        let accepted = joined(&problems).unwrap_or_else(|| conditions.accepted.clone());
        let parent = ParentReference { namespace, name, ..ParentReference::default() };
        ParentStanding { parent, controller, conditions: conditions.with(accepted) }
    });
    gateways.chain(unused).take(MOST).collect()
}

fn of_target(target: &PolicyTarget, problem: Option<&Fact>, conditions: &Conditions) -> ParentStanding {
    let mut accepted = problem.unwrap_or(&conditions.accepted).clone();
    if accepted.holds && !target.key.entry {
        let message =
            format!("{}; no route of a Gateway refers to the target, only other clients use it", accepted.message);
        accepted.message = message.into();
    }
    let [controller, ..] = MESH_CONTROLLERS;
    ParentStanding { parent: target.reference(), controller, conditions: conditions.with(accepted) }
}

/// Problems with several targets as one: the first reason, and all messages.
fn joined(problems: &[&Fact]) -> Option<Fact> {
    let first = *problems.first()?;
    let messages: Vec<&str> = problems.iter().map(|problem| &*problem.message).collect();
    Some(Fact { message: messages.join("; ").into(), ..first.clone() })
}

impl Conditions {
    fn with(&self, accepted: Fact) -> Vec<Fact> {
        [accepted].into_iter().chain(self.others.iter().cloned()).collect()
    }
}
