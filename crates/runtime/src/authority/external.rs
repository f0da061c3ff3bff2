//! The registration authority: signers of Kubernetes' CertificateSigningRequests issue the certificates
//! (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`).
//!
//! For each request of a workload, a CertificateSigningRequest is created, approved, polled and deleted. Names and key of the
//! certificate are checked on both sides ([`ca::registration`]).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::keeper;
use ca::registration::{Answer, RegistrationError, check_answer, check_request, signer};
use ca::{Authority, Certificate};
use config::MeshConfig;
use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use server::signing::{ExternalError, ExternalIssuer, SigningRequest};
use settings::Settings;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::trust::signer_roots;
use crate::kubernetes::answer::{ask, message};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The time for a signer to answer, as with istiod.
const ANSWER: Duration = Duration::from_secs(60);
/// The timeout of a single request to the API server.
const REQUEST: Duration = Duration::from_secs(15);
/// The first and the longest interval of polls.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most requests at a time. Others wait, and their clients time out.
const AT_ONCE: usize = 64;
/// The shortest lifetime that the API server accepts.
const SHORTEST: Duration = Duration::from_secs(600);
/// The most roots that are learned from answers.
const MOST_LEARNED: usize = 8;
/// The path at which an operator mounts the root of the signer, as with istiod.
const ROOT: &str = "./etc/external-ca-cert/root-cert.pem";
/// The root of the cluster, which istiod takes if there is neither that file nor a domain of signers.
const CLUSTER_ROOT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Asks signers of the cluster.
pub(super) struct KubernetesSigner {
    client: Client,
    domain: String,
    default: String,
    file_roots: Vec<Certificate>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    learned: watch::Sender<Vec<Certificate>>,
    own: watch::Receiver<Option<keeper::Issuer>>,
    places: Semaphore,
}

impl KubernetesSigner {
    /// Reads the settings and the file with the signer's root. `own` issues the certificates of the control plane's ports.
    ///
    /// # Errors
    /// The file is invalid.
    pub(super) fn new(
        client: Client,
        settings: &Settings,
        mesh: watch::Receiver<Arc<MeshConfig>>,
        own: watch::Receiver<Option<keeper::Issuer>>,
    ) -> anyhow::Result<KubernetesSigner> {
        let domain = settings.cert_signer_domain.as_str().to_owned();
        let cluster_root = domain.is_empty().then_some(CLUSTER_ROOT);
        let file = [Some(ROOT), cluster_root].into_iter().flatten().map(Path::new).find(|file| file.exists());
        let file_roots = match file {
            None => Vec::new(),
            Some(file) => {
                let read = || Ok::<_, anyhow::Error>(Certificate::list(&std::fs::read(file)?)?);
                read().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?
            }
        };
        let default = settings.k8s_signer.as_str().to_owned();
        let (learned, places) = (watch::Sender::default(), Semaphore::new(AT_ONCE));
        Ok(KubernetesSigner { client, domain, default, file_roots, mesh, learned, own, places })
    }

    /// The roots in the file.
    pub(super) fn file_roots(&self) -> &[Certificate] {
        &self.file_roots
    }

    /// The roots that signers returned.
    pub(super) fn learned(&self) -> watch::Receiver<Vec<Certificate>> {
        self.learned.subscribe()
    }

    async fn issue(&self, request: &SigningRequest) -> Result<Answer, RegistrationError> {
        let wrong = |text: &str| RegistrationError::Signer(text.to_owned());
        let caller = request.identities.first().filter(|_| request.identities.len() == 1);
        let caller = caller.ok_or_else(|| wrong("a certificate of another signer can have one identity only"))?;
        let signer = signer(&self.domain, &self.default, request.signer.as_deref().unwrap_or_default())?;
        let csr = check_request(&request.csr, caller)?;
        let _place = self.places.acquire().await;
        let pem = self.signed(&request.csr, &signer, request.lifetime).await;
        let pem = pem.map_err(|reason| RegistrationError::Failed { signer: signer.clone(), reason: reason.0 })?;
        let mut configured = signer_roots(&self.mesh.borrow(), &signer);
        if configured.is_empty() {
            configured.clone_from(&self.file_roots);
        }
        let answer = check_answer(&pem, &csr, caller, (&signer, &configured), SystemTime::now())?;
        if configured.is_empty() {
            self.learn(&answer.roots);
        }
        Ok(answer)
    }

