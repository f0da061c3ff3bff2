//! Secrets (SDS): certificates with their keys, and authorities.

use bytes::Bytes;
use flow::{Reads, Relation, Rule};
use model::audience::SecretKey;
use model::service::ObjectId;
use model::tls::AUTHORITIES_SUFFIX;
use model::xds::Resource;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use registry::inputs::{CredentialKey, Credentials};
use resources::core::{CertificatePair, Hidden, Roots};

/// Encoded secrets. None where there is none of the name, or what it holds cannot be used.
pub struct Secrets;

impl Relation for Secrets {
    const NAME: &'static str = "secrets";
    type Key = SecretKey;
    type Row = Resource;
}

impl Rule for Secrets {
    fn derive(cx: &Reads<'_>, key: &SecretKey) -> Option<Resource> {
        let object = |name: &str| {
            let key = CredentialKey {
                config_map: key.config_map,
                cluster: key.cluster.clone(),
                id: ObjectId {
                    namespace: key.namespace.clone(),
                    name: name.into(),
                },
            };
            cx.get::<Credentials>(&key)
        };
        let stripped = key.object.strip_suffix(AUTHORITIES_SUFFIX);
        let content = match (stripped, key.config_map) {
            (None, false) => pair(object(&key.object)?.pair()?.ok()?),
            // A name may end as those do of which only the authorities are wanted.
            (Some(stripped), false) => roots(object(&key.object).or_else(|| object(stripped))?.roots()?.ok()?),
            (stripped, true) => roots(object(stripped.unwrap_or(&key.object))?.roots()?.ok()?),
        };
        let secret = Secret {
            name: key.name.to_string(),
            r#type: Some(content),
        };
        Some(Resource::new(key.name.clone(), protos::encode(&secret)))
    }
}

fn pair(pair: CertificatePair) -> Type {
    Type::TlsCertificate(TlsCertificate {
        certificate_chain: Some(inline(&pair.certificate)),
        private_key: Some(inline(&pair.key)),
        ocsp_staple: pair.staple.as_ref().map(inline),
        ..Default::default()
    })
}

fn roots(roots: Roots) -> Type {
    Type::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(inline(&roots.certificates)),
        crl: roots.revoked.as_ref().map(inline),
        ..Default::default()
    })
}

fn inline(value: &Hidden) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineBytes(Bytes::copy_from_slice(value.bytes()))),
        ..Default::default()
    }
}
