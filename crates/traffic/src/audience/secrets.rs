//! Builds the audience of secrets.

use config::mesh::{PrivateKeyProvider, ProxyConfig};
use model::audience::SecretAudience;
use model::proxy::Capabilities;
use model::tls::{KeyProvider, KeyProviderSort};

use super::facts::Facts;
use super::overrides::Overrides;

/// The audience of a trusted proxy; others get no secrets.
pub(super) fn audience(facts: &Facts<'_>, overrides: &Overrides) -> Option<SecretAudience> {
    let proxy = facts.proxy;
    proxy.trusted.then(|| SecretAudience {
        key_provider: key_provider(overrides.settings(facts.mesh), proxy.capabilities),
        namespace: proxy.namespace.clone(),
        cluster: facts.mesh.cluster_of_id(&proxy.cluster_id),
    })
}

/// The configured provider of private key operations, if the proxy's build supports it: others would NACK the secret.
fn key_provider(settings: &ProxyConfig, build: Capabilities) -> Option<KeyProvider> {
    let (sort, settings) = match settings.private_key_provider.as_ref()? {
        PrivateKeyProvider::Cryptomb(settings) if build.cryptomb => (KeyProviderSort::Cryptomb, settings),
        PrivateKeyProvider::Qat(settings) if build.qat => (KeyProviderSort::Qat, settings),
        _ => return None,
    };
    Some(KeyProvider { sort, poll_delay: settings.poll_delay?, fallback: settings.fallback.unwrap_or_default() })
}
