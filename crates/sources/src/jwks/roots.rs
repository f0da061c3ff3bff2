//! The certificate authorities that issuers are verified with: those of the system, and those of a file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The time after which the files are read again.
const FRESH: Duration = Duration::from_secs(60);

/// The TLS configuration, read again after some time.
pub(super) struct Roots {
    extra: Option<PathBuf>,
    current: Mutex<Option<(Instant, Arc<ClientConfig>)>>,
}

impl Roots {
    /// The authorities of the system and of this file, if it exists.
    pub(super) fn new(extra: Option<PathBuf>) -> Roots {
        Roots { extra, current: Mutex::new(None) }
    }

    /// The configuration of a connection.
    ///
    /// # Errors
    /// TLS cannot be used.
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some((_, config)) = self.current().as_ref().filter(|(read, _)| read.elapsed() < FRESH) {
            return Ok(config.clone());
        }
        let extra = self.extra.clone();
        let read = tokio::task::spawn_blocking(move || read(extra.as_deref())).await;
        let config = read.map_err(|error| error.to_string())??;
        *self.current() = Some((Instant::now(), config.clone()));
        Ok(config)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<ClientConfig>)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(extra: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore::empty();
    // Certificates of the system that cannot be parsed are left out: an issuer signed by them is not verified.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = extra
        && let Ok(pem) = std::fs::read(path)
    {
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let added = certificate.map_err(|error| error.to_string());
            let added = added.and_then(|certificate| store.add(certificate).map_err(|error| error.to_string()));
            if let Err(error) = added {
                tracing::warn!(path = %path.display(), %error, "a certificate authority for token issuers cannot be used");
            }
        }
    }
    if store.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities (package ca-certificates, or SSL_CERT_FILE): keys of token issuers cannot \
             be fetched over https"
        );
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
