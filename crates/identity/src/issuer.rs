//! Requests the workload's certificate, and renews it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_core::upstream::{ClientCertificate, JOIN_TOKEN, Upstream, UpstreamError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::authority::{self, RequestError, Wish};
use crate::key::{KeyError, NewKey};
use crate::metrics::Metrics;
use crate::secret::{Entry, Pair};
use crate::settings::Settings;
use crate::{output, pem, rotation};

/// The longest sleep. The clock of timers stands still while a machine is suspended, that of certificates does not.
const MAX_SLEEP: Duration = Duration::from_mins(5);

/// The newest certificate, and the roots of the certificate authority.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Issued {
    pub(crate) pair: Entry<Pair>,
    pub(crate) roots: Entry<Arc<str>>,
}

/// A certificate was not issued.
#[derive(thiserror::Error, Debug)]
pub(crate) enum IssueError {
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A join token was used, or refused, and there is no other proof.
    #[error(
        "the join token in the token file was already sent; create a new one with `rutter token create`, and write it to the file"
    )]
    SpentToken,
    /// A join token would be lost after a restart.
    #[error(
        "the token file has a join token, which is valid once; set OUTPUT_CERTS to a folder for the certificate that replaces it"
    )]
    NoOutput,
}

/// The way in which a request proves who the agent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    /// The token of the file, together with the provisioned certificate if there is one.
    Token,
    /// A join token.
    JoinToken,
    /// The certificate that was issued before.
    Certificate,
}

/// The facts on which the choice of a proof depends.
#[derive(Clone, Copy, Default, Debug)]
struct Facts {
    /// There is a token that can be used again and again.
    token: bool,
    /// There is a join token that was never sent.
    join_token: bool,
    /// There is a certificate that was issued before and has not expired.
    certificate: bool,
    /// The last request with this certificate failed.
    certificate_failed: bool,
}

/// Chooses a proof. A certificate is preferred to a join token, which is tried after the certificate failed.
fn choose(facts: Facts) -> Option<Proof> {
    match facts {
        Facts { token: true, .. } => Some(Proof::Token),
        Facts { join_token: true, certificate: false, .. }
        | Facts { join_token: true, certificate_failed: true, .. } => Some(Proof::JoinToken),
        Facts { certificate: true, .. } => Some(Proof::Certificate),
        _ => None,
    }
}

/// Requests and renews certificates.
pub(crate) struct Issuer {
    settings: Arc<Settings>,
    metrics: Metrics,
    issued: watch::Sender<Issued>,
    certificate_failed: bool,
    /// The fingerprint of the join token that was used or refused.
    spent: Option<String>,
}

impl Issuer {
    pub(crate) fn new(settings: Arc<Settings>, metrics: Metrics, issued: watch::Sender<Issued>) -> Issuer {
        let spent = settings.output.as_deref().and_then(|folder| {
            output::recover(folder);
            output::used_token(folder)
        });
        Issuer { settings, metrics, issued, certificate_failed: false, spent }
    }

    /// Requests a certificate and renews it, forever.
    pub(crate) async fn run(mut self) {
        let mut failures = 0;
        loop {
            let begin = SystemTime::now();
            let next = match self.issue().await {
                Ok((pair, roots)) => {
                    failures = 0;
                    let (now, Settings { grace, jitter, .. }) = (SystemTime::now(), &*self.settings);
                    let next = rotation::renewal(now, pair.expires, *grace, *jitter, rotation::random());
                    tracing::info!(
                        took = ?now.duration_since(begin).unwrap_or_default(),
                        valid_for = ?pair.expires.duration_since(now).unwrap_or_default(),
                        renewed_in = ?next.duration_since(now).unwrap_or_default(),
                        "got a workload certificate"
                    );
                    self.issued.send_replace(Issued { pair: Entry::Ready(pair), roots: Entry::Ready(roots.into()) });
                    next
                }
                Err(error) => {
                    failures += 1;
                    let transient = matches!(&error, IssueError::Request(error) if error.is_transient());
                    let delay = rotation::retry(failures, transient, rotation::random());
                    tracing::warn!(%error, failures, retry_in = ?delay, "cannot get a workload certificate");
                    let reason: Arc<str> = error.to_string().into();
                    self.issued.send_if_modified(|issued| {
                        let roots = issued.roots.advance(Entry::Failed(reason.clone()));
                        issued.pair.advance(Entry::Failed(reason)) || roots
                    });
                    self.metrics.retries.inc();
                    SystemTime::now() + delay
                }
            };
            sleep_until(next).await;
        }
    }

