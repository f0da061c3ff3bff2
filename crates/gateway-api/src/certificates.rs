//! Certificates of listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::core::Content;
use config::gateway_api::reference::SecretObjectReference;
use flow::Reads;
use model::kube::{ListenerId, ListenerOwner};
use model::service::ObjectId;
use model::tls::{self, AUTHORITIES_SUFFIX, GATEWAY_SECRET};
use registry::inputs::{CredentialKey, CredentialObject, Credentials};

use crate::client_certificate::ClientCertificates;
use crate::frontend;
use crate::grants::{self, FromKind, Reference, ToKind};
use crate::merged::{self, GatewayPlans};
use crate::plan;

/// The references of a listener to certificates, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateReport {
    /// The number of references that can be used.
    pub usable: usize,
    /// The problems of the others.
    pub problems: Vec<CertificateProblem>,
}

/// Why a certificate cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateProblem {
    /// The reason, as in conditions.
    pub reason: CertificateReason,
    /// The message.
    pub message: Arc<str>,
}

/// Reasons of [`CertificateProblem`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateReason {
    /// No ReferenceGrant allows it.
    RefNotPermitted,
    /// It is no Secret, does not exist, or has no valid certificate.
    InvalidCertificateRef,
    /// It is no object with CA certificates.
    InvalidCaCertificateRef,
    /// CA certificates cannot be in an object of this kind.
    InvalidCaCertificateKind,
    /// It is no Secret with a certificate for backends.
    InvalidClientCertificateRef,
}

impl CertificateReason {
    /// The reason as in conditions.
    pub fn name(self) -> &'static str {
        match self {
            CertificateReason::RefNotPermitted => "RefNotPermitted",
            CertificateReason::InvalidCertificateRef => "InvalidCertificateRef",
            CertificateReason::InvalidCaCertificateRef => "InvalidCACertificateRef",
            CertificateReason::InvalidCaCertificateKind => "InvalidCACertificateKind",
            CertificateReason::InvalidClientCertificateRef => "InvalidClientCertificateRef",
        }
    }
}

flow::rule! {
    /// The certificates that a listener refers to and may use: the resource names of their secrets. The row does not change
    /// if only the content of a Secret does.
    pub ListenerCertificates: ListenerId => Arc<[Arc<str>]> = "certificates of listeners", derive_certificates;
    /// The references of a listener that terminates TLS to certificates, checked. None if it uses that of the workload.
    pub CertificateProblems: ListenerId => Arc<CertificateReport> = "checked certificates of listeners", derive_problems;
    /// The resource names of the secrets that the proxies of a Gateway may have.
    pub PermittedCredentials: ObjectId => BTreeSet<Arc<str>> = "credentials of gateways of the gateway api", derive_permitted;
}

fn derive_certificates(cx: &Reads<'_>, key: &ListenerId) -> Option<Arc<[Arc<str>]>> {
    let listener = plan::spec(cx, key)?;
    let references = listener.tls.iter().flat_map(|tls| &tls.certificate_refs);
    Some(references.filter_map(|reference| certificate(cx, &key.owner, reference).name).collect())
}

fn derive_problems(cx: &Reads<'_>, key: &ListenerId) -> Option<Arc<CertificateReport>> {
    let listener = plan::spec(cx, key)?;
    let plans = merged::own_listeners(cx, &key.owner)?;
    let listener_plan = plans.iter().find(|one| one.name == key.name)?;
    let termination = listener_plan.termination.as_ref()?;
    if termination.is_of_mesh() {
        return None;
    }
    let mut report = CertificateReport { usable: 0, problems: Vec::new() };
    let mut first = None;
    for reference in listener.tls.iter().flat_map(|tls| &tls.certificate_refs) {
        let found = certificate(cx, &key.owner, reference);
        if found.name.is_some() {
            report.usable += 1;
            first.get_or_insert(reference);
        }
        report.problems.extend(found.problem);
    }
    // CA certificates of the Gateway take their place.
    let beside = termination.verifies_clients() && frontend::of_listener(cx, &key.owner, listener_plan).is_none();
    if let Some(reference) = first.filter(|reference| beside && !has_roots(cx, key.owner.id(), reference)) {
        let namespace = reference.namespace.as_ref().unwrap_or(&key.owner.id().namespace);
        let name = &reference.name;
        let why = "there are no CA certificates that verify clients (ca.crt)";
        let message = format!("invalid certificate reference {name}/{namespace}, {why}").into();
        report.problems.push(CertificateProblem { reason: CertificateReason::InvalidCertificateRef, message });
        report.usable = 0;
    }
    Some(Arc::new(report))
}

