//! JSON Web Tokens: the sources of public keys, and the rules by which a proxy verifies tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use config::istio::JwtRule;
use config::{KeySet, Timestamp};

/// The timeout of fetching keys, unless a rule sets one.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The path of the discovery document below an issuer (OpenID Connect Discovery 1.0).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The source of an issuer's keys.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum KeySource {
    /// The URL of a key set.
    Uri(Arc<str>),
    /// An issuer whose discovery document has the URL.
    Issuer(Arc<str>),
}

impl KeySource {
    /// The source of a rule's keys; none if they are inline, or if the rule has neither URL nor issuer.
    pub fn of(rule: &JwtRule) -> Option<KeySource> {
        match (&*rule.jwks, &*rule.jwks_uri, &*rule.issuer) {
            ("", "", "") => None,
            ("", "", _) => Some(KeySource::Issuer(rule.issuer.clone())),
            ("", ..) => Some(KeySource::Uri(rule.jwks_uri.clone())),
            _ => None,
        }
    }

    /// The first URL to fetch.
    pub fn url(&self) -> String {
        match self {
            KeySource::Uri(uri) => uri.to_string(),
            KeySource::Issuer(issuer) => format!("{}{DISCOVERY}", issuer.strip_suffix('/').unwrap_or(issuer)),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

/// Sources of keys that must be fetched.
pub type WantedKeys = BTreeMap<KeySource, WantedSource>;

/// The users of a source of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedSource {
    /// The longest timeout of the rules that use it.
    pub timeout: Duration,
    /// The namespaces with such rules.
    pub namespaces: BTreeSet<Arc<str>>,
}

/// A failed fetch of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFailure {
    /// The reason, as a sentence without a full stop. It contains nothing of the response.
    pub reason: Arc<str>,
    /// The time of the next attempt.
    pub next: Timestamp,
}

/// The verification of tokens at a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct JwtPlan {
    /// The rules, in order of their issuers.
    pub providers: Vec<JwtProvider>,
}

impl JwtPlan {
    /// The plan while the rules are not known: a request with a token is rejected.
    pub fn closed() -> JwtPlan {
        let keys = ProviderKeys::Local(KeySet::unverifiable());
        JwtPlan { providers: vec![JwtProvider { rule: JwtRule::default(), keys }] }
    }
}

/// A rule with its keys.
#[derive(Clone, PartialEq, Debug)]
pub struct JwtProvider {
    /// The rule.
    pub rule: JwtRule,
    /// The keys.
    pub keys: ProviderKeys,
}

/// The keys with which a proxy verifies the tokens of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProviderKeys {
    /// These. [`KeySet::unverifiable`] if the issuer's are not known, so that its tokens are rejected.
    Local(KeySet),
    /// The proxy fetches them from the rule's URL through this cluster.
    Remote(Arc<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discovery_document_is_below_the_issuer() {
        for issuer in ["https://a.example", "https://a.example/"] {
            let url = KeySource::Issuer(issuer.into()).url();
            assert_eq!(url, "https://a.example/.well-known/openid-configuration");
        }
    }
}
