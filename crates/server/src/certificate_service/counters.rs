//! istiod's metrics of the certificate service (`citadel_server_*`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::Failure;
use crate::metrics::Metric;
use crate::signing::{Issuer, Signing};

/// A number that only grows.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the service.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) requests: Count,
    pub(super) issued: Count,
    pub(super) unauthenticated: Count,
    invalid_requests: Count,
    identities: Count,
    /// Failed signatures by the label `error`.
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// Counts a failure.
    pub(super) fn note(&self, failure: &Failure) {
        let label = match failure {
            Failure::Caller(_) => return self.identities.add(),
            Failure::Issue(error) => {
                if error.label() == "CSR_ERROR" {
                    self.invalid_requests.add();
                }
                error.label()
            }
            Failure::External(error) => error.label,
            Failure::Busy => "CA_BUSY",
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner).entry(label).or_default() += 1;
    }

    /// The metrics as they are now.
    pub(super) fn metrics(&self, signing: &Signing, now: SystemTime) -> Vec<Metric> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = failed.into_iter().map(|(label, count)| (vec![label.to_owned()], count as f64));
        let mut metrics = vec![
            Metric::counter("citadel_server_csr_count", "Certificate requests", self.requests.get()),
            Metric::counter(
                "citadel_server_success_cert_issuance_count",
                "Certificates that were issued",
                self.issued.get(),
            ),
            Metric::counter(
                "citadel_server_authentication_failure_count",
                "Certificate requests whose caller was not authenticated",
                self.unauthenticated.get(),
            ),
            Metric::counter(
                "citadel_server_csr_parsing_err_count",
                "Certificate requests that are malformed or have a weak key",
                self.invalid_requests.get(),
            ),
            Metric::counter(
                "citadel_server_id_extraction_err_count",
                "Certificate requests for an identity that the caller may not have",
                self.identities.get(),
            ),
            Metric::counter_by(
                "citadel_server_csr_sign_err_count",
                "Certificate requests that were not signed, by reason",
                &["error"],
                failed,
            ),
        ];
        if let Issuer::Own(authority) = &signing.issuer {
            let root = authority.roots().iter().map(ca::Certificate::not_after).min();
            let root = root.map_or(0.0, seconds);
            let issuer = seconds(authority.issuer().not_after());
            let now = seconds(now);
            metrics.extend([
                Metric::gauge(
                    "citadel_server_root_cert_expiry_timestamp",
                    "The time at which the first root certificate of the authority expires, in seconds since 1970",
                    root,
                ),
                Metric::gauge(
                    "citadel_server_root_cert_expiry_seconds",
                    "The time until the first root certificate of the authority expires",
                    root - now,
                ),
                Metric::gauge(
                    "citadel_server_cert_chain_expiry_timestamp",
                    "The time at which the issuing certificate of the authority expires, in seconds since 1970",
                    issuer,
                ),
                Metric::gauge(
                    "citadel_server_cert_chain_expiry_seconds",
                    "The time until the issuing certificate of the authority expires",
                    issuer - now,
                ),
            ]);
        }
        metrics
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
