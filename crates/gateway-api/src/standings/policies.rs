//! Policies for backends: whether they are in effect, for each Gateway that sends requests to a target.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::{BackendTlsPolicy, BackendTrafficPolicy};
use config::{Kind, Object};
use flow::Reads;
use model::kube::RouteId;
use model::service::ObjectId;
use model::standing::{Fact, Standing, StandingBody, condition};
use registry::inputs::{BackendTlsPolicies, BackendTrafficPolicies, RouteObject, RouteObjects};

use super::ancestors::{self, Conditions, PolicyTarget};
use super::{refused, resolved};
use crate::attach::Attachments;
use crate::backend_policy::{AuthorityProblem, Checked, TlsPoliciesByTarget, TrafficPoliciesByTarget, target};
use crate::backends;

flow::index! {
    /// Routes by the Services that they refer to.
    pub RoutesByBackend: ObjectId => members of RouteObjects = "routes by backend", routes_by_backend_keys;
}

flow::rule! {
    /// The Gateways that send requests to a Service.
    pub GatewaysOfBackend: ObjectId => BTreeSet<ObjectId> = "gateways by backend", derive_gateways;
    /// Facts about BackendTLSPolicies.
    pub TlsPolicyStandings: ObjectId => Arc<Standing> = "standings of backend tls policies", derive_tls_standing;
    /// Facts about XBackendTrafficPolicies.
    pub TrafficPolicyStandings: ObjectId => Arc<Standing> = "standings of backend traffic policies", derive_traffic_standing;
}

fn routes_by_backend_keys(id: &RouteId, route: &RouteObject) -> Vec<ObjectId> {
    let services: BTreeSet<ObjectId> = backends::services(route, &id.id.namespace).collect();
    services.into_iter().collect()
}

fn derive_gateways(cx: &Reads<'_>, service: &ObjectId) -> Option<BTreeSet<ObjectId>> {
    let mut gateways = BTreeSet::new();
    for route in cx.get::<RoutesByBackend>(service)?.iter() {
        let attachment = cx.get::<Attachments>(route);
        let parents = attachment.iter().flat_map(|row| &row.parents).filter(|parent| parent.outcome.is_ok());
        gateways.extend(parents.map(|parent| parent.gateway.clone()));
    }
    (!gateways.is_empty()).then_some(gateways)
}

fn derive_tls_standing(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let Some(object) = cx.get::<BackendTlsPolicies>(id) else { return refused::policy(cx, Kind::BackendTlsPolicy, id) };
    let targets = tls_targets(&object).into_iter().map(|target| {
        let problem = target.missing(cx).or_else(|| rival(cx, &object, &target).map(|rival| conflicted(&rival)));
        (target, problem)
    });
    let targets: Vec<(PolicyTarget, Option<Fact>)> = targets.collect();
    let checked = Checked::of(cx, &id.namespace, &object.spec.validation);
    let problems = checked.problems.iter().map(|problem| (problem.reason(), problem.message()));
    let accepted = match &checked.authorities {
        Ok(_) => valid(),
        Err(problem @ AuthorityProblem::UnknownSet(_)) => Fact::no(condition::ACCEPTED, "Invalid", problem.message()),
        Err(problem) => Fact::no(condition::ACCEPTED, "NoValidCACertificate", problem.message()),
    };
    let others = vec![resolved(problems, || "All references resolved")];
    Some(standing(cx, &targets, &Conditions { accepted, others }))
}

/// The targets of a BackendTLSPolicy, except those of other kinds.
fn tls_targets(policy: &Object<BackendTlsPolicy>) -> Vec<PolicyTarget> {
    let namespace = &policy.meta.namespace;
    let refs = policy.spec.target_refs.iter().filter_map(|one| {
        let section = one.section_name.clone().filter(|section| !section.is_empty());
        Some(PolicyTarget { key: target(namespace, (&one.group, &one.kind), &one.name)?, section })
    });
    refs.collect()
}

/// The policy that has precedence over this one for a target.
fn rival(cx: &Reads<'_>, policy: &Object<BackendTlsPolicy>, target: &PolicyTarget) -> Option<ObjectId> {
    let members = cx.get::<TlsPoliciesByTarget>(&target.key)?;
    let precedes = |id: &&ObjectId| {
        let other = cx.get::<BackendTlsPolicies>(id);
        other.is_some_and(|other| other.meta.by_age(&policy.meta).is_lt() && tls_targets(&other).contains(target))
    };
    members.iter().find(precedes).cloned()
}

fn derive_traffic_standing(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let Some(object) = cx.get::<BackendTrafficPolicies>(id) else {
        return refused::policy(cx, Kind::BackendTrafficPolicy, id);
    };
    let both_set = |other: &BackendTrafficPolicy| {
        let retries = other.retry_constraint.is_some() && object.spec.retry_constraint.is_some();
        retries || other.session_persistence.is_some() && object.spec.session_persistence.is_some()
    };
    let rival = |target: &PolicyTarget| {
        let members = cx.get::<TrafficPoliciesByTarget>(&target.key)?;
        let precedes = |other: &&ObjectId| {
            let other = cx.get::<BackendTrafficPolicies>(other);
            other.is_some_and(|other| other.meta.by_age(&object.meta).is_lt() && both_set(&other.spec))
        };
        members.iter().find(precedes).cloned()
    };
    let targets = object.spec.target_refs.iter().filter_map(|one| {
        let key = target(&id.namespace, (&one.group, &one.kind), &one.name)?;
        let target = PolicyTarget { key, section: None };
        let problem = target.missing(cx).or_else(|| rival(&target).map(|rival| conflicted(&rival)));
        Some((target, problem))
    });
    let targets: Vec<(PolicyTarget, Option<Fact>)> = targets.collect();
    Some(standing(cx, &targets, &Conditions { accepted: valid(), others: Vec::new() }))
}

fn valid() -> Fact {
    Fact::yes(condition::ACCEPTED, "Accepted", "Configuration is valid")
}

fn conflicted(rival: &ObjectId) -> Fact {
    Fact::no(condition::ACCEPTED, "Conflicted", format!("{rival} has precedence for the same target"))
}

fn standing(cx: &Reads<'_>, targets: &[(PolicyTarget, Option<Fact>)], conditions: &Conditions) -> Arc<Standing> {
    let ancestors = ancestors::of(cx, targets, conditions);
    Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Policy { ancestors } })
}

impl AuthorityProblem {
    /// The reason as in conditions.
    fn reason(&self) -> &'static str {
        match self {
            AuthorityProblem::InvalidKind(_) => "InvalidKind",
            AuthorityProblem::InvalidReference(_) => "InvalidCACertificateRef",
            AuthorityProblem::UnknownSet(_) => "Invalid",
        }
    }

    fn message(&self) -> &str {
        match self {
            AuthorityProblem::InvalidKind(message)
            | AuthorityProblem::InvalidReference(message)
            | AuthorityProblem::UnknownSet(message) => message,
        }
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<RoutesByBackend>();
    b.view::<GatewaysOfBackend>();
    b.view::<TlsPolicyStandings>();
    b.view::<TrafficPolicyStandings>();
}
