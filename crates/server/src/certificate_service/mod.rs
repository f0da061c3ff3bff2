//! `istio.v1.auth.IstioCertificateService`: workloads get their certificates here.
//!
//! ```text
//! credentials ─► Gate ─► Caller ─► ca::caller::identities ─► names ┐
//! request ─► Csr (public key only) ────────────────────────────────┴─► Queue ─► Authority ─► chain, roots last
//! ```
//!
//! A caller is authenticated before its request is read. The names of the certificate come from the caller; the request
//! contributes its public key. Errors have istiod's codes and messages.

mod counters;
mod queue;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ca::caller::{Caller, CallerError, identities};
use ca::{Authority, Csr, IssueError};
use names::Identity;
use protos::Message as _;
use protos::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use protos::value::Kind as Is;
use xds::Rope;

use crate::authentication::{Credentials, Purpose};
use crate::gate::Gate;
use crate::grpc::{Messages, Status};
use crate::log_limit::LogLimit;
use crate::metrics::Metric;
use crate::pods::PodIndex;
use crate::security::CertificateOptions;
use crate::signing::{self, ExternalError, ExternalIssuer, Issuer, SigningRequest};
use counters::Counters;
use queue::Queue;

/// The method's path.
pub(crate) const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
/// The largest request, in bytes. The certificate signing request in it has a smaller limit.
pub(crate) const MAX_MESSAGE: usize = 48 << 10;
/// The time in which an authenticated caller must send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// The time in which an external issuer must answer.
const EXTERNAL_WITHIN: Duration = Duration::from_secs(60);

/// The service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CertificateService(Arc<Shared>);

struct Shared {
    rules: CertificateOptions,
    signing: signing::Watched,
    pods: PodIndex,
    queue: Queue,
    counters: Counters,
    log: LogLimit,
}

/// A request with its fields checked.
struct Wanted {
    csr: String,
    lifetime: i64,
    impersonated: Option<String>,
    signer: Option<String>,
}

/// A reason for which there is no certificate.
enum Failure {
    Caller(CallerError),
    Issue(IssueError),
    External(ExternalError),
    Busy,
}

impl CertificateService {
    pub(crate) fn new(rules: CertificateOptions, signing: signing::Watched, pods: PodIndex) -> CertificateService {
        let (queue, counters, log) = (Queue::new(), Counters::default(), LogLimit::default());
        CertificateService(Arc::new(Shared { rules, signing, pods, queue, counters, log }))
    }