    /// One request.
    async fn issue(&mut self) -> Result<(Pair, String), IssueError> {
        let (upstream, token, proof) = self.proof(SystemTime::now())?;
        let settings = self.settings.clone();
        let create = move || NewKey::create(settings.key, settings.pkcs8, &settings.spiffe_id);
        let new = tokio::task::spawn_blocking(create).await.map_err(|_| KeyError::Library)??;
        let Settings { lifetime, signer, .. } = &*self.settings;
        let wish = Wish { request: &new.request, lifetime: *lifetime, signer };
        self.metrics.requests.inc();
        let begin = Instant::now();
        let answer = authority::create(&upstream, token.as_deref(), wish).await;
        self.metrics.latency.inc_by(begin.elapsed().as_secs_f64() * 1000.0);
        let checked = answer.and_then(|answer| authority::check(&upstream.address, answer, new.key, SystemTime::now()));
        if checked.is_err() {
            self.metrics.failures.inc();
        }
        self.certificate_failed = proof == Proof::Certificate && checked.is_err();
        if let (Proof::JoinToken, Some(token)) = (proof, token) {
            match &checked {
                Ok(_) => self.spend(&token),
                Err(error) if error.is_refusal() => self.spent = Some(output::fingerprint(&token)),
                Err(_) => {}
            }
        }
        Ok(checked?)
    }

    /// Remembers a join token as used, also for the next start.
    fn spend(&mut self, token: &str) {
        let fingerprint = output::fingerprint(token);
        if let Some(folder) = &self.settings.output
            && let Err(error) = output::remember_token(folder, &fingerprint)
        {
            tracing::warn!(folder = %folder.display(), %error, "cannot remember that the join token was used");
        }
        self.spent = Some(fingerprint);
    }

    /// The connection and the token of the next request.
    fn proof(&self, now: SystemTime) -> Result<(Upstream, Option<String>, Proof), IssueError> {
        let mut upstream = self.settings.authority.clone();
        let valid = |folder: &Option<_>| folder.as_deref().and_then(|folder| valid_certificate(folder, now));
        let provisioned = valid(&self.settings.provisioned);
        let certificate = valid(&self.settings.output).or_else(|| provisioned.clone());
        let token = upstream.bearer_token().map_err(|error: UpstreamError| RequestError::from(error))?;
        let is_join_token = token.as_ref().is_some_and(|token| token.starts_with(JOIN_TOKEN));
        if is_join_token && self.settings.output.is_none() {
            return Err(IssueError::NoOutput);
        }
        let spent = token.as_ref().is_some_and(|token| self.spent == Some(output::fingerprint(token)));
        let facts = Facts {
            token: token.is_some() && !is_join_token,
            join_token: is_join_token && !spent,
            certificate: certificate.is_some(),
            certificate_failed: self.certificate_failed,
        };
        let proof = match choose(facts) {
            Some(proof) => proof,
            None if spent => return Err(IssueError::SpentToken),
            // The certificate authority may know the agent by other means, or explains what is missing.
            None => Proof::Token,
        };
        let (certificate, token) = match proof {
            Proof::Token => (provisioned, token),
            Proof::JoinToken => (None, token),
            Proof::Certificate => (certificate, None),
        };
        upstream.certificate = certificate;
        Ok((upstream, token, proof))
    }
}

/// Whether a folder has a certificate that belongs to its key and has not expired: with it, no token is needed.
#[must_use]
pub fn has_certificate(folder: &Path) -> bool {
    valid_certificate(folder, SystemTime::now()).is_some()
}

/// The certificate in a folder, if it belongs to its key and has not expired.
fn valid_certificate(folder: &Path, now: SystemTime) -> Option<ClientCertificate> {
    let certificate = ClientCertificate::of_folder(folder);
    let expires =
        pem::check_pair(&std::fs::read(&certificate.chain).ok()?, &std::fs::read(&certificate.key).ok()?).ok()?;
    (expires > now).then_some(certificate)
}

async fn sleep_until(moment: SystemTime) {
    while let Ok(left) = moment.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        tokio::time::sleep(left.min(MAX_SLEEP)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_is_sent_only_without_a_certificate_that_works() {
        let facts = |token, join_token, certificate, certificate_failed| {
            choose(Facts { token, join_token, certificate, certificate_failed })
        };
        for (chosen, expected) in [
            (facts(true, false, true, false), Some(Proof::Token)),
            (facts(false, true, false, false), Some(Proof::JoinToken)),
            (facts(false, true, true, false), Some(Proof::Certificate)),
            (facts(false, true, true, true), Some(Proof::JoinToken)),
            (facts(false, false, true, true), Some(Proof::Certificate)),
            (facts(false, false, true, false), Some(Proof::Certificate)),
            (facts(false, false, false, false), None),
        ] {
            assert_eq!(chosen, expected);
        }
    }
}
