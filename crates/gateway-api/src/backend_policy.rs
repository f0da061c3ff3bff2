//! Policies for connections to backends: BackendTLSPolicy and XBackendTrafficPolicy.
//!
//! They apply to the ports of a Service or ServiceEntry of their own namespace, for all clients: gateways, sidecars and gRPC
//! clients. A DestinationRule that sets the same wins. Of several policies for one port, one that names the port wins over one
//! for all ports, then the oldest.

use std::cmp::Ordering;
use std::sync::Arc;

use config::Object;
use config::gateway_api::backend_policy::{BackendTlsValidation, RetryConstraint, SubjectAltName, SubjectAltNameType};
use config::gateway_api::reference::LocalObjectReference;
use config::gateway_api::{BackendTlsPolicy, BackendTrafficPolicy};
use config::istio::{ClientTlsMode, ClientTlsSettings, RetryBudget};
use flow::Reads;
use model::service::{ObjectId, Registry, Service, ServiceKey};
use model::session::Session;
use registry::Services;
use registry::inputs::{BackendTlsPolicies, BackendTrafficPolicies};

use crate::authorities;
use crate::grants::ToKind;

/// An object that a policy targets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PolicyTargetKey {
    /// Whether it is a `ServiceEntry`; else a `Service`.
    pub entry: bool,
    /// The object. Its namespace is that of the policy.
    pub id: ObjectId,
}

/// A port of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServicePortKey {
    /// The service.
    pub service: ServiceKey,
    /// The number of its port.
    pub port: u16,
}

/// The settings of policies for connections to a port.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BackendPolicy {
    /// TLS, or none.
    pub tls: Option<BackendTls>,
    /// The limit for retries.
    pub retry_budget: Option<RetryBudget>,
}

/// TLS to a backend.
#[derive(Clone, PartialEq, Debug)]
pub enum BackendTls {
    /// These settings.
    Settings(ClientTlsSettings),
    /// No certificate can be verified. Connections must fail.
    Unusable,
}

/// Why a policy has no CA certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthorityProblem {
    /// A reference to a kind that is not supported.
    InvalidKind(Arc<str>),
    /// A ConfigMap is missing, or has no CA certificates.
    InvalidReference(Arc<str>),
    /// A set of well-known certificates that is not supported.
    UnknownSet(Arc<str>),
}

flow::index! {
    /// BackendTLSPolicies by target.
    pub TlsPoliciesByTarget: PolicyTargetKey => members of BackendTlsPolicies = "backend tls policies by target", tls_policies_by_target_keys;
    /// XBackendTrafficPolicies by target.
    pub TrafficPoliciesByTarget: PolicyTargetKey => members of BackendTrafficPolicies = "backend traffic policies by target", traffic_policies_by_target_keys;
}

flow::rule! {
    /// The settings of policies for a port; none if they set nothing.
    pub BackendPolicies: ServicePortKey => Arc<BackendPolicy> = "backend policies", derive_policy;
}

fn tls_policies_by_target_keys(id: &ObjectId, policy: &Arc<Object<BackendTlsPolicy>>) -> Vec<PolicyTargetKey> {
    let targets = policy.spec.target_refs.iter();
    targets.filter_map(|one| target(&id.namespace, (&one.group, &one.kind), &one.name)).collect()
}

fn traffic_policies_by_target_keys(id: &ObjectId, policy: &Arc<Object<BackendTrafficPolicy>>) -> Vec<PolicyTargetKey> {
    let targets = policy.spec.target_refs.iter();
    targets.filter_map(|one| target(&id.namespace, (&one.group, &one.kind), &one.name)).collect()
}

/// The object that a policy of this namespace targets; none of another kind.
pub(crate) fn target(namespace: &Arc<str>, kind: (&str, &str), name: &Arc<str>) -> Option<PolicyTargetKey> {
    let entry = match kind {
        ("", "Service") => false,
        ("networking.istio.io", "ServiceEntry") => true,
        _ => return None,
    };
    Some(PolicyTargetKey { entry, id: ObjectId { namespace: namespace.clone(), name: name.clone() } })
}

