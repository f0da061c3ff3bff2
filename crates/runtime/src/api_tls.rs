//! The certificates of the API: generated ones are renewed, and files are read again, while the API is served.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use api::credentials::Credentials;
use api::server::{Tls, TlsHandle};
use settings::Settings;

use super::bindable;
use super::store_backend::read;

/// The interval of checks. Generated certificates are renewed 30 days before they expire.
const CHECK: Duration = Duration::from_secs(60);

/// Loads or generates the credentials in the data directory.
pub(super) fn credentials(settings: &Settings) -> Result<Credentials> {
    let mut names = vec![bindable(&settings.api_addr).ip().to_string()];
    names.extend(std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()));
    prepare(&settings.data_dir, &names, SystemTime::now())
}

fn prepare(directory: &Path, names: &[String], now: SystemTime) -> Result<Credentials> {
    let prepared = Credentials::prepare(directory, names, now);
    prepared.with_context(|| format!("credentials in {}", directory.display()))
}

/// The TLS material of the API: the given files, or the generated certificates.
pub(super) fn material(settings: &Settings, credentials: &Credentials) -> Result<Tls> {
    let mut tls = credentials.tls();
    match (&settings.api_cert, &settings.api_key) {
        (Some(cert), Some(key)) => (tls.certificates, tls.key) = (read(cert)?, read(key)?),
        (None, None) => {}
        _ => bail!("--api-cert and --api-key must be set together"),
    }
    if let Some(file) = &settings.api_client_ca {
        tls.client_roots = Some(read(file)?);
    }
    Ok(tls)
}

/// Renews the certificates of a running API until it is cancelled. Errors are logged once; the certificates in use stay.
pub(super) async fn renew(settings: Settings, handle: TlsHandle) {
    let mut last = None;
    let mut failing = String::new();
    loop {
        // Reads files and generates keys, which may block.
        let given = settings.clone();
        let checked = tokio::task::spawn_blocking(move || material(&given, &credentials(&given)?)).await;
        let Ok(checked) = checked else { return };
        let replaced = checked.and_then(|tls| {
            let known = last.replace(tls.clone());
            // The first one is in use already.
            match known.is_some_and(|known| known != tls) {
                true => handle.replace(&tls).map(|()| true).map_err(anyhow::Error::from),
                false => Ok(false),
            }
        });
        match replaced {
            Ok(replaced) => {
                failing.clear();
                if replaced {
                    tracing::info!("the API uses new certificates");
                }
            }
            Err(error) => {
                let text = format!("{error:#}");
                if failing != text {
                    tracing::error!(error = text, "the certificates of the API cannot be renewed; those in use stay");
                    failing = text;
                }
            }
        }
        tokio::time::sleep(CHECK).await;
    }
}
