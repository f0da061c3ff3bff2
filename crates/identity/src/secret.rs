//! Secrets, and the table of all secrets that are served.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use model::tls::{KeyProvider, KeyProviderSort};
use protos::Any;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::private_key_providers::{
    cryptomb::v3alpha::CryptoMbPrivateKeyMethodConfig, qat::v3alpha::QatPrivateKeyMethodConfig,
};
use protos::envoy::extensions::transport_sockets::tls::v3 as tls;

use crate::name::{FileName, Name};

/// A certificate chain and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) chain: Arc<str>,
    pub(crate) key: Arc<str>,
    /// The moment at which the leaf expires.
    pub(crate) expires: SystemTime,
}

/// Leaves out the key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("chain", &self.chain).field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// A value that may not exist yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Entry<T> {
    /// It is not known yet whether there will be one.
    #[default]
    Pending,
    /// The value.
    Ready(T),
    /// There is none, for this reason; there may be one later.
    Failed(Arc<str>),
}

impl<T> Entry<T> {
    /// The value.
    pub(crate) fn ready(&self) -> Option<&T> {
        match self {
            Entry::Ready(value) => Some(value),
            _ => None,
        }
    }

    /// Replaces the value, unless a failure would replace a value that can still be used.
    pub(crate) fn advance(&mut self, next: Entry<T>) -> bool
    where
        T: PartialEq,
    {
        let keeps = self.ready().is_some() && next.ready().is_none();
        let changes = !keeps && *self != next;
        if changes {
            *self = next;
        }
        changes
    }

    /// A value made of this one.
    pub(crate) fn map<U>(&self, make: impl FnOnce(&T) -> U) -> Entry<U> {
        match self {
            Entry::Pending => Entry::Pending,
            Entry::Ready(value) => Entry::Ready(make(value)),
            Entry::Failed(reason) => Entry::Failed(reason.clone()),
        }
    }
}

/// The content of a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// A certificate and its key.
    Pair(Pair),
    /// Trust roots in PEM, and a revocation list.
    Roots(Arc<str>, Option<Arc<Path>>),
}

/// A secret and its version, a hash of what is public in it. A restarted agent gives the same version to the same secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Secret {
    pub(crate) version: Arc<str>,
    pub(crate) content: Content,
}

impl From<Content> for Secret {
    fn from(content: Content) -> Secret {
        let (public, list) = match &content {
            Content::Pair(pair) => (&pair.chain, false),
            Content::Roots(roots, list) => (roots, list.is_some()),
        };
        let hash = digest::digest(&digest::SHA256, public.as_bytes());
        let hash: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Secret { version: if list { format!("{hash}-crl") } else { hash }.into(), content }
    }
}

impl Secret {
    /// The secret as a message for a proxy that asked for it by this name.
    pub(crate) fn encode(&self, name: &str, provider: Option<&KeyProvider>) -> Any {
        let source = |specifier| Some(DataSource { specifier: Some(specifier), ..Default::default() });
        let inline = |text: &str| source(Specifier::InlineBytes(text.as_bytes().to_vec().into()));
        let content = match &self.content {
            Content::Pair(pair) => tls::secret::Type::TlsCertificate(tls::TlsCertificate {
                certificate_chain: inline(&pair.chain),
                private_key: inline(&pair.key).filter(|_| provider.is_none()),
                private_key_provider: provider.map(|provider| provided(provider, inline(&pair.key))),
                ..Default::default()
            }),
            Content::Roots(roots, list) => tls::secret::Type::ValidationContext(tls::CertificateValidationContext {
                trusted_ca: inline(roots),
                crl: list.as_ref().and_then(|path| source(Specifier::Filename(path.display().to_string()))),
                ..Default::default()
            }),
        };
        protos::any(&tls::Secret { name: name.to_owned(), r#type: Some(content) })
    }
}

/// A private key that a provider manages.
fn provided(provider: &KeyProvider, private_key: Option<DataSource>) -> tls::PrivateKeyProvider {
    let poll_delay = Some(protos::duration(provider.poll_delay));
    let (name, config) = match provider.sort {
        KeyProviderSort::Qat => ("qat", protos::any(&QatPrivateKeyMethodConfig { private_key, poll_delay })),
        KeyProviderSort::Cryptomb => {
            ("cryptomb", protos::any(&CryptoMbPrivateKeyMethodConfig { private_key, poll_delay }))
        }
    };
    let config_type = Some(tls::private_key_provider::ConfigType::TypedConfig(config));
    tls::PrivateKeyProvider { provider_name: name.to_owned(), fallback: provider.fallback, config_type }
}

/// All secrets that are served.
#[derive(Default, Debug)]
pub(crate) struct Table {
    pub(crate) workload: Entry<Secret>,
    pub(crate) roots: Entry<Secret>,
    /// The files that somebody uses.
    pub(crate) files: BTreeMap<FileName, Entry<Secret>>,
}

impl Table {
    /// The secret of this name.
    pub(crate) fn get(&self, name: &Name) -> &Entry<Secret> {
        match name {
            Name::Workload => &self.workload,
            Name::Roots => &self.roots,
            Name::File(name) => self.files.get(name).unwrap_or(&Entry::Pending),
            Name::Unknown => &Entry::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_replace_a_secret() {
        let mut entry = Entry::Pending;
        assert!(entry.advance(Entry::Failed("a".into())));
        assert!(!entry.advance(Entry::Failed("a".into())));
        assert!(entry.advance(Entry::Ready(1)));
        assert!(!entry.advance(Entry::Failed("b".into())));
        assert!(!entry.advance(Entry::Pending));
        assert!(entry.advance(Entry::Ready(2)) && entry == Entry::Ready(2));
    }

    #[test]
    fn versions_follow_the_public_part_and_keys_are_not_shown() {
        let pair = |chain: &str, key: &str| {
            Secret::from(Content::Pair(Pair { chain: chain.into(), key: key.into(), expires: SystemTime::UNIX_EPOCH }))
        };
        assert_eq!(pair("a", "one").version, pair("a", "two").version);
        assert_ne!(pair("a", "one").version, pair("b", "one").version);
        assert!(!format!("{:?}", pair("a", "private")).contains("private"));
        let roots = |list: Option<&Path>| Secret::from(Content::Roots("a".into(), list.map(Into::into))).version;
        assert_ne!(roots(None), roots(Some(Path::new("/crl.pem"))));
    }

    #[test]
    fn a_provider_gets_the_key() {
        let pair = Pair { chain: "chain".into(), key: "key".into(), expires: SystemTime::UNIX_EPOCH };
        let secret = Secret::from(Content::Pair(pair));
        for (sort, name) in [(KeyProviderSort::Cryptomb, "cryptomb"), (KeyProviderSort::Qat, "qat")] {
            let provider = KeyProvider { sort, poll_delay: std::time::Duration::from_millis(2), fallback: true };
            let encoded = secret.encode("default", Some(&provider)).decode_as::<tls::Secret>().unwrap().unwrap();
            let Some(tls::secret::Type::TlsCertificate(certificate)) = encoded.r#type else { panic!() };
            let provided = certificate.private_key_provider.unwrap();
            assert_eq!((certificate.private_key, &*provided.provider_name, provided.fallback), (None, name, true));
        }
    }
}
