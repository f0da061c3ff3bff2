//! Secrets and ConfigMaps. Only certificates, keys and CA certificates are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::core::credential::{self, CertificatePair, Flaw, Hidden, Roots, Values};
use crate::decode::{Decode, Decoder};
use crate::object::StringMap;
use crate::schema::Schema;
use crate::yaml::Node;

/// The type of Secrets for certificates.
const TLS: &str = "kubernetes.io/tls";
/// The values that are kept.
const KEPT: [&str; 9] = ["ca.crl", "ca.crt", "cacert", "cert", "crl", "key", "tls.crt", "tls.key", "tls.ocsp-staple"];

message! {
    /// The schema of a Secret.
    pub struct SecretForm {
        /// The type.
        pub kind: Arc<str> as "type",
        /// The values, in base64.
        pub data: StringMap,
        /// Values without encoding, which override those in `data`.
        pub string_data: StringMap,
    }
}

message! {
    /// The schema of a ConfigMap.
    pub struct ConfigMapForm {
        /// The values.
        pub data: StringMap,
    }
}

/// A Secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secret {
    /// The `type`.
    pub kind: Arc<str>,
    values: Kept,
}

/// A ConfigMap. Only CA certificates are read, which are public.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigMap {
    values: Kept,
}

/// The values that are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Kept(BTreeMap<&'static str, Hidden>);

impl Values for Kept {
    fn value(&self, key: &str) -> Option<&Hidden> {
        self.0.get(key).filter(|value| !value.bytes().is_empty())
    }
}

impl Secret {
    /// The certificate with its key, if any.
    ///
    /// # Errors The first invalid value.
    pub fn pair(&self) -> Option<Result<CertificatePair, Flaw>> {
        credential::pair(&self.values)
    }

    /// The CA certificates, if any.
    ///
    /// # Errors The first invalid value.
    pub fn roots(&self) -> Option<Result<Roots, Flaw>> {
        credential::roots(&self.values)
    }

    /// All invalid values.
    pub fn flaws(&self) -> Vec<Flaw> {
        let pair = match self.pair() {
            None if &*self.kind == TLS => {
                let missing = |key: &&str| self.values.value(key).is_none();
                let lacks = ["tls.crt", "tls.key"].into_iter().find(missing);
                lacks.map(|key| Flaw { key, message: "the value is missing or empty" })
            }
            pair => pair.and_then(Result::err),
        };
        pair.into_iter().chain(self.roots().and_then(Result::err)).collect()
    }
}

impl ConfigMap {
    /// The CA certificates, if any.
    ///
    /// # Errors The first invalid value.
    pub fn roots(&self) -> Option<Result<Roots, Flaw>> {
        credential::roots(&self.values)
    }
}

impl Decode for Secret {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Secret> {
        let form = SecretForm::decode(node, cx)?;
        let mut values = Kept::default();
        for name in KEPT {
            if let Some(text) = form.string_data.get(name) {
                values.0.insert(name, text.as_bytes().to_vec().into());
            } else if let Some(text) = form.data.get(name) {
                let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                // Invalid base64 is not PEM either, so it is reported there. The value is never shown.
                values.0.insert(name, STANDARD.decode(packed).unwrap_or_else(|_| vec![0]).into());
            }
        }
        Some(Secret { kind: form.kind, values })
    }

    /// Writes nothing: the content of Secrets is never shown.
    fn encode(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }

    fn schema() -> Arc<Schema> {
        SecretForm::schema()
    }
}

impl Decode for ConfigMap {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<ConfigMap> {
        let form = ConfigMapForm::decode(node, cx)?;
        let mut values = Kept::default();
        for name in ["cacert", "crl", "ca.crt", "ca.crl"] {
            if let Some(text) = form.data.get(name) {
                values.0.insert(name, text.as_bytes().to_vec().into());
            }
        }
        Some(ConfigMap { values })
    }

    /// Writes nothing: only proxies use the content.
    fn encode(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }

    fn schema() -> Arc<Schema> {
        ConfigMapForm::schema()
    }
}
