//! Authorization of workloads, from AuthorizationPolicies.
//!
//! ```text
//! AuthorizationPolicy ──► Translations (one policy's rules) ──► Plans (by set of policies) ──► filters of listeners
//! MeshConfig, services ──► ExternalServices (by provider) ─────────┘
//! ```
//!
//! Each policy is translated once, and a plan is composed once for each set of policies that selects a workload, so that
//! workloads share it.
//!
//! What cannot be evaluated makes a policy stricter, never more permissive: an `ALLOW` rule is left out, and a condition
//! of another action is left out of its rule. That concerns HTTP conditions on TCP connections and invalid values, which
//! validation reports.

mod external;
mod grpc;
mod identity;
mod translate;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::AuthorizationPolicy;
use config::istio::authorization_policy::AuthorizationAction;
use config::{Object, parse_bool};
use flow::Reads;
use model::audience::PolicyIds;
use model::authorization::{Action, Check, ExternalSettings, Plan, Rule, Rules, external_prefix};
use model::service::ObjectId;
use registry::inputs::{AuthorizationPolicies, Mesh};

pub use external::{AuthorizationServices, ExternalServices, Found, PoliciesByProvider};
pub use grpc::{EnforcedByGrpc, GrpcChecks};
use translate::{Traffic, Translator};

/// Annotation of policies whose result is only counted.
const DRY_RUN: &str = "istio.io/dry-run";
/// The beginning of the names of rules that the proxy evaluates itself.
const PREFIX: &str = "ns[";
/// The end of the names of rules that deny because their provider cannot be used.
const NO_PROVIDER: &str = "-deny-due-to-bad-CUSTOM-action";

flow::rule! {
    /// The trust domain of the mesh and its aliases.
    pub TrustDomains: () => Arc<[Arc<str>]> = "trust domains", derive_trust_domains;
}

fn derive_trust_domains(cx: &Reads<'_>, (): &()) -> Option<Arc<[Arc<str>]>> {
    Some(cx.get::<Mesh>(&())?.config.trust_domains().cloned().collect())
}

flow::rule! {
    /// The rules of each AuthorizationPolicy.
    pub Translations: ObjectId => Arc<Translation> = "rules of authorization policies", derive_translation;
}

/// The rules of a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Translation {
    /// The action; none for a policy without effect.
    pub action: AuthorizationAction,
    /// Their result is only counted.
    pub dry_run: bool,
    /// The provider that decides; empty unless the action is `CUSTOM`.
    pub provider: Arc<str>,
    /// Rules for HTTP requests.
    pub http: Rules,
    /// Rules for connections of other protocols.
    pub tcp: Rules,
    /// Indexes of the rules that differ for connections of other protocols, because some of their conditions are for HTTP.
    pub differs: Vec<usize>,
}

