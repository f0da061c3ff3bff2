//! The claims of JSON Web Tokens.

use std::time::SystemTime;

use jwks::token::unverified;
use serde_json::{Map, Value};

/// The tolerated difference of clocks, in seconds.
const SKEW: f64 = 60.0;

/// The claims of a token that authentication uses.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Claims {
    pub(super) issuer: String,
    pub(super) subject: String,
    pub(super) audiences: Vec<String>,
    expires: Option<f64>,
    begins: Option<f64>,
}

impl Claims {
    /// The claims of a token, which nothing has verified. `None` if it is no token.
    pub(super) fn unverified(token: &str) -> Option<Claims> {
        unverified(token).as_ref().map(Claims::of)
    }

    pub(super) fn of(fields: &Map<String, Value>) -> Claims {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let audiences = match fields.get("aud") {
            Some(Value::String(audience)) => vec![audience.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let time = |name: &str| fields.get(name).and_then(Value::as_f64);
        let (issuer, subject) = (text("iss"), text("sub"));
        Claims { issuer, subject, audiences, expires: time("exp"), begins: time("nbf") }
    }

    /// Whether the token says when it expires.
    pub(super) fn expires(&self) -> bool {
        self.expires.is_some()
    }

    /// Whether the token neither has expired nor begins later. A token that does not expire is valid.
    pub(super) fn is_valid_at(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        self.expires.is_none_or(|end| now < end) && self.begins.is_none_or(|begin| begin <= now + SKEW)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_valid_between_its_times() {
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let claims = Claims { expires: Some(1000.0), begins: Some(500.0), ..Claims::default() };
        assert!(claims.is_valid_at(at(999)) && !claims.is_valid_at(at(1000)));
        assert!(claims.is_valid_at(at(440)) && !claims.is_valid_at(at(439)));
    }

    proptest! {
        #[test]
        fn no_token_panics(text in "\\PC{0,100}", parts in proptest::collection::vec("[A-Za-z0-9_-]{0,60}", 0..5)) {
            let _ = (Claims::unverified(&text), Claims::unverified(&parts.join(".")));
        }
    }
}
