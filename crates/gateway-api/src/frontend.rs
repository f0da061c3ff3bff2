//! Verification of client certificates, as `spec.tls.frontend` of a Gateway requires it.
//!
//! It applies to all HTTPS listeners of a port: that of the port, else the default. Clients need a certificate of any CA of the
//! valid references; the others are reported. A listener whose references are all invalid is not served: it could verify
//! nobody.

use std::sync::Arc;

use config::gateway_api::Gateway;
use config::gateway_api::gateway::{FrontendTlsValidation, FrontendValidationMode};
use config::gateway_api::reference::ObjectReference;
use flow::Reads;
use model::kube::ListenerOwner;
use model::service::ObjectId;
use model::tls::Authorities;

use crate::authorities;
use crate::certificates::{CertificateProblem, CertificateReason};
use crate::grants::{self, FromKind, Reference, ToKind};
use crate::plan::{self, ListenerPlan, ListenerProtocol};
use crate::sets::SetPlans;

/// A port of a Gateway.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrontendPort {
    /// The Gateway.
    pub gateway: ObjectId,
    /// The port of listeners.
    pub port: u16,
}

/// The verification of the clients of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientVerification {
    /// The CA certificates in use, as in `caCertCredentialName`. None if no reference is valid.
    pub authorities: Option<Arc<str>>,
    /// Clients without a valid certificate are accepted, too.
    pub insecure: bool,
    /// References that are not used.
    pub problems: Vec<CertificateProblem>,
}

impl ClientVerification {
    /// The resource name of the secret with the CA certificates.
    pub fn secret(&self) -> Option<Arc<str>> {
        match Authorities::of_credential(self.authorities.as_ref()?) {
            Authorities::Served(name) => Some(name),
            Authorities::Agent(_) | Authorities::File(_) => None,
        }
    }
}

flow::rule! {
    /// Verification of the clients of a port; none if the Gateway does not require it.
    pub ClientVerifications: FrontendPort => Arc<ClientVerification> = "verification of clients of gateways", derive_verification;
}

/// Verification of the clients of a listener of a Gateway or of one of its ListenerSets; none if the Gateway does not require
/// it.
pub fn of_listener(cx: &Reads<'_>, owner: &ListenerOwner, listener: &ListenerPlan) -> Option<Arc<ClientVerification>> {
    let of_mesh = listener.termination.as_ref().is_some_and(|termination| termination.is_of_mesh());
    if listener.protocol != ListenerProtocol::Https || of_mesh {
        return None;
    }
    let gateway = match owner {
        ListenerOwner::Gateway(id) => id.clone(),
        ListenerOwner::ListenerSet(id) => cx.with::<SetPlans, _>(id, |plan| plan.map(|plan| plan.gateway.clone()))?,
    };
    let key = FrontendPort { gateway, port: listener.port };
    cx.get::<ClientVerifications>(&key).map(|row| (*row).clone())
}

/// Whether clients without a valid certificate are accepted at a port for which verification is set.
pub(crate) fn is_insecure(gateway: &Gateway) -> bool {
    let frontend = gateway.tls.iter().filter_map(|tls| tls.frontend.as_ref());
    let all = frontend.flat_map(|one| std::iter::once(&one.default).chain(one.per_port.iter().map(|port| &port.tls)));
    all.filter_map(|tls| tls.validation.as_ref()).any(|one| one.mode == FrontendValidationMode::AllowInsecureFallback)
}

fn settings(gateway: &Gateway, port: u16) -> Option<&FrontendTlsValidation> {
    let frontend = gateway.tls.as_ref()?.frontend.as_ref()?;
    let own = frontend.per_port.iter().find(|one| one.port == port);
    own.map_or(&frontend.default, |own| &own.tls).validation.as_ref()
}

fn derive_verification(cx: &Reads<'_>, key: &FrontendPort) -> Option<Arc<ClientVerification>> {
    let object = plan::object(cx, &key.gateway)?;
    let validation = settings(&object.spec, key.port)?;
    let mut problems = Vec::new();
    let mut names: Vec<Arc<str>> = Vec::new();
    for reference in &validation.ca_certificate_refs {
        match checked(cx, &key.gateway, reference) {
            Ok((name, problem)) => {
                problems.extend(problem);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    Some(Arc::new(ClientVerification {
        authorities: authorities::joined(&names),
        insecure: validation.mode == FrontendValidationMode::AllowInsecureFallback,
        problems,
    }))
}

/// The CA certificates that a reference means, as in `caCertCredentialName`, with the problem of the object as it is. One that
/// became invalid stays in use as it was.
fn checked(
    cx: &Reads<'_>,
    gateway: &ObjectId,
    reference: &ObjectReference,
) -> Result<(Arc<str>, Option<CertificateProblem>), CertificateProblem> {
    let to = match (&*reference.group, &*reference.kind) {
        ("", "ConfigMap") => ToKind::ConfigMap,
        ("", "Secret") => ToKind::Secret,
        (group, kind) => {
            let message = format!(
                "caCertificateRef {}: group {group:?} kind {kind:?} is not supported; use a ConfigMap or a Secret",
                reference.name
            );
            return Err(CertificateProblem {
                reason: CertificateReason::InvalidCaCertificateKind,
                message: message.into(),
            });
        }
    };
    let target = target(gateway, reference);
    let asked = Reference { from: FromKind::Gateway, namespace: gateway.namespace.clone(), to, target: target.clone() };
    // The grant is asked for first, so that nobody learns what exists elsewhere.
    if !grants::is_allowed(cx, &asked) {
        let message = format!(
            "caCertificateRef {}/{} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            target.name, target.namespace, gateway.namespace
        );
        return Err(CertificateProblem { reason: CertificateReason::RefNotPermitted, message: message.into() });
    }
    let refuse = |why: String| invalid(gateway, reference, &why);
    let found = authorities::find(cx, to, &target).map_err(refuse)?;
    Ok((found.name, found.flaw.map(refuse)))
}

fn target(gateway: &ObjectId, reference: &ObjectReference) -> ObjectId {
    let namespace = reference.namespace.as_ref().unwrap_or(&gateway.namespace);
    ObjectId { namespace: namespace.clone(), name: reference.name.clone() }
}

fn invalid(gateway: &ObjectId, reference: &ObjectReference, why: &str) -> CertificateProblem {
    let ObjectId { namespace, name } = target(gateway, reference);
    let message = format!("invalid CA certificate reference {name}/{namespace}, {why}");
    CertificateProblem { reason: CertificateReason::InvalidCaCertificateRef, message: message.into() }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ClientVerifications>();
}
