//! Verifies the signatures of JSON Web Tokens (RFC 7515, RFC 7518, RFC 8725).
//!
//! The algorithm must be one that the key is for, so that a token cannot choose a weaker one, and symmetric algorithms and `none`
//! are never accepted.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{KeySet, curve_point};
use serde_json::{Map, Value};

/// The reason why a token is not accepted. It repeats nothing of the token but the name of the algorithm, truncated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// It has not the form of a signed token.
    #[error("the token is not a signed JSON Web Token")]
    Malformed,
    /// The algorithm is not accepted.
    #[error("the algorithm {0:?} of the token is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256 and ES384")]
    Algorithm(String),
    /// The token requires an extension.
    #[error("the token requires an extension (crit)")]
    Critical,
    /// No key verifies the signature.
    #[error("no key of the issuer verifies the signature of the token")]
    Signature,
}

/// A signature algorithm.
enum Algorithm {
    Rsa(&'static RsaParameters),
    /// A curve, and the size of a coordinate in bytes.
    Ec(&'static EcdsaVerificationAlgorithm, &'static str, usize),
}

impl Algorithm {
    fn of(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA512),
            "ES256" => Algorithm::Ec(&ECDSA_P256_SHA256_FIXED, "P-256", 32),
            "ES384" => Algorithm::Ec(&ECDSA_P384_SHA384_FIXED, "P-384", 48),
            _ => return None,
        })
    }

    /// Whether a key verifies the signature of a message.
    fn verifies(&self, key: &Map<String, Value>, message: &[u8], signature: &[u8]) -> bool {
        let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| URL_SAFE_NO_PAD.decode(text(name)).unwrap_or_default();
        match self {
            Algorithm::Rsa(parameters) if text("kty") == "RSA" => {
                let (n, e) = (number("n"), number("e"));
                let significant = |number: &[u8]| number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
                let key = RsaPublicKeyComponents { n: &n[significant(&n)..], e: &e[significant(&e)..] };
                key.verify(parameters, message, signature).is_ok()
            }
            Algorithm::Ec(algorithm, curve, size) if text("kty") == "EC" && text("crv") == *curve => {
                curve_point(&number("x"), &number("y"), *size)
                    .is_some_and(|point| UnparsedPublicKey::new(*algorithm, point).verify(message, signature).is_ok())
            }
            _ => false,
        }
    }
}

/// The public keys of an issuer.
#[derive(Clone, PartialEq, Debug)]
pub struct IssuerKeys(Vec<Map<String, Value>>);

impl From<&KeySet> for IssuerKeys {
    fn from(set: &KeySet) -> IssuerKeys {
        let set: Value = serde_json::from_str(set.json()).unwrap_or_default();
        let keys = set["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        IssuerKeys(keys.iter().filter_map(Value::as_object).cloned().collect())
    }
}

impl IssuerKeys {
    /// The claims of a token that one of the keys has signed. Issuer, audience and times are not checked.
    ///
    /// # Errors
    /// The reason why the token is not accepted.
    pub fn verified(&self, token: &str) -> Result<Map<String, Value>, TokenError> {
        let Parts { signed, header, payload, signature } = Parts::of(token).ok_or(TokenError::Malformed)?;
        let (header, claims) = object(header).zip(object(payload)).ok_or(TokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        if header.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        let name = text("alg").ok_or(TokenError::Malformed)?;
        let algorithm = Algorithm::of(name).ok_or_else(|| TokenError::Algorithm(name.chars().take(20).collect()))?;
        let verifies = |key: &Map<String, Value>| {
            let fits = |member: &str, wanted: Option<&str>| {
                let given = key.get(member).and_then(Value::as_str);
                given.is_none() || wanted.is_none() || given == wanted
            };
            fits("alg", Some(name))
                && fits("kid", text("kid"))
                && algorithm.verifies(key, signed.as_bytes(), &signature)
        };
        match self.0.iter().any(verifies) {
            true => Ok(claims),
            false => Err(TokenError::Signature),
        }
    }
}

/// The claims of a token, which nothing has verified. `None` if it is not a signed token.
pub fn unverified(token: &str) -> Option<Map<String, Value>> {
    object(Parts::of(token)?.payload)
}

/// The encoded parts of a token.
struct Parts<'t> {
    /// Header and payload.
    signed: &'t str,
    header: &'t str,
    payload: &'t str,
    signature: &'t str,
}

impl Parts<'_> {
    fn of(token: &str) -> Option<Parts<'_>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        (!payload.contains('.')).then_some(Parts { signed, header, payload, signature })
    }
}

