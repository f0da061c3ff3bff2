//! JSON Web Key Sets: public keys of token issuers.
//!
//! A set contains only keys that Envoy can use, because Envoy rejects a whole listener for a set without any: an issuer must not
//! be able to keep a workload from other changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, ParsedPublicKey,
};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// The maximum size of a key set, in bytes.
pub const MAX_KEY_SET: usize = 1 << 20;
/// The maximum number of keys in a set.
const MAX_KEYS: usize = 100;
/// The first byte of an uncompressed point of a curve.
const UNCOMPRESSED: u8 = 4;
/// The algorithms of RSA keys that sign.
const RSA: [&str; 6] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
/// Numbers are encoded without padding, but some issuers pad them.
const DECODE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const ENCODE: GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A key set that verifies no token: nobody knows the private key.
///
/// The public key is a point of the curve P-256 whose x coordinate is the SHA-256 digest of the text `Rutter: nobody has the
/// private key of this point (N)`, for the first number N (here 1) that is the x coordinate of a point, with the even y coordinate. So
/// nobody, including its authors, can have chosen the point by its private key.
const UNVERIFIABLE: &str = concat!(
    r#"{"keys":[{"crv":"P-256","kty":"EC","#,
    r#""x":"uXCvRQxLIfDKTWT5eMpfJzFBIvC_mtcBDwbcip4BX6I","y":"3plW2R4UsTTTDwIH6y8k9Me6YisU7hB3i1fNZqAG4yo"}]}"#
);

/// Public keys in normal form: equal sets have equal text. It contains no private keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySet(Arc<str>);

/// The reason why a text is not a usable key set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// It exceeds a limit.
    #[error("the key set is larger than 1 MiB or has more than 100 keys")]
    TooLarge,
    /// It is not a JSON object with a list `keys`.
    #[error("the document is not a JSON Web Key Set")]
    Malformed,
    /// It has no key that can verify a signature.
    #[error("the key set has no public key that can verify a signature")]
    NoKeys,
}

impl KeySet {
    /// The keys that a rule has inline: a set, or a single key. Symmetric keys are kept.
    ///
    /// # Errors
    /// The text is not a usable key set.
    pub fn inline(text: &str) -> Result<KeySet, KeySetError> {
        KeySet::parse(text.as_bytes(), true)
    }

    /// The keys of a fetched document. Symmetric keys are left out: whoever can fetch them could sign tokens.
    ///
    /// # Errors
    /// The document is not a usable key set.
    pub fn fetched(body: &[u8]) -> Result<KeySet, KeySetError> {
        KeySet::parse(body, false)
    }

    /// A set that verifies no token, for issuers whose keys are not known.
    pub fn unverifiable() -> KeySet {
        KeySet(UNVERIFIABLE.into())
    }

    /// The set as JSON.
    pub fn json(&self) -> &str {
        &self.0
    }

