//! TLS to servers of modules.

use std::sync::Arc;

use agent_core::tls::{Possession, unverified};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error, RootCertStore};

/// A configuration with the certificate authorities of the system, or, for hosts of `WASM_INSECURE_REGISTRIES`, one that verifies no
/// certificates. Reads files.
///
/// # Errors
/// TLS cannot be used.
pub(super) fn config(insecure: bool) -> Result<ClientConfig, Error> {
    if insecure {
        return unverified(Possession::Proved);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

/// Whether the server answered with bytes that are not TLS.
pub(super) fn is_plain_text(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    matches!(error, Some(Error::InvalidMessage(_)))
}