/// The JSON object in a part of a token.
fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair as RsaKey, KeySize};
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
        KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
        RSA_PSS_SHA512, RsaEncoding,
    };
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn encode(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn set(keys: &[Value]) -> IssuerKeys {
        IssuerKeys::from(&KeySet::fetched(json!({ "keys": keys }).to_string().as_bytes()).expect("keys"))
    }

    fn token(header: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(r#"{"sub":"a"}"#));
        let signature = sign(signed.as_bytes());
        format!("{signed}.{}", encode(signature))
    }

    struct Rsa(RsaKey);

    impl Rsa {
        fn new() -> Rsa {
            Rsa(RsaKey::generate(KeySize::Rsa2048).expect("a key"))
        }

        fn jwk(&self) -> Value {
            // An RSAPublicKey of RFC 8017: two headers and a zero before the modulus, and the exponent 65537 after it.
            let der = self.0.public_key().as_ref();
            let (n, e) = der[9..].split_at(self.0.public_modulus_len());
            assert_eq!(e, [2, 3, 1, 0, 1]);
            json!({"kty": "RSA", "n": encode(n), "e": "AQAB", "kid": "rsa"})
        }

        fn sign(&self, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
            let mut signature = vec![0; self.0.public_modulus_len()];
            self.0.sign(encoding, &SystemRandom::new(), message, &mut signature).expect("a signature");
            signature
        }
    }

    struct Ec(EcdsaKeyPair, &'static str);

    impl Ec {
        fn new(algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Ec {
            Ec(EcdsaKeyPair::generate(algorithm).expect("a key"), curve)
        }

        fn jwk(&self) -> Value {
            let point = &self.0.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kty": "EC", "crv": self.1, "x": encode(x), "y": encode(y), "kid": "ec"})
        }

        fn sign(&self, message: &[u8]) -> Vec<u8> {
            self.0.sign(&SystemRandom::new(), message).expect("a signature").as_ref().to_vec()
        }
    }

    #[test]
    fn every_algorithm_verifies_its_own_signatures_only() {
        let rsa = Rsa::new();
        let (p256, p384) =
            (Ec::new(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"), Ec::new(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"));
        let with_rsa = |encoding: &'static dyn RsaEncoding| {
            let rsa = &rsa;
            Box::new(move |message: &[u8]| rsa.sign(encoding, message)) as Box<dyn Fn(&[u8]) -> Vec<u8>>
        };
        let signers = [
            ("RS256", with_rsa(&RSA_PKCS1_SHA256), rsa.jwk()),
            ("RS384", with_rsa(&RSA_PKCS1_SHA384), rsa.jwk()),
            ("RS512", with_rsa(&RSA_PKCS1_SHA512), rsa.jwk()),
            ("PS256", with_rsa(&RSA_PSS_SHA256), rsa.jwk()),
            ("PS384", with_rsa(&RSA_PSS_SHA384), rsa.jwk()),
            ("PS512", with_rsa(&RSA_PSS_SHA512), rsa.jwk()),
            ("ES256", Box::new(|message: &[u8]| p256.sign(message)), p256.jwk()),
            ("ES384", Box::new(|message: &[u8]| p384.sign(message)), p384.jwk()),
        ];
        let all = set(&[rsa.jwk(), p256.jwk(), p384.jwk()]);
        for (name, sign, key) in &signers {
            let good = token(&json!({ "alg": name }), sign);
            assert_eq!(all.verified(&good).map(|claims| claims["sub"].clone()), Ok("a".into()), "{name}");
            assert!(set(std::slice::from_ref(key)).verified(&good).is_ok(), "{name}");
            assert!(set(&[Rsa::new().jwk()]).verified(&good).is_err(), "{name}: another key");
            for (other, ..) in signers.iter().filter(|(other, ..)| other != name) {
                let confused = token(&json!({ "alg": other }), sign);
                assert_eq!(all.verified(&confused), Err(TokenError::Signature), "{other} for {name}");
            }
        }
    }

    #[test]
    fn what_is_not_signed_by_a_key_for_it_is_not_accepted() {
        let key = Ec::new(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256");
        let keys = set(&[key.jwk()]);
        let signed = |header: &Value| token(header, |message| key.sign(message));
        let good = signed(&json!({"alg": "ES256", "kid": "ec"}));
        assert!(keys.verified(&good).is_ok());
        for (header, error) in [
            (json!({"alg": "none"}), TokenError::Algorithm("none".into())),
            (json!({"alg": "HS256"}), TokenError::Algorithm("HS256".into())),
            (json!({"alg": "ES256", "crit": ["b64"]}), TokenError::Critical),
            (json!({"alg": "ES256", "kid": "other"}), TokenError::Signature),
            (json!({}), TokenError::Malformed),
        ] {
            assert_eq!(keys.verified(&signed(&header)), Err(error), "{header}");
        }
        // The key says that it is for another algorithm.
        let mut other = key.jwk();
        other["alg"] = "ES256".into();
        assert!(set(&[other]).verified(&good).is_ok());
        // Changed claims, a changed header, and a signature that is cut off.
        let parts: Vec<&str> = good.split('.').collect();
        let claims = encode(r#"{"sub":"b"}"#);
        for forged in [
            [parts[0], &claims, parts[2]].join("."),
            [&*encode(r#"{"alg":"ES256"}"#), parts[1], parts[2]].join("."),
            good[..good.len() - 4].to_owned(),
            [parts[0], parts[1], ""].join("."),
            [parts[0], parts[1]].join("."),
        ] {
            assert!(keys.verified(&forged).is_err(), "{forged}");
        }
        assert_eq!(IssuerKeys::from(&KeySet::unverifiable()).verified(&good), Err(TokenError::Signature));
    }

    proptest! {
        #[test]
        fn no_token_panics(text in "\\PC{0,100}", parts in proptest::collection::vec("[A-Za-z0-9_-]{0,60}", 0..5)) {
            let keys = IssuerKeys::from(&KeySet::unverifiable());
            prop_assert!(keys.verified(&text).is_err() && keys.verified(&parts.join(".")).is_err());
            let _ = (unverified(&text), unverified(&parts.join(".")));
        }
    }
}