    fn parse(body: &[u8], inline: bool) -> Result<KeySet, KeySetError> {
        if body.len() > MAX_KEY_SET {
            return Err(KeySetError::TooLarge);
        }
        let Ok(Value::Object(mut set)) = serde_json::from_slice::<Value>(body) else {
            return Err(KeySetError::Malformed);
        };
        let keys = match set.remove("keys") {
            Some(Value::Array(keys)) => keys,
            None if inline => vec![Value::Object(set)],
            _ => return Err(KeySetError::Malformed),
        };
        if keys.len() > MAX_KEYS {
            return Err(KeySetError::TooLarge);
        }
        // Sorted and without duplicates, so that an issuer that lists its keys in another order changes nothing.
        let usable: BTreeSet<String> = keys.iter().filter_map(|key| public_members(key, inline)).collect();
        if usable.is_empty() {
            return Err(KeySetError::NoKeys);
        }
        let usable: Vec<String> = usable.into_iter().collect();
        Ok(KeySet(format!(r#"{{"keys":[{}]}}"#, usable.join(",")).into()))
    }
}

/// The members of a key that verification needs, in order of their names; none for a key that Envoy cannot use.
fn public_members(key: &Value, symmetric: bool) -> Option<String> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| DECODE.decode(text(name)?).ok();
    let algorithm = text("alg");
    let signs_with = |names: &[&str]| algorithm.is_none_or(|name| names.contains(&name));
    let kind = text("kty")?;
    let encode = |bytes: &[u8]| ENCODE.encode(bytes);
    let mut members: BTreeMap<&str, String> = BTreeMap::new();
    match kind {
        "RSA" => {
            let (modulus, exponent) = (bytes("n")?, bytes("e")?);
            (signs_with(&RSA) && is_rsa(&modulus, &exponent)).then_some(())?;
            members.extend([("e", encode(&exponent)), ("n", encode(&modulus))]);
        }
        "EC" => {
            let (curve, x, y) = (text("crv")?, bytes("x")?, bytes("y")?);
            let (form, size, name) = match curve {
                "P-256" => (&ECDSA_P256_SHA256_FIXED, 32, "ES256"),
                "P-384" => (&ECDSA_P384_SHA384_FIXED, 48, "ES384"),
                "P-521" => (&ECDSA_P521_SHA512_FIXED, 66, "ES512"),
                _ => return None,
            };
            let is_point = ParsedPublicKey::new(form, curve_point(&x, &y, size)?).is_ok();
            (signs_with(&[name]) && is_point).then_some(())?;
            members.extend([("crv", curve.to_owned()), ("x", encode(&x)), ("y", encode(&y))]);
        }
        "OKP" => {
            let (curve, x) = (text("crv")?, bytes("x")?);
            let is_usable = curve == "Ed25519" && signs_with(&["EdDSA"]);
            (is_usable && ParsedPublicKey::new(&ED25519, &x).is_ok()).then_some(())?;
            members.extend([("crv", curve.to_owned()), ("x", encode(&x))]);
        }
        "oct" if symmetric && signs_with(&["HS256", "HS384", "HS512"]) => {
            members.insert("k", encode(&bytes("k").filter(|secret| !secret.is_empty())?));
        }
        _ => return None,
    }
    members.insert("kty", kind.to_owned());
    members.extend(["alg", "kid"].into_iter().filter_map(|name| Some((name, text(name)?.to_owned()))));
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value))).collect();
    Some(format!("{{{}}}", members.join(",")))
}

/// Whether Envoy's library accepts an RSA key: it refuses larger and even numbers. Smaller keys are insecure.
fn is_rsa(modulus: &[u8], exponent: &[u8]) -> bool {
    let significant = |number: &[u8]| number.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<u8>>();
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    let (modulus, exponent) = (significant(modulus), significant(exponent));
    let fits = (128..=1024).contains(&modulus.len()) && (1..=4).contains(&exponent.len()) && exponent != [1];
    fits && is_odd(&modulus) && is_odd(&exponent)
}

/// The uncompressed form (SEC 1, section 2.3.3) of the point of a curve with coordinates of this size in bytes; none if one of
/// them is larger.
pub fn curve_point(x: &[u8], y: &[u8], size: usize) -> Option<Vec<u8>> {
    Some([vec![UNCOMPRESSED], padded(x, size)?, padded(y, size)?].concat())
}

