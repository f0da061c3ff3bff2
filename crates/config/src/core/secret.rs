//! Secrets and ConfigMaps: of what they hold only certificates, and what proves that they are ours, is kept.

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
const KEPT: [&str; 9] = [
    "ca.crl",
    "ca.crt",
    "cacert",
    "cert",
    "crl",
    "key",
    "tls.crt",
    "tls.key",
    "tls.ocsp-staple",
];

message! {
    /// A Secret as it is written.
    pub struct SecretForm {
        /// What it is for.
        pub kind: Arc<str> as "type",
        /// The values, in base64.
        pub data: StringMap,
        /// Values as they are, in the place of those of `data`.
        pub string_data: StringMap,
    }
}

message! {
    /// A ConfigMap as it is written.
    pub struct ConfigMapForm {
        /// The values.
        pub data: StringMap,
    }
}

/// A Secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secret {
    /// What it is for (`type`).
    pub kind: Arc<str>,
    values: Kept,
}

/// A ConfigMap: of it only authorities are used, which are public.
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
    /// The certificate with its key; nothing where there is none.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn pair(&self) -> Option<Result<CertificatePair, Flaw>> {
        credential::pair(&self.values)
    }

    /// The authorities; nothing where there are none.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn roots(&self) -> Option<Result<Roots, Flaw>> {
        credential::roots(&self.values)
    }

    /// All that is wrong with it.
    pub fn flaws(&self) -> Vec<Flaw> {
        let pair = match self.pair() {
            None if &*self.kind == TLS => {
                let missing = |key: &&str| self.values.value(key).is_none();
                let lacks = ["tls.crt", "tls.key"].into_iter().find(missing);
                lacks.map(|key| Flaw {
                    key,
                    message: "the value is missing or empty",
                })
            }
            pair => pair.and_then(Result::err),
        };
        pair.into_iter().chain(self.roots().and_then(Result::err)).collect()
    }
}

impl ConfigMap {
    /// The authorities; nothing where there are none.
    ///
    /// # Errors
    /// Why they cannot be used.
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
                // What is no base64 is no PEM either: it is reported with the rest, and never shown.
                values
                    .0
                    .insert(name, STANDARD.decode(packed).unwrap_or_else(|_| vec![0]).into());
            }
        }
        Some(Secret {
            kind: form.kind,
            values,
        })
    }

    /// Nothing: nobody is to be shown what a Secret holds.
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

    /// Nothing: what is kept of it is of use to proxies only.
    fn encode(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }

    fn schema() -> Arc<Schema> {
        ConfigMapForm::schema()
    }
}