    /// Remembers the roots of an answer, so that clients with such certificates are authenticated.
    fn learn(&self, roots: &[Certificate]) {
        self.learned.send_if_modified(|known| {
            let new: Vec<_> = roots.iter().filter(|root| !known.contains(root)).cloned().collect();
            known.extend(new.iter().take(MOST_LEARNED.saturating_sub(known.len())).cloned());
            !new.is_empty()
        });
    }

    /// Creates, approves, polls and deletes a CertificateSigningRequest. Returns the certificates in PEM.
    async fn signed(&self, csr: &str, signer: &str, lifetime: Duration) -> Result<Vec<u8>, Failure> {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-workload-"},
            "spec": {
                "request": STANDARD.encode(csr),
                "signerName": signer,
                "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
                "expirationSeconds": lifetime.max(SHORTEST).as_secs(),
            },
        });
        let mut created = self.call(Method::POST, REQUESTS, Some(&object)).await?;
        let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // Deleted even if the client of this request disconnects.
        let _deletion = Deletion { client: self.client.clone(), path: format!("{REQUESTS}/{name}") };
        let now = config::Timestamp::from_unix(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
        );
        created["status"]["conditions"] = json!([{
            "type": "Approved",
            "status": "True",
            "reason": "IdentityChecked",
            "message": "the workload has the identity that it asks for",
            "lastUpdateTime": now.to_string(),
        }]);
        self.call(Method::PUT, &format!("{REQUESTS}/{name}/approval"), Some(&created)).await?;
        let (end, mut wait) = (Instant::now() + ANSWER, POLL.0);
        loop {
            let found = self.call(Method::GET, &format!("{REQUESTS}/{name}"), None).await?;
            let status = &found["status"];
            if let Some(text) = status["certificate"].as_str().filter(|text| !text.is_empty()) {
                return STANDARD.decode(text).map_err(|_| Failure("its certificate is not valid base64".to_owned()));
            }
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            if let Some(refusal) = conditions.find(|one| one["type"] == "Failed" || one["type"] == "Denied") {
                return Err(Failure(refusal["message"].as_str().unwrap_or("it refused").chars().take(300).collect()));
            }
            if Instant::now() + wait > end {
                return Err(Failure(format!(
                    "there was no certificate after {} seconds; check that the signer runs",
                    ANSWER.as_secs()
                )));
            }
            sleep(wait).await;
            wait = (wait * 2).min(POLL.1);
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        call(&self.client, method, path, body).await
    }
}

/// The API server or the signer failed.
struct Failure(String);

async fn call(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    match timeout(REQUEST, ask(client, request.body(Body::from(bytes)))).await {
        Err(_) => Err(Failure("the API server does not answer".to_owned())),
        Ok(Err(outcome)) => Err(Failure(format!("{outcome:?}"))),
        Ok(Ok((status, answer))) if status.is_success() => Ok(answer),
        Ok(Ok((status, answer))) => Err(Failure(match status {
            StatusCode::FORBIDDEN => format!("{}; grant it with the values of the chart", message(&answer)),
            status => format!("{status}: {}", message(&answer)),
        })),
    }
}

/// Deletes a CertificateSigningRequest when dropped.
struct Deletion {
    client: Client,
    path: String,
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let (client, path) = (self.client.clone(), std::mem::take(&mut self.path));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // Kubernetes removes old ones, too.
            if let Err(Failure(reason)) = call(&client, Method::DELETE, &path, None).await {
                tracing::debug!(path, reason, "cannot delete a CertificateSigningRequest");
            }
        });
    }
}

#[async_trait]
impl ExternalIssuer for KubernetesSigner {
    async fn sign(&self, request: &SigningRequest) -> Result<Vec<String>, ExternalError> {
        let answer = self.issue(request).await.map_err(|error| {
            tracing::warn!(identity = ?request.identities, %error, "a certificate signing request was not answered");
            ExternalError { code: error.code(), message: error.to_string(), label: error.label() }
        })?;
        Ok(answer.cert_chain())
    }

    fn own_authority(&self) -> Option<Authority> {
        match &*self.own.borrow() {
            Some(keeper::Issuer::Own(authority)) => Some(authority.clone()),
            _ => None,
        }
    }
}