fn derive_policy(cx: &Reads<'_>, key: &ServicePortKey) -> Option<Arc<BackendPolicy>> {
    let service = cx.get::<Services>(&key.service)?;
    let target = target_of(&service)?;
    let tls = tls_in_effect(cx, &target, &service.port(key.port)?.name);
    let policy = BackendPolicy {
        tls: tls.map(|object| settings(cx, &object)),
        retry_budget: retries_in_effect(cx, &target).map(|constraint| budget(&constraint)),
    };
    (policy != BackendPolicy::default()).then(|| Arc::new(policy))
}

/// The object that policies for a service target.
pub(crate) fn target_of(service: &Service) -> Option<PolicyTargetKey> {
    let entry = match service.registry {
        Registry::Kubernetes => false,
        Registry::ServiceEntry => true,
        _ => return None,
    };
    Some(PolicyTargetKey { entry, id: service.object.clone() })
}

/// The BackendTLSPolicy in effect for a port of a target.
pub(crate) fn tls_in_effect(
    cx: &Reads<'_>,
    target: &PolicyTargetKey,
    port: &str,
) -> Option<Arc<Object<BackendTlsPolicy>>> {
    let members = cx.get::<TlsPoliciesByTarget>(target)?;
    let mut best: Option<(bool, Arc<Object<BackendTlsPolicy>>)> = None;
    for id in members.iter() {
        let Some(object) = cx.get::<BackendTlsPolicies>(id).map(|row| (*row).clone()) else { continue };
        let Some(names_port) = names_port(&object, target, port) else { continue };
        let better = best.as_ref().is_none_or(|(other_names, other)| match names_port.cmp(other_names) {
            Ordering::Equal => object.meta.by_age(&other.meta).is_lt(),
            order => order == Ordering::Greater,
        });
        if better {
            best = Some((names_port, object));
        }
    }
    best.map(|(_, object)| object)
}

/// Whether a policy names this port of a target (true), or all of its ports; none if it does not apply to the port.
fn names_port(policy: &Object<BackendTlsPolicy>, of: &PolicyTargetKey, port: &str) -> Option<bool> {
    let targets = policy.spec.target_refs.iter();
    let own = targets
        .filter(|one| target(&of.id.namespace, (&one.group, &one.kind), &one.name).is_some_and(|key| key == *of));
    own.filter_map(|one| match one.section_name.as_deref() {
        None | Some("") => Some(false),
        Some(section) => (section == port).then_some(true),
    })
    .max()
}

/// The settings of a policy.
fn settings(cx: &Reads<'_>, policy: &Object<BackendTlsPolicy>) -> BackendTls {
    let validation = &policy.spec.validation;
    let Ok(authorities) = Checked::of(cx, &policy.meta.namespace, validation).authorities else {
        return BackendTls::Unusable;
    };
    let names: Vec<Arc<str>> = match validation.subject_alt_names.as_slice() {
        [] => vec![validation.hostname.clone()],
        names => names.iter().filter_map(name).collect(),
    };
    let mut settings = ClientTlsSettings {
        mode: ClientTlsMode::Simple,
        sni: validation.hostname.clone(),
        subject_alt_names: names,
        ..ClientTlsSettings::default()
    };
    match authorities {
        Authorities::System => settings.ca_certificates = "system".into(),
        Authorities::Objects(name) => settings.credential_name = name,
    }
    BackendTls::Settings(settings)
}

/// The CA certificates of a policy.
pub(crate) enum Authorities {
    /// The CA certificates of the operating system.
    System,
    /// Certificates in ConfigMaps: the name of their secret.
    Objects(Arc<str>),
}

/// The CA certificates that a policy asks for, checked.
pub(crate) struct Checked {
    /// The valid ones, or the problem of the first reference.
    pub(crate) authorities: Result<Authorities, AuthorityProblem>,
    /// The problems of references.
    pub(crate) problems: Vec<AuthorityProblem>,
}

