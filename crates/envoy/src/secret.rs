//! Secrets (SDS): certificates with private keys, and CA certificates.

use std::slice;

use bytes::Bytes;
use config::core::{CertificatePair, Hidden, Roots};
use flow::Reads;
use model::audience::SecretKey;
use model::tls::{AUTHORITIES_SUFFIX, KeyProvider, KeyProviderSort};
use model::xds::Resource;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::private_key_providers::{
    cryptomb::v3alpha::CryptoMbPrivateKeyMethodConfig, qat::v3alpha::QatPrivateKeyMethodConfig,
};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, PrivateKeyProvider, Secret, TlsCertificate, private_key_provider::ConfigType,
    secret::Type,
};
use traffic::credentials;

use crate::parts::duration;

flow::rule! {
    /// Encoded secrets. `None` if the secret does not exist, if no valid content of it is known, or without access.
    pub Secrets: SecretKey => Resource = "secrets", derive_secrets;
}

fn derive_secrets(cx: &Reads<'_>, key: &SecretKey) -> Option<Resource> {
    if !credentials::is_allowed(cx, key) {
        return None;
    }
    let content = match key.config_map || key.object.ends_with(AUTHORITIES_SUFFIX) {
        true => {
            let keys = if key.parts.is_empty() { slice::from_ref(key) } else { &key.parts[..] };
            roots(keys.iter().filter_map(|key| credentials::roots(cx, key).in_use().cloned()).collect())?
        }
        false => pair(credentials::pair(cx, key).in_use()?, key.key_provider),
    };
    let secret = Secret { name: key.name.to_string(), r#type: Some(content) };
    Some(Resource::new(key.name.clone(), protos::encode(&secret)))
}

fn pair(pair: &CertificatePair, key_provider: Option<KeyProvider>) -> Type {
    let key = inline(&pair.key);
    let mut certificate = TlsCertificate {
        certificate_chain: Some(inline(&pair.certificate)),
        ocsp_staple: pair.staple.as_ref().map(inline),
        ..Default::default()
    };
    match key_provider {
        None => certificate.private_key = Some(key),
        Some(provider) => certificate.private_key_provider = Some(provided(provider, key)),
    }
    Type::TlsCertificate(certificate)
}

/// A private key that a provider manages.
fn provided(provider: KeyProvider, key: DataSource) -> PrivateKeyProvider {
    let (private_key, poll_delay) = (Some(key), Some(duration(provider.poll_delay)));
    let (name, config) = match provider.sort {
        KeyProviderSort::Cryptomb => {
            let config = CryptoMbPrivateKeyMethodConfig { private_key, poll_delay };
            ("cryptomb", protos::any(&config))
        }
        KeyProviderSort::Qat => {
            let config = QatPrivateKeyMethodConfig { private_key, poll_delay };
            ("qat", protos::any(&config))
        }
    };
    PrivateKeyProvider {
        provider_name: name.to_owned(),
        fallback: provider.fallback,
        config_type: Some(ConfigType::TypedConfig(config)),
    }
}

/// CA certificates, and the revocation lists beside them. None without any.
fn roots(all: Vec<Roots>) -> Option<Type> {
    let joined = |texts: Vec<&Hidden>| match &texts[..] {
        [] => None,
        [only] => Some(inline(only)),
        several => {
            let lines = several.iter().flat_map(|text| [text.bytes(), &b"\n"[..]]).collect::<Vec<_>>().concat();
            Some(DataSource { specifier: Some(Specifier::InlineBytes(lines.into())), ..Default::default() })
        }
    };
    Some(Type::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(joined(all.iter().map(|roots| &roots.certificates).collect())?),
        crl: joined(all.iter().filter_map(|roots| roots.revoked.as_ref()).collect()),
        ..Default::default()
    }))
}

fn inline(value: &Hidden) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(Bytes::copy_from_slice(value.bytes()))), ..Default::default() }
}
