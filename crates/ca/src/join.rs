//! Join tokens: a workload without Kubernetes gets its first certificate with one, and renews it with that certificate.
//!
//! A token is `rutter-join.ID.SECRET` with 256 random bits. Only its SHA-256 is stored, in a [`JoinRecord`]; a store that
//! leaks gives nobody a token. A token is valid once and for a bounded time. [`JoinRecord::redeem`] returns the record to
//! store; the store must refuse the write if the record has changed since it was read, so that of two callers with the
//! same token at the same time only one succeeds.
//!
//! A record is the value [`RECORD`] of a Secret ([`secret_name`]) in the namespace of the control plane, as the bootstrap
//! tokens of Kubernetes are.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use names::dns::{is_label, is_subdomain};
use names::{Identity, TrustDomain};
use serde::{Deserialize, Serialize};

use crate::caller::{Caller, Method};
use crate::certificate::seconds;

pub use names::JOIN_TOKEN as PREFIX;
/// The shortest and the longest life of a token.
pub const LIFETIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(7 * 86_400);
/// The life of a token if none is given.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);

/// The type of Secrets with a record.
pub const SECRET_TYPE: &str = "rutter.io/join-token";
/// The label of Secrets with a record; its value is `true`.
pub const LABEL: &str = "rutter.io/join-token";
/// The key of a Secret with the record as JSON.
pub const RECORD: &str = "record";

const SECRET_BYTES: usize = 32;
const ID_BYTES: usize = 8;

/// The name of the Secret with the record of the token with this id.
pub fn secret_name(id: &str) -> String {
    format!("rutter-join-token-{id}")
}

/// A token that was not created or not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The namespace or service account is not a valid name.
    #[error("{0:?} is not a valid name of a namespace or service account")]
    Name(String),
    /// The life is too short or too long.
    #[error("a join token lives {}s to {}s, not {}s", LIFETIMES.start().as_secs(), LIFETIMES.end().as_secs(), .0.as_secs())]
    Lifetime(Duration),
    /// The text is no token.
    #[error("this is not a join token; create one with `rutter token create`")]
    Malformed,
    /// The secret is wrong.
    #[error("the join token {id} is not valid")]
    Wrong {
        /// The token's id.
        id: String,
    },
    /// The token has expired.
    #[error("the join token {id} has expired; create a new one with `rutter token create`")]
    Expired {
        /// The token's id.
        id: String,
    },
    /// The token was used before.
    #[error(
        "the join token {id} was already used; if that was not you, revoke the workload's identity, and create a new token"
    )]
    Used {
        /// The token's id.
        id: String,
    },
    /// There are no random numbers.
    #[error("the cryptographic library failed")]
    Library,
    /// The record cannot be read or written.
    #[error("join tokens cannot be checked: {0}")]
    Unavailable(String),
}

/// A token. Show it once to the user; it cannot be recovered.
#[derive(Clone)]
pub struct JoinToken {
    id: String,
    secret: [u8; SECRET_BYTES],
}

/// The stored part of a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinRecord {
    /// The token's id.
    pub id: String,
    /// The SHA-256 of the token, in base64url without padding.
    pub digest: String,
    /// The namespace of the workload.
    pub namespace: String,
    /// The service account of the workload.
    pub service_account: String,
    /// The moment at which the token expires, in seconds since 1970.
    pub expires: i64,
    /// The moment at which the token was used, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
}

impl JoinToken {
    /// Creates a token and its record.
    ///
    /// # Errors
    /// A name or the life is not valid.
    pub fn create(
        namespace: &str,
        service_account: &str,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(JoinToken, JoinRecord), JoinError> {
        let invalid = |text: &str| JoinError::Name(text.chars().take(100).collect());
        if !is_label(namespace) {
            return Err(invalid(namespace));
        }
        if !is_subdomain(service_account) {
            return Err(invalid(service_account));
        }
        if !LIFETIMES.contains(&lifetime) {
            return Err(JoinError::Lifetime(lifetime));
        }
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        rand::fill(&mut id).and_then(|()| rand::fill(&mut secret)).map_err(|_| JoinError::Library)?;
        let token = JoinToken { id: hex(id), secret };
        let record = JoinRecord {
            id: token.id.clone(),
            digest: URL_SAFE_NO_PAD.encode(token.digest()),
            namespace: namespace.to_owned(),
            service_account: service_account.to_owned(),
            expires: seconds(now).saturating_add_unsigned(lifetime.as_secs()),
            used: None,
        };
        Ok((token, record))
    }

    /// Parses a token.
    ///
    /// # Errors
    /// The text is no token. The error does not repeat it.
    pub fn parse(text: &str) -> Result<JoinToken, JoinError> {
        let rest = text.strip_prefix(PREFIX).ok_or(JoinError::Malformed)?;
        let (id, secret) = rest.split_once('.').ok_or(JoinError::Malformed)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if id.len() != 2 * ID_BYTES || !id.bytes().all(is_hex) || secret.len() > 64 {
            return Err(JoinError::Malformed);
        }
        let secret = URL_SAFE_NO_PAD.decode(secret).ok().and_then(|secret| secret.try_into().ok());
        Ok(JoinToken { id: id.to_owned(), secret: secret.ok_or(JoinError::Malformed)? })
    }

    /// The id, by which the record is found.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The token itself.
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}.{}", self.id, URL_SAFE_NO_PAD.encode(self.secret))
    }

    fn digest(&self) -> digest::Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(PREFIX.as_bytes());
        context.update(self.id.as_bytes());
        context.update(&[0]);
        context.update(&self.secret);
        context.finish()
    }
}