/// Whether there are CA certificates beside a certificate: in a Secret of its own, or in the same one.
fn has_roots(cx: &Reads<'_>, owner: &ObjectId, reference: &SecretObjectReference) -> bool {
    let namespace = reference.namespace.as_ref().unwrap_or(&owner.namespace);
    [format!("{}{AUTHORITIES_SUFFIX}", reference.name).into(), reference.name.clone()].into_iter().any(|name| {
        let id = ObjectId { namespace: namespace.clone(), name };
        let key = CredentialKey { config_map: false, cluster: Arc::default(), id };
        let in_use = |object: &CredentialObject| object.roots().and_then(Content::in_use).is_some();
        cx.with::<Credentials, _>(&key, |object| object.is_some_and(in_use))
    })
}

/// A reference to a certificate, resolved.
pub(crate) struct Resolved {
    /// The resource name of the certificate in use.
    pub(crate) name: Option<Arc<str>>,
    /// Why the Secret as it is cannot be used. One that became invalid stays in use as it was.
    pub(crate) problem: Option<CertificateProblem>,
}

/// Resolves a reference. The grant is asked for first, so that nobody learns what exists elsewhere.
pub(crate) fn certificate(cx: &Reads<'_>, owner: &ListenerOwner, reference: &SecretObjectReference) -> Resolved {
    let own = &owner.id().namespace;
    let namespace = reference.namespace.as_ref().unwrap_or(own);
    let refuse = |reason, message: String| {
        let problem = CertificateProblem { reason, message: message.into() };
        Resolved { name: None, problem: Some(problem) }
    };
    let invalid = |why: String| {
        let message = format!("invalid certificate reference {}/{namespace}, {why}", reference.name);
        refuse(CertificateReason::InvalidCertificateRef, message)
    };
    if !reference.group.is_empty() || &*reference.kind != "Secret" {
        return invalid("only secret is allowed".to_owned());
    }
    let target = ObjectId { namespace: namespace.clone(), name: reference.name.clone() };
    let from = match owner {
        ListenerOwner::Gateway(_) => FromKind::Gateway,
        ListenerOwner::ListenerSet(_) => FromKind::ListenerSet,
    };
    let asked = Reference { from, namespace: own.clone(), to: ToKind::Secret, target: target.clone() };
    if !grants::is_allowed(cx, &asked) {
        let message = format!(
            "certificateRef {}/{namespace} not accessible to a {} in namespace {own:?} (missing a ReferenceGrant?)",
            reference.name,
            owner.kind()
        );
        return refuse(CertificateReason::RefNotPermitted, message);
    }
    let name: Arc<str> = format!("{GATEWAY_SECRET}{target}").into();
    let key = CredentialKey { config_map: false, cluster: Arc::default(), id: target.clone() };
    cx.with::<Credentials, _>(&key, |object| {
        let Some(object) = object else { return invalid(format!("secret {target} not found")) };
        let Some(pair) = object.pair() else {
            return invalid("the certificate is malformed: there is no tls.crt with a tls.key".to_owned());
        };
        let problem = pair
            .flaw()
            .and_then(|flaw| invalid(format!("the certificate is malformed: {}: {}", flaw.key, flaw.message)).problem);
        Resolved { name: pair.in_use().map(|_| name), problem }
    })
}

fn derive_permitted(cx: &Reads<'_>, gateway: &ObjectId) -> Option<BTreeSet<Arc<str>>> {
    let plan = cx.get::<GatewayPlans>(gateway)?;
    let mut names = BTreeSet::new();
    names.extend(cx.get::<ClientCertificates>(gateway).and_then(|row| row.name.clone()));
    for (owner, listener) in plan.listeners() {
        let Some(termination) = &listener.termination else { continue };
        let id = ListenerId { owner: owner.clone(), name: listener.name.clone() };
        let roots = frontend::of_listener(cx, owner, listener).and_then(|verification| verification.secret());
        names.extend(roots.iter().flat_map(|name| tls::parts(name)).map(Arc::<str>::from));
        for name in cx.get::<ListenerCertificates>(&id).iter().flat_map(|served| served.iter()) {
            if termination.verifies_clients() {
                names.insert(format!("{name}{AUTHORITIES_SUFFIX}").into());
            }
            names.insert(name.clone());
        }
    }
    Some(names)
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ListenerCertificates>();
    b.view::<CertificateProblems>();
    b.view::<PermittedCredentials>();
}