/// A number as big-endian bytes of this size; none if it is larger.
fn padded(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let missing = size.checked_sub(number.len())?;
    Some([vec![0; missing], number.to_vec()].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fetched(set: &Value) -> Result<String, KeySetError> {
        KeySet::fetched(set.to_string().as_bytes()).map(|set| set.json().to_owned())
    }

    /// A modulus of this number of bytes.
    fn modulus(size: usize) -> String {
        ENCODE.encode([vec![0xc1; size - 1], vec![1]].concat())
    }

    fn rsa() -> Value {
        json!({"kty": "RSA", "n": modulus(256), "e": "AQAB", "kid": "1"})
    }

    /// The base point of P-256.
    fn ec() -> Value {
        json!({"kty": "EC", "crv": "P-256", "kid": "2", "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"})
    }

    fn with(mut key: Value, name: &str, value: &str) -> Value {
        key[name] = value.into();
        key
    }

    #[test]
    fn equal_sets_have_equal_text() {
        let first = fetched(&json!({"keys": [ec(), rsa()]}));
        let padded = with(with(rsa(), "n", &format!("{}==", modulus(256))), "use", "sig");
        assert_eq!(fetched(&json!({"keys": [padded, ec(), rsa()], "x": 1})), first);
        assert!(first.is_ok_and(|text| text.starts_with(r#"{"keys":[{"crv":"P-256","kid":"2","kty":"EC","x":"#)));
    }

    #[test]
    fn cve_2026_31837_no_private_or_symmetric_key_is_shown() {
        let private = with(with(ec(), "d", "secret"), "k", "secret");
        assert_eq!(fetched(&json!({"keys": [private]})), fetched(&json!({"keys": [ec()]})));
        let symmetric = json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]});
        assert_eq!(fetched(&symmetric), Err(KeySetError::NoKeys));
        assert!(KeySet::inline(&symmetric.to_string()).is_ok(), "whoever writes one inline wants it");
        // The set for unknown keys has one public key, which is a point of the curve, and nothing else.
        let none = KeySet::unverifiable();
        let set: Value = serde_json::from_str(none.json()).expect("JSON");
        let members: Vec<&String> = set["keys"][0].as_object().expect("a key").keys().collect();
        assert_eq!(members, ["crv", "kty", "x", "y"]);
        assert_eq!(KeySet::fetched(none.json().as_bytes()), Ok(none));
    }

    #[test]
    fn documents_without_usable_keys_are_errors() {
        let cases = [
            (json!([]), KeySetError::Malformed),
            (json!({}), KeySetError::Malformed),
            (rsa(), KeySetError::Malformed),
            (json!({"keys": {}}), KeySetError::Malformed),
            (json!({"keys": []}), KeySetError::NoKeys),
            (json!({"keys": [1, {"kty": "new"}, {"kty": "RSA", "n": 1, "e": "AQAB"}]}), KeySetError::NoKeys),
        ];
        for (set, error) in cases {
            assert_eq!(fetched(&set), Err(error), "{set}");
        }
        assert!(KeySet::inline(&rsa().to_string()).is_ok());
        assert_eq!(KeySet::fetched(b"no json"), Err(KeySetError::Malformed));
        assert_eq!(fetched(&json!({"keys": vec![rsa(); MAX_KEYS + 1]})), Err(KeySetError::TooLarge));
        assert_eq!(KeySet::fetched(" ".repeat(MAX_KEY_SET + 1).as_bytes()), Err(KeySetError::TooLarge));
    }

    /// Envoy rejects a listener if it can use no key of a set.
    #[test]
    fn keys_that_envoy_cannot_use_are_left_out() {
        let even = ENCODE.encode(vec![0xc2; 256]);
        let unusable = [
            with(rsa(), "n", "AQ"),
            with(rsa(), "n", &modulus(64)),
            with(rsa(), "n", &modulus(1025)),
            with(rsa(), "n", &even),
            with(rsa(), "n", "not+base64url/"),
            with(rsa(), "e", "AQ"),
            with(rsa(), "e", "Ag"),
            with(rsa(), "e", "AQABAQAB"),
            with(rsa(), "alg", "RSA-OAEP"),
            with(ec(), "x", "AQ"),
            with(ec(), "crv", "P-384"),
            with(ec(), "crv", "secp256k1"),
            with(ec(), "alg", "ES384"),
            with(ec(), "y", &modulus(256)),
            json!({"kty": "OKP", "crv": "X25519", "x": ENCODE.encode([1; 32])}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AQ"}),
        ];
        for key in unusable {
            assert_eq!(fetched(&json!({"keys": [key]})), Err(KeySetError::NoKeys), "{key}");
            assert_eq!(fetched(&json!({"keys": [key, ec()]})), fetched(&json!({"keys": [ec()]})), "{key}");
        }
        let usable = [with(rsa(), "alg", "PS256"), with(rsa(), "n", &modulus(128)), with(ec(), "alg", "ES256")];
        for key in usable {
            assert!(fetched(&json!({"keys": [key]})).is_ok(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn every_accepted_document_is_a_key_set(body in any::<Vec<u8>>(), kid in ".*", x in any::<Vec<u8>>(), k in 1_usize..200) {
            let _ = KeySet::fetched(&body);
            let odd = json!({"kty": "EC", "crv": "P-256", "x": ENCODE.encode(&x), "y": ENCODE.encode(&body)});
            let set = json!({"keys": [with(with(rsa(), "kid", &kid), "d", "secret"), odd, with(rsa(), "n", &modulus(k))]});
            let set = KeySet::fetched(set.to_string().as_bytes()).expect("a key set");
            let json: Value = serde_json::from_str(set.json()).expect("JSON");
            let keys = json["keys"].as_array().expect("keys");
            prop_assert!(keys.iter().any(|key| key["kid"] == kid.as_str()));
            prop_assert!(keys.iter().all(|key| key.get("d").is_none()));
            // The normal form is stable.
            prop_assert_eq!(KeySet::fetched(set.json().as_bytes()), Ok(set));
        }
    }
}