/// Ids are lower-case hexadecimal numbers, because the names of Secrets have no upper-case letters.
fn hex(id: [u8; ID_BYTES]) -> String {
    format!("{:016x}", u64::from_be_bytes(id))
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.id)
    }
}

impl JoinRecord {
    /// Checks a token in constant time and marks it as used. Store the record before the caller gets anything.
    ///
    /// # Errors
    /// The token is wrong, expired or used. Only a caller with the right secret learns which of the last two.
    pub fn redeem(
        &self,
        token: &JoinToken,
        domain: &TrustDomain,
        now: SystemTime,
    ) -> Result<(Caller, JoinRecord), JoinError> {
        let id = self.id.clone();
        let stored = URL_SAFE_NO_PAD.decode(&self.digest).unwrap_or_default();
        let is_equal = constant_time::verify_slices_are_equal(&stored, token.digest().as_ref()).is_ok();
        if !is_equal || token.id != self.id {
            return Err(JoinError::Wrong { id });
        }
        if self.used.is_some() {
            return Err(JoinError::Used { id });
        }
        let now = seconds(now);
        if now >= self.expires {
            return Err(JoinError::Expired { id });
        }
        let identity = Identity {
            trust_domain: domain.clone(),
            namespace: self.namespace.as_str().into(),
            service_account: self.service_account.as_str().into(),
        };
        let used = JoinRecord { used: Some(now), ..self.clone() };
        Ok((Caller::new(Method::JoinToken, identity), used))
    }

    /// Whether the record may be deleted: replays of a token are noticed until it expires.
    pub fn is_over(&self, now: SystemTime) -> bool {
        seconds(now) >= self.expires
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::{DAY, now};

    fn create() -> (JoinToken, JoinRecord) {
        JoinToken::create("shop", "cart", DEFAULT_LIFETIME, now()).unwrap()
    }

    fn redeem(record: &JoinRecord, token: &JoinToken, at: SystemTime) -> Result<(Caller, JoinRecord), JoinError> {
        record.redeem(token, &TrustDomain::default(), at)
    }

    #[test]
    fn a_token_is_valid_once() {
        let (token, record) = create();
        let token = JoinToken::parse(&token.expose()).unwrap();
        let (caller, used) = redeem(&record, &token, now()).unwrap();
        assert_eq!(caller.identity.to_string(), "spiffe://cluster.local/ns/shop/sa/cart");
        assert_eq!(caller.method, Method::JoinToken);
        let stored: JoinRecord = serde_json::from_str(&serde_json::to_string(&used).unwrap()).unwrap();
        assert_eq!(redeem(&stored, &token, now()).unwrap_err(), JoinError::Used { id: record.id });
    }

    #[test]
    fn expired_and_wrong_tokens_are_refused() {
        let (token, record) = create();
        let end = now() + DEFAULT_LIFETIME;
        assert!(redeem(&record, &token, end - Duration::from_secs(1)).is_ok());
        assert!(matches!(redeem(&record, &token, end), Err(JoinError::Expired { .. })));
        assert!(record.is_over(end) && !record.is_over(now()));
        let (other, _) = create();
        let forged = JoinToken { id: token.id.clone(), secret: other.secret };
        assert!(matches!(redeem(&record, &forged, now()), Err(JoinError::Wrong { .. })));
        assert!(matches!(redeem(&record, &other, now()), Err(JoinError::Wrong { .. })));
        let damaged = JoinRecord { digest: "?".to_owned(), ..record };
        assert!(matches!(redeem(&damaged, &token, now()), Err(JoinError::Wrong { .. })));
    }

    #[test]
    fn names_and_life_are_checked() {
        let make =
            |namespace: &str, account: &str, life| JoinToken::create(namespace, account, life, now()).map(|_| ());
        assert!(matches!(make("a/b", "c", DEFAULT_LIFETIME), Err(JoinError::Name(_))));
        assert!(matches!(make("a", "c/sa/d", DEFAULT_LIFETIME), Err(JoinError::Name(_))));
        assert!(matches!(make("a", "b", DAY * 8), Err(JoinError::Lifetime(_))));
        assert!(matches!(make("a", "b", Duration::ZERO), Err(JoinError::Lifetime(_))));
    }

    #[test]
    fn the_secret_is_neither_stored_nor_shown() {
        let (token, record) = create();
        let exposed = token.expose();
        let secret = exposed.rsplit('.').next().unwrap();
        let shown = format!("{token:?} {record:?} {}", serde_json::to_string(&record).unwrap());
        assert!(!shown.contains(secret), "{shown}");
        assert!(!JoinToken::parse(&format!("{exposed}x")).unwrap_err().to_string().contains(secret));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(rutter-join\\.)?\\PC{0,80}(\\.\\PC{0,80})?") {
            if let Ok(token) = JoinToken::parse(&text) {
                prop_assert_eq!(token.expose(), text);
            }
        }
    }
}