    /// Returns the metrics of the service.
    pub(crate) fn metrics(&self) -> impl Fn() -> Vec<Metric> + Send + Sync + 'static {
        let shared = self.0.clone();
        move || shared.counters.metrics(&shared.signing.borrow(), SystemTime::now())
    }

    /// Answers one call.
    ///
    /// # Errors
    /// The status for the client.
    pub(crate) async fn create(
        &self,
        gate: &Gate,
        credentials: &Credentials,
        mut messages: Messages,
    ) -> Result<Rope, Status> {
        let Shared { counters, .. } = &*self.0;
        counters.requests.add();
        let Ok(caller) = gate.authenticate(credentials, Purpose::Certificate).await else {
            counters.unauthenticated.add();
            return Err(Status::new(Status::UNAUTHENTICATED, "request authenticate failure"));
        };
        let late = |_| Status::new(Status::DEADLINE_EXCEEDED, format!("no request within {REQUEST_WITHIN:?}"));
        let received = tokio::time::timeout(REQUEST_WITHIN, messages.next()).await.map_err(late)??;
        let (message, _held) = received.ok_or_else(|| Status::new(Status::INVALID_ARGUMENT, "there is no request"))?;
        let request = IstioCertificateRequest::decode(message);
        let wanted = Wanted::of(request.map_err(|error| Status::new(Status::INVALID_ARGUMENT, error.to_string()))?);
        match self.issue(&caller, credentials, wanted).await {
            Ok(cert_chain) => {
                counters.issued.add();
                tracing::debug!(caller = %caller.identity, method = ?caller.method, "issued a certificate");
                let response = IstioCertificateResponse { cert_chain };
                Ok(Rope::from_pieces(vec![response.encode_to_vec().into()]))
            }
            Err(failure) => {
                counters.note(&failure);
                let (status, reason) = failure.status();
                let identity = &caller.identity;
                self.0.log.note(|more| tracing::warn!(caller = %identity, reason, more, "issued no certificate"));
                Err(status)
            }
        }
    }

    async fn issue(&self, caller: &Caller, credentials: &Credentials, wanted: Wanted) -> Result<Vec<String>, Failure> {
        let Shared { rules, signing, pods, .. } = &*self.0;
        let signing = signing.borrow().clone();
        let cluster = Some(credentials.cluster()).filter(|cluster| **cluster != *rules.cluster);
        let pods = pods.of_cluster(cluster.unwrap_or_default());
        let asked = wanted.impersonated.as_deref();
        let identities = identities(caller, asked, &signing.trust, &rules.trusted_accounts, &pods);
        let identities = identities.map_err(Failure::Caller)?;
        if let Some(asked) = asked {
            tracing::debug!(caller = %caller.identity, asked, "a node agent asks for the certificate of a pod");
        }
        match &signing.issuer {
            Issuer::Own(authority) => {
                // Workloads that renew their certificates with them follow a change of the trust domain.
                let own = |identity| if asked.is_some() { identity } else { signing.trust.in_own_domain(identity) };
                let identities = identities.into_iter().map(own).collect();
                self.sign(authority.clone(), identities, wanted, credentials.remote()).await
            }
            Issuer::External(issuer) => self.forward(&**issuer, identities, wanted, credentials.remote()).await,
            Issuer::Unavailable(_) => Err(Failure::Issue(IssueError::NotReady)),
        }
    }

    /// Signs with the control plane's own authority.
    async fn sign(
        &self,
        authority: Authority,
        identities: Vec<Identity>,
        wanted: Wanted,
        client: Option<IpAddr>,
    ) -> Result<Vec<String>, Failure> {
        let limits = self.0.rules.lifetimes;
        let work = move || {
            let csr = Csr::from_pem(&wanted.csr)?;
            let issued = authority.issue(&csr, &identities, wanted.lifetime, &limits, SystemTime::now())?;
            Ok(issued.chain())
        };
        self.0.queue.run(client, work).await.ok_or(Failure::Busy)?.map_err(Failure::Issue)
    }

    /// Lets another authority sign.
    async fn forward(
        &self,
        issuer: &dyn ExternalIssuer,
        identities: Vec<Identity>,
        wanted: Wanted,
        client: Option<IpAddr>,
    ) -> Result<Vec<String>, Failure> {
        let lifetime = self.0.rules.lifetimes.granted(wanted.lifetime).map_err(Failure::Issue)?;
        let csr = wanted.csr.clone();
        let checked = self.0.queue.run(client, move || Csr::from_pem(&csr)).await.ok_or(Failure::Busy)?;
        checked.map_err(|error| Failure::Issue(error.into()))?;
        let _place = self.0.queue.place(client).await.ok_or(Failure::Busy)?;
        let request = SigningRequest { csr: wanted.csr, identities, lifetime, signer: wanted.signer };
        let signed = tokio::time::timeout(EXTERNAL_WITHIN, issuer.sign(&request)).await;
        let late = |_| ExternalError {
            code: ca::Code::Internal,
            message: format!("the external authority did not answer within {EXTERNAL_WITHIN:?}"),
            label: "CERT_GEN_ERROR",
        };
        signed.map_err(late).and_then(|signed| signed).map_err(Failure::External)
    }
}

impl Wanted {
    fn of(request: IstioCertificateRequest) -> Wanted {
        let mut fields = request.metadata.map(|metadata| metadata.fields).unwrap_or_default();
        let mut text = |name: &str| match fields.remove(name)?.kind? {
            Is::StringValue(text) => Some(text).filter(|text| !text.is_empty()),
            _ => None,
        };
        Wanted {
            impersonated: text("ImpersonatedIdentity"),
            signer: text("CertSigner"),
            csr: request.csr,
            lifetime: request.validity_duration,
        }
    }
}

impl Failure {
    /// The status for the client, and the reason for the log.
    fn status(&self) -> (Status, String) {
        let signing = |code: ca::Code, error: &dyn std::fmt::Display| {
            let status = Status::new(code as u32, format!("CSR signing error ({error})"));
            (status, error.to_string())
        };
        match self {
            Failure::Caller(error) => (Status::new(error.code() as u32, error.message()), error.to_string()),
            Failure::Issue(error) => signing(error.code(), error),
            Failure::External(error) => signing(error.code, error),
            Failure::Busy => {
                let text = "too many certificate requests; try again";
                (Status::new(Status::RESOURCE_EXHAUSTED, text), text.to_owned())
            }
        }
    }
}