impl Checked {
    pub(crate) fn of(cx: &Reads<'_>, namespace: &Arc<str>, validation: &BackendTlsValidation) -> Checked {
        match validation.well_known_ca_certificates.as_deref() {
            Some("System") => return Checked { authorities: Ok(Authorities::System), problems: Vec::new() },
            Some(other) if !other.is_empty() => {
                let message = format!("the set {other:?} of well-known CA certificates is not supported; use System");
                return Checked {
                    authorities: Err(AuthorityProblem::UnknownSet(message.into())),
                    problems: Vec::new(),
                };
            }
            _ => {}
        }
        let (mut names, mut problems) = (Vec::new(), Vec::new());
        for reference in &validation.ca_certificate_refs {
            match authority(cx, namespace, reference) {
                Ok(name) if names.contains(&name) => {}
                Ok(name) => names.push(name),
                Err(problem) => problems.push(problem),
            }
        }
        let none = || AuthorityProblem::InvalidReference("no CA certificates are set".into());
        let valid = authorities::joined(&names).map(Authorities::Objects);
        Checked { authorities: valid.ok_or_else(|| problems.first().cloned().unwrap_or_else(none)), problems }
    }
}

/// The ConfigMap that a reference means, if it has CA certificates.
fn authority(
    cx: &Reads<'_>,
    namespace: &Arc<str>,
    reference: &LocalObjectReference,
) -> Result<Arc<str>, AuthorityProblem> {
    if !reference.group.is_empty() || &*reference.kind != "ConfigMap" {
        let message = format!("caCertificateRef of kind {:?} is not supported; use a ConfigMap", reference.kind);
        return Err(AuthorityProblem::InvalidKind(message.into()));
    }
    let id = ObjectId { namespace: namespace.clone(), name: reference.name.clone() };
    let found = authorities::find(cx, ToKind::ConfigMap, &id);
    found.map(|found| found.name).map_err(|why| {
        AuthorityProblem::InvalidReference(format!("invalid CA certificate reference {}, {why}", reference.name).into())
    })
}

/// A name that the certificate may have.
fn name(name: &SubjectAltName) -> Option<Arc<str>> {
    match name.kind {
        SubjectAltNameType::Hostname => name.hostname.clone(),
        SubjectAltNameType::Uri => name.uri.clone(),
    }
}

/// The limit for retries of the policy in effect.
fn retries_in_effect(cx: &Reads<'_>, target: &PolicyTargetKey) -> Option<RetryConstraint> {
    traffic_in_effect(cx, target, |policy| policy.retry_constraint.is_some())?.spec.retry_constraint.clone()
}

/// The session affinity that a policy sets for a service.
pub fn session(cx: &Reads<'_>, service: &Service) -> Option<Session> {
    let target = target_of(service)?;
    let policy = traffic_in_effect(cx, &target, |policy| policy.session_persistence.is_some())?;
    let settings = policy.spec.session_persistence.as_ref()?;
    let owner =
        format!("XBackendTrafficPolicy/{}/{}/{}", policy.meta.namespace, policy.meta.name, service.key.hostname);
    Some(Session::of(settings, &owner))
}

/// The oldest policy for a target that sets something.
fn traffic_in_effect(
    cx: &Reads<'_>,
    target: &PolicyTargetKey,
    sets: impl Fn(&BackendTrafficPolicy) -> bool,
) -> Option<Arc<Object<BackendTrafficPolicy>>> {
    let members = cx.get::<TrafficPoliciesByTarget>(target)?;
    let mut best: Option<Arc<Object<BackendTrafficPolicy>>> = None;
    for id in members.iter() {
        let Some(object) = cx.get::<BackendTrafficPolicies>(id).map(|row| (*row).clone()) else { continue };
        if sets(&object.spec) && best.as_ref().is_none_or(|other| object.meta.by_age(&other.meta).is_lt()) {
            best = Some(object);
        }
    }
    best
}

/// The budget, as in a DestinationRule. Envoy limits concurrent retries rather than their rate: the rate that is always allowed
/// becomes the number of concurrent retries that is, as in Istio.
fn budget(constraint: &RetryConstraint) -> RetryBudget {
    RetryBudget {
        percent: Some(constraint.budget.percent.into()),
        min_retry_concurrency: constraint.min_retry_rate.count.unwrap_or_default(),
        budget_interval: Some(constraint.budget.interval.get()),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<TlsPoliciesByTarget>();
    b.index::<TrafficPoliciesByTarget>();
    b.view::<BackendPolicies>();
}