fn derive_translation(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Translation>> {
    let object = cx.get::<AuthorizationPolicies>(id)?;
    let domains = cx.get::<TrustDomains>(&())?;
    Some(Arc::new(translation(id, &object, &domains)))
}

fn translation(id: &ObjectId, object: &Object<AuthorizationPolicy>, domains: &[Arc<str>]) -> Translation {
    let spec = &object.spec;
    let custom = spec.action == AuthorizationAction::Custom;
    let provider = spec.provider.as_ref().filter(|_| custom).map(|provider| provider.name.clone()).unwrap_or_default();
    let translator = |traffic| Translator {
        traffic,
        allows: spec.action == AuthorizationAction::Allow,
        namespace: &id.namespace,
        domains,
    };
    let (http, tcp) = (translator(Traffic::Http), translator(Traffic::Tcp));
    let mut out = Translation {
        action: spec.action,
        dry_run: is_dry_run(object),
        provider,
        http: Rules::new(),
        tcp: Rules::new(),
        differs: Vec::new(),
    };
    for (index, rule) in spec.rules.iter().enumerate() {
        let prefix = if custom { external_prefix(&out.provider) } else { PREFIX.to_owned() };
        let name = rule_name(&prefix, id, index);
        let (of_requests, of_connections) = (http.rule(rule).map(Arc::new), tcp.rule(rule).map(Arc::new));
        if of_requests != of_connections {
            out.differs.push(index);
        }
        out.http.extend(of_requests.map(|rule| (name.clone(), rule)));
        out.tcp.extend(of_connections.map(|rule| (name, rule)));
    }
    out
}

/// The name of a rule, which Envoy's statistics and logs contain.
fn rule_name(prefix: &str, id: &ObjectId, index: usize) -> Arc<str> {
    format!("{prefix}{}]-policy[{}]-rule[{index}]", id.namespace, id.name).into()
}

/// Whether the result of a policy is only counted. As in Istio, a value that is no boolean is ignored.
pub fn is_dry_run(object: &Object<AuthorizationPolicy>) -> bool {
    let written = object.meta.annotations.get(DRY_RUN);
    written.and_then(|text| parse_bool(text)) == Some(true)
}

flow::rule! {
    /// The checks of the workloads that a set of policies selects; none, which allows nothing, if a policy has no rules yet.
    pub Plans: PolicyIds => Arc<Plan> = "authorization", derive_plan;
}

fn derive_plan(cx: &Reads<'_>, ids: &PolicyIds) -> Option<Arc<Plan>> {
    let policies = ids.iter().map(|id| cx.get::<Translations>(id).map(|row| (*row).clone()));
    let policies: Vec<Arc<Translation>> = policies.collect::<Option<_>>()?;
    let mut plan = Plan::default();
    let custom = policies.iter().filter(|policy| policy.action == AuthorizationAction::Custom && !policy.dry_run);
    let mut by_provider: BTreeMap<&Arc<str>, Vec<&Translation>> = BTreeMap::new();
    for policy in custom {
        by_provider.entry(&policy.provider).or_default().push(policy);
    }
    for (provider, policies) in by_provider {
        delegate(cx, provider, &policies, &mut plan);
    }
    for action in [AuthorizationAction::Audit, AuthorizationAction::Deny, AuthorizationAction::Allow] {
        let of_action: Vec<&Translation> =
            policies.iter().filter(|policy| policy.action == action).map(|policy| &**policy).collect();
        plan.http.extend(local(action, &of_action, |policy| &policy.http));
        plan.tcp.extend(local(action, &of_action, |policy| &policy.tcp));
    }
    Some(Arc::new(plan))
}

/// Adds the checks of a provider. If it cannot be used, requests that match the rules are denied.
fn delegate(cx: &Reads<'_>, provider: &Arc<str>, policies: &[&Translation], plan: &mut Plan) {
    let (http, tcp) = (joined(policies, |policy| &policy.http), joined(policies, |policy| &policy.tcp));
    let found = cx.get::<ExternalServices>(provider);
    let Some(service) = found.as_deref().and_then(|found| (**found).as_ref().ok()) else {
        let denied = |rules: Rules| {
            let renamed = rules.into_iter().map(|(name, rule)| (format!("{name}{NO_PROVIDER}").into(), rule));
            let rules: Rules = renamed.collect();
            let check = Check::Local { action: Action::Deny, enforced: Some(rules), dry_run: None };
            has_effect(&check).then_some(check)
        };
        plan.http.extend(denied(http));
        plan.tcp.extend(denied(tcp));
        return;
    };
    let service = &service.service;
    let external = |rules: Rules| {
        let (provider, service) = (provider.clone(), service.clone());
        (!rules.is_empty()).then_some(Check::External { provider, service, rules })
    };
    plan.http.extend(external(http));
    // Envoy asks HTTP services about HTTP requests only.
    if let ExternalSettings::Grpc(_) = service.settings {
        plan.tcp.extend(external(tcp));
    }
}

/// The check of an action; none without effect.
fn local(action: AuthorizationAction, policies: &[&Translation], rules: fn(&Translation) -> &Rules) -> Option<Check> {
    let of = |dry_run: bool| {
        let policies: Vec<&Translation> = policies.iter().filter(|policy| policy.dry_run == dry_run).copied().collect();
        (!policies.is_empty()).then(|| joined(&policies, rules))
    };
    let check = match action {
        AuthorizationAction::Allow => Check::Local { action: Action::Allow, enforced: of(false), dry_run: of(true) },
        AuthorizationAction::Deny => Check::Local { action: Action::Deny, enforced: of(false), dry_run: of(true) },
        // A dry run of what never denies has no effect.
        AuthorizationAction::Audit => Check::Local { action: Action::Audit, enforced: of(false), dry_run: None },
        AuthorizationAction::Custom => return None,
    };
    has_effect(&check).then_some(check)
}

/// Whether a check can make a difference. `ALLOW` without rules denies everything, other actions do nothing.
fn has_effect(check: &Check) -> bool {
    match check {
        Check::Local { action: Action::Allow, enforced, dry_run } => enforced.is_some() || dry_run.is_some(),
        Check::Local { enforced, dry_run, .. } => {
            let some = |rules: &Option<Rules>| rules.as_ref().is_some_and(|rules| !rules.is_empty());
            some(enforced) || some(dry_run)
        }
        Check::External { rules, .. } => !rules.is_empty(),
    }
}

fn joined(policies: &[&Translation], rules: fn(&Translation) -> &Rules) -> Rules {
    let all = policies.iter().flat_map(|policy| rules(policy));
    all.map(|(name, rule): (&Arc<str>, &Arc<Rule>)| (name.clone(), rule.clone())).collect()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    external::register(b);
    b.view::<TrustDomains>();
    b.view::<Translations>();
    b.view::<Plans>();
    grpc::register(b);
}

#[cfg(test)]
mod tests;
