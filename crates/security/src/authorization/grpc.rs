//! Authorization of proxyless gRPC servers, which evaluate rules themselves.
//!
//! gRPC enforces `ALLOW` and `DENY` policies. It asks no external services, writes no audit logs for this, and has no dry run:
//! other policies do not select its servers. It verifies no tokens.

use std::sync::Arc;

use config::istio::authorization_policy::AuthorizationAction;
use flow::Reads;
use model::audience::PolicyIds;
use model::authorization::{Action, Check, Rules};
use model::service::ObjectId;
use registry::inputs::AuthorizationPolicies;

use super::translate::{Traffic, Translator};
use super::{PREFIX, TrustDomains, is_dry_run, rule_name};

flow::rule! {
    /// The action of each AuthorizationPolicy that gRPC servers enforce. Others have no row.
    pub EnforcedByGrpc: ObjectId => Action = "authorization policies that grpc enforces", derive_enforced_by_grpc;
}

fn derive_enforced_by_grpc(cx: &Reads<'_>, id: &ObjectId) -> Option<Action> {
    let policy = cx.get::<AuthorizationPolicies>(id)?;
    match policy.spec.action {
        _ if is_dry_run(&policy) => None,
        AuthorizationAction::Allow => Some(Action::Allow),
        AuthorizationAction::Deny => Some(Action::Deny),
        AuthorizationAction::Audit | AuthorizationAction::Custom => None,
    }
}

flow::rule! {
    /// The checks of the gRPC servers that a set of policies selects.
    pub GrpcChecks: PolicyIds => Arc<[Check]> = "authorization of grpc servers", derive_grpc_checks;
}

fn derive_grpc_checks(cx: &Reads<'_>, ids: &PolicyIds) -> Option<Arc<[Check]>> {
    let check = |action| {
        let of_action = |id: &&ObjectId| cx.get::<EnforcedByGrpc>(id).is_some_and(|found| *found == action);
        let mut policies = ids.iter().filter(of_action).peekable();
        policies.peek()?;
        let rules: Rules = policies.flat_map(|id| rules(cx, id, action)).collect();
        // ALLOW without rules denies everything.
        (action == Action::Allow || !rules.is_empty()).then_some(Check::Local {
            action,
            enforced: Some(rules),
            dry_run: None,
        })
    };
    Some([Action::Deny, Action::Allow].into_iter().filter_map(check).collect())
}

/// The rules of a policy.
fn rules(cx: &Reads<'_>, id: &ObjectId, action: Action) -> Rules {
    let (Some(policy), Some(domains)) = (cx.get::<AuthorizationPolicies>(id), cx.get::<TrustDomains>(&())) else {
        return Rules::new();
    };
    let translator = Translator {
        traffic: Traffic::Grpc,
        allows: action == Action::Allow,
        namespace: &id.namespace,
        domains: &domains,
    };
    let named = |(index, rule)| Some((rule_name(PREFIX, id, index), Arc::new(translator.rule(rule)?)));
    policy.spec.rules.iter().enumerate().filter_map(named).collect()
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<EnforcedByGrpc>();
    b.view::<GrpcChecks>();
}
