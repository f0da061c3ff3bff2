//! Listeners: whether they are accepted, their certificates, and the number of their routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::Listener;
use flow::Reads;
use model::kube::{ListenerId, ListenerOwner, RouteId};
use model::standing::{Fact, ListenerStanding, condition};

use super::{NO_ERRORS, resolved};
use crate::attach::{Attachment, Attachments};
use crate::certificates::CertificateProblems;
use crate::conflict::Conflict;
use crate::frontend::{self, ClientVerification};
use crate::grants::GROUP;
use crate::merged::ListenersByOwner;
use crate::plan::{ListenerPlan, ListenerProtocol};

flow::index! {
    /// Attached routes by listener, whether or not they have hosts of their own.
    pub RoutesByListener: ListenerId => members of Attachments = "routes by listener", routes_by_listener_keys;
}

fn routes_by_listener_keys(_: &RouteId, row: &Arc<Attachment>) -> Vec<ListenerId> {
    let joined = row.parents.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten();
    joined.map(|one| one.listener.clone()).collect()
}

/// A listener, judged.
pub(super) struct Judged {
    pub(super) standing: ListenerStanding,
    /// It is accepted and can be programmed.
    pub(super) is_valid: bool,
    /// All of its references resolve.
    pub(super) is_resolved: bool,
}

/// Judges the listeners of a Gateway or ListenerSet. None if its Gateway is of no served class.
pub(super) fn judge_all(cx: &Reads<'_>, owner: &ListenerOwner, specs: &[Listener]) -> Option<Vec<Judged>> {
    let plans = cx.get::<ListenersByOwner>(owner)?;
    let mut names = BTreeSet::new();
    let judged = specs.iter().filter(|spec| names.insert(&spec.name)).map(|spec| {
        let id = ListenerId { owner: owner.clone(), name: spec.name.clone() };
        judge(cx, &id, spec, plans.listeners.iter().find(|one| one.name == spec.name))
    });
    Some(judged.collect())
}

/// Judges a listener. It has no plan if its hostname is invalid.
fn judge(cx: &Reads<'_>, id: &ListenerId, spec: &Listener, plan: Option<&ListenerPlan>) -> Judged {
    let verification = plan.and_then(|plan| frontend::of_listener(cx, &id.owner, plan));
    let accepted = accepted(spec, plan, verification.as_deref());
    let certificates = cx.get::<CertificateProblems>(id);
    let problems = certificates.iter().flat_map(|row| row.problems.iter());
    let problems = problems.chain(verification.iter().flat_map(|row| row.problems.iter()));
    let problems = problems.map(|problem| (problem.reason.name(), &*problem.message));
    let kinds = plan.map(|plan| &plan.kinds[..]).unwrap_or_default();
    let is_known = |kind: &str| kinds.iter().any(|known| known.name() == kind);
    let invalid = spec.allowed_routes.kinds.iter().any(|kind| &*kind.group != GROUP || !is_known(&kind.kind));
    let invalid = invalid.then_some(("InvalidRouteKinds", "Invalid route kinds"));
    let resolved = resolved(problems.chain(invalid), || NO_ERRORS);

    let has_conflict = plan.is_some_and(|plan| plan.conflict.is_some());
    let mut conditions = vec![accepted.clone()];
    if has_conflict {
        conditions.push(Fact { kind: condition::PROGRAMMED, ..accepted.clone() });
        conditions.push(Fact { kind: condition::CONFLICTED, holds: true, ..accepted.clone() });
    } else {
        let bad_tls = plan.is_some_and(|plan| lacks_tls(plan, certificates.is_some_and(|row| row.usable > 0)));
        if !accepted.holds {
            conditions.push(Fact::no(condition::PROGRAMMED, "Invalid", accepted.message.clone()));
        } else if bad_tls {
            conditions.push(Fact::no(condition::PROGRAMMED, "Invalid", "Bad TLS configuration"));
        }
        conditions.push(Fact::no(condition::CONFLICTED, "NoConflicts", NO_ERRORS));
    }
    let is_valid = conditions.iter().all(|fact| fact.holds || fact.kind == condition::CONFLICTED) && !has_conflict;
    let is_resolved = resolved.holds;
    conditions.push(resolved);
    let attached = cx.with::<RoutesByListener, _>(id, |routes| routes.map_or(0, |routes| routes.len()));
    let standing = ListenerStanding { name: spec.name.clone(), kinds: kinds.to_vec(), attached, conditions };
    Judged { standing, is_valid, is_resolved }
}

fn accepted(spec: &Listener, plan: Option<&ListenerPlan>, verification: Option<&ClientVerification>) -> Fact {
    let Some(plan) = plan else {
        let host = spec.hostname.as_deref().unwrap_or_default();
        return Fact::no(condition::ACCEPTED, "UnsupportedValue", format!("the hostname {host:?} is invalid"));
    };
    if let Some(conflict) = plan.conflict {
        let reason = match conflict {
            Conflict::Protocol => "ProtocolConflict",
            Conflict::Hostname => "HostnameConflict",
        };
        let message = "Listener has a conflict with another listener attached to the same Gateway";
        return Fact::no(condition::ACCEPTED, reason, message);
    }
    if verification.is_some_and(|row| row.authorities.is_none()) {
        let message = "No reference to CA certificates is valid, so that no client can be verified";
        return Fact::no(condition::ACCEPTED, "NoValidCACertificate", message);
    }
    if plan.is_served() {
        return Fact::yes(condition::ACCEPTED, "Accepted", NO_ERRORS);
    }
    let protocol = &spec.protocol;
    let upper = protocol.to_ascii_uppercase();
    let message = match plan.protocol {
        ListenerProtocol::Unknown if ["HTTP", "HTTPS", "TLS", "TCP"].contains(&&*upper) => {
            format!("protocol {protocol:?} is unsupported. hint: {upper:?} (uppercase) may be supported")
        }
        ListenerProtocol::Unknown => format!("protocol {protocol:?} is unsupported"),
        _ => format!("protocol {protocol:?} is not implemented yet"),
    };
    Fact::no(condition::ACCEPTED, "UnsupportedProtocol", message)
}

/// Whether the listener terminates TLS and cannot, for lack of settings or of a certificate.
fn lacks_tls(plan: &ListenerPlan, has_certificate: bool) -> bool {
    match &plan.termination {
        None => plan.protocol == ListenerProtocol::Https,
        Some(termination) => !termination.is_of_mesh() && !has_certificate,
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<RoutesByListener>();
}
