//! Secrets and ConfigMaps. Only certificates, keys and CA certificates are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::core::credential::{self, CertificatePair, Content, Flaw, Hidden, ParsedPair, Roots, Values};
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

/// A Secret. Its values are checked when it is decoded, and only those that proxies may need are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secret {
    /// The `type`.
    pub kind: Arc<str>,
    /// The certificate with its key, if any.
    pub pair: Option<Content<CertificatePair>>,
    /// The CA certificates, if any.
    pub roots: Option<Content<Roots>>,
    /// The reason why a part of the pair is left out.
    left_out: Option<Flaw>,
}

/// A ConfigMap. Only CA certificates are read, which are public.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigMap {
    /// The CA certificates, if any.
    pub roots: Option<Content<Roots>>,
}

/// Values by name.
#[derive(Default)]
struct Named(BTreeMap<&'static str, Hidden>);

impl Values for Named {
    fn value(&self, key: &str) -> Option<&Hidden> {
        self.0.get(key).filter(|value| !value.bytes().is_empty())
    }
}

impl Secret {
    fn new(kind: Arc<str>, values: &Named) -> Secret {
        let (pair, left_out) = match credential::pair(values) {
            Some(ParsedPair { content, left_out }) => (Some(content), left_out),
            None if &*kind == TLS => {
                let missing = ["tls.crt", "tls.key"].into_iter().find(|key| values.value(key).is_none());
                let flaw = missing.map(|key| Flaw { key, message: "the value is missing or empty" });
                (flaw.map(|flaw| Content::Invalid { flaw, last: None }), None)
            }
            None => (None, None),
        };
        Secret { kind, pair, roots: credential::roots(values), left_out }
    }

    /// All invalid values.
    pub fn flaws(&self) -> Vec<Flaw> {
        let pair = self.pair.as_ref().and_then(Content::flaw);
        let roots = self.roots.as_ref().and_then(Content::flaw);
        pair.into_iter().chain(&self.left_out).chain(roots).cloned().collect()
    }

    /// This Secret with the last valid values of the one that it replaces, in place of invalid ones. `None` if there are none.
    /// Values that are removed, not invalid, are not kept.
    pub fn keeping(&self, before: &Secret) -> Option<Secret> {
        let pair = self.pair.as_ref().and_then(|pair| pair.kept(before.pair.as_ref()));
        let roots = self.roots.as_ref().and_then(|roots| roots.kept(before.roots.as_ref()));
        (pair.is_some() || roots.is_some()).then(|| Secret {
            kind: self.kind.clone(),
            pair: pair.or_else(|| self.pair.clone()),
            roots: roots.or_else(|| self.roots.clone()),
            left_out: self.left_out.clone(),
        })
    }
}

impl ConfigMap {
    /// All invalid values.
    pub fn flaws(&self) -> Vec<Flaw> {
        self.roots.as_ref().and_then(Content::flaw).cloned().into_iter().collect()
    }

    /// Like [`Secret::keeping`].
    pub fn keeping(&self, before: &ConfigMap) -> Option<ConfigMap> {
        let roots = self.roots.as_ref()?.kept(before.roots.as_ref())?;
        Some(ConfigMap { roots: Some(roots) })
    }
}

impl Decode for Secret {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Secret> {
        let form = SecretForm::decode(node, cx)?;
        let mut values = Named::default();
        for name in KEPT {
            if let Some(text) = form.string_data.get(name) {
                values.0.insert(name, text.as_bytes().to_vec().into());
            } else if let Some(text) = form.data.get(name) {
                let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                // Invalid base64 is not PEM either, so it is reported there. The value is never shown.
                values.0.insert(name, STANDARD.decode(packed).unwrap_or_else(|_| vec![0]).into());
            }
        }
        Some(Secret::new(form.kind, &values))
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
        let mut values = Named::default();
        for name in ["cacert", "crl", "ca.crt", "ca.crl"] {
            if let Some(text) = form.data.get(name) {
                values.0.insert(name, text.as_bytes().to_vec().into());
            }
        }
        Some(ConfigMap { roots: credential::roots(&values) })
    }

    /// Writes nothing: only proxies use the content.
    fn encode(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }

    fn schema() -> Arc<Schema> {
        ConfigMapForm::schema()
    }
}
