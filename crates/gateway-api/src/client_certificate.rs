//! Certificates that the proxies of Gateways present to backends with a BackendTLSPolicy (`spec.tls.backend` of a Gateway).
//!
//! All Gateways of a proxy share its clusters. If several have a certificate, proxies present that of the oldest.

use std::sync::Arc;

use flow::Reads;
use model::kube::ListenerOwner;
use model::service::ObjectId;

use crate::certificates::{self, CertificateProblem, CertificateReason};
use crate::plan;

/// The certificate of a Gateway for backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// The resource name of its secret; none if it cannot be used. Backends that require one then refuse connections.
    pub name: Option<Arc<str>>,
    /// Why the reference, or the Secret as it is, cannot be used.
    pub problem: Option<CertificateProblem>,
}

flow::rule! {
    /// Certificates of Gateways for backends; none if the Gateway refers to none.
    pub ClientCertificates: ObjectId => Arc<ClientCertificate> = "client certificates of gateways", derive_certificate;
}

fn derive_certificate(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<ClientCertificate>> {
    let gateway = plan::object(cx, id)?;
    let reference = gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()?;
    let found = certificates::certificate(cx, &ListenerOwner::Gateway(id.clone()), reference);
    let problem = found.problem.map(|problem| match problem.reason {
        CertificateReason::InvalidCertificateRef => {
            CertificateProblem { reason: CertificateReason::InvalidClientCertificateRef, ..problem }
        }
        _ => problem,
    });
    Some(Arc::new(ClientCertificate { name: found.name, problem }))
}

/// The certificate that a proxy presents for these Gateways, the oldest first; the resource name of its secret.
pub fn presented(cx: &Reads<'_>, gateways: &[ObjectId]) -> Option<Arc<str>> {
    gateways.iter().find_map(|id| cx.get::<ClientCertificates>(id)?.name.clone())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ClientCertificates>();
}
