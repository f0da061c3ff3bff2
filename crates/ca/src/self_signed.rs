//! The self-signed authority: creation, rotation, and its Secrets.
//!
//! A root is rotated when a fifth of its life is left: a new certificate for the same key, subject and key identifier.
//! Certificates that the old root issued remain valid under the new one and vice versa, so that proxies may receive the
//! new root at any time. Roots that are still valid remain in the bundle.
//!
//! The Secret is `istio-ca-secret`, or `cacerts` with the key `istio-generated` (`USE_CACERTS_FOR_SELF_SIGNED_CA`). Its
//! keys are istiod's, so that either control plane can take over from the other.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::authority::{Authority, BACK_DATE, Parts};
use crate::certificate::{Certificate, seconds};
use crate::der::{self, Role, Signer, Template};
use crate::key::{KeyError, KeyKind, PrivateKey};
use crate::plugged_in::{self, Layout, PluggedInError, Problem};

/// The name of the Secret with a self-signed authority.
pub const SECRET: &str = "istio-ca-secret";
/// The type of that Secret.
pub const SECRET_TYPE: &str = "istio.io/ca-root";
/// The name of the Secret with plugged-in certificates.
pub const CACERTS: &str = "cacerts";
/// The key that marks a Secret `cacerts` as self-signed.
pub const GENERATED: &str = "istio-generated";

/// The most roots of other keys that remain in the bundle.
const MAX_OTHER_ROOTS: usize = 8;

/// The settings of a self-signed authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The organization in the root's subject: the trust domain.
    pub organization: String,
    /// The lifetime of the root (`CITADEL_SELF_SIGNED_CA_CERT_TTL`).
    pub lifetime: Duration,
    /// The kind of its key (`CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE`).
    pub key: KeyKind,
    /// The part of the life, in percent, that is left when the root is rotated
    /// (`CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE`). Values above 100 count as 100.
    pub grace_percent: u8,
}

impl Settings {
    /// istiod's defaults: 3,650 days, RSA with 2048 bits, 20 percent.
    pub fn new(organization: &str) -> Settings {
        Settings {
            organization: organization.to_owned(),
            lifetime: Duration::from_secs(3650 * 86_400),
            key: KeyKind::default(),
            grace_percent: 20,
        }
    }
}

/// Creates a root with a new key.
///
/// # Errors
/// The key cannot be generated.
pub fn create(settings: &Settings, now: SystemTime) -> Result<Authority, KeyError> {
    let key = PrivateKey::generate(settings.key)?;
    let subject = der::subject(Some(&settings.organization), None);
    let root = sign_root(&key, &subject, &der::key_id(key.public_bits()), settings.lifetime, now)?;
    Ok(Authority::new(Parts {
        roots: vec![root.clone()],
        issuer: root,
        key,
        intermediates: Vec::new(),
        revocation: None,
    }))
}

/// Creates a new root for the same key, subject and key identifier. It replaces the earlier one in the bundle: Envoy uses the first
/// root with the issuer's name and key, and rejects all certificates once that one has expired, whatever follows it. Proxies that
/// only have the earlier root accept certificates of the new one, and the reverse. Valid roots of other keys remain.
///
/// # Errors
/// The cryptographic library fails.
pub fn rotate(authority: &Authority, settings: &Settings, now: SystemTime) -> Result<Authority, KeyError> {
    let (old, key) = (authority.issuer(), authority.key().clone());
    let key_id = old.key_id().map_or_else(|| der::key_id(key.public_bits()), <[u8]>::to_vec);
    let root = sign_root(&key, old.encoded_subject(), &key_id, settings.lifetime, now)?;
    let mut roots = vec![root.clone()];
    let others = authority.roots().iter().filter(|other| other.is_valid_at(now) && !other.is_same_authority(&root));
    roots.extend(others.take(MAX_OTHER_ROOTS).cloned());
    Ok(Authority::new(Parts { issuer: root, key, intermediates: Vec::new(), roots, revocation: None }))
}

fn sign_root(
    key: &PrivateKey,
    subject: &[u8],
    key_id: &[u8],
    lifetime: Duration,
    now: SystemTime,
) -> Result<Certificate, KeyError> {
    let now = seconds(now);
    let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    let template = Template {
        subject,
        public_key: &key.public_key(),
        valid: (now - BACK_DATE.as_secs().cast_signed(), now.saturating_add(lifetime)),
        role: Role::Authority(key_id),
    };
    let der = der::certificate(&template, &Signer { subject, key_id: None, key })?;
    Certificate::from_der(&der).map_err(|_| KeyError::Library)
}

/// The decision about a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Keep the root; decide again at this time.
    Keep {
        /// The start of the grace period.
        until: SystemTime,
    },
    /// Rotate now: the grace period has begun.
    Due,
    /// Rotate now: the root has expired, and no certificate can be issued until then.
    Expired,
}

/// Decides whether the root must be rotated.
pub fn decide(authority: &Authority, settings: &Settings, now: SystemTime) -> Rotation {
    let root = authority.issuer();
    let life = root.not_after().duration_since(root.not_before()).unwrap_or_default();
    let grace = life.mul_f64(f64::from(settings.grace_percent.min(100)) / 100.0);
    let until = root.not_after().checked_sub(grace).unwrap_or(SystemTime::UNIX_EPOCH);
    if now >= root.not_after() {
        Rotation::Expired
    } else if now > until {
        Rotation::Due
    } else {
        Rotation::Keep { until }
    }
}

/// The data of the Secret with this name ([`SECRET`] or [`CACERTS`]). It contains the private key.
pub fn to_secret(authority: &Authority, name: &str) -> BTreeMap<String, Vec<u8>> {
    let layout = Layout::ISTIO;
    let mut data = BTreeMap::from([
        (layout.chain.to_owned(), Vec::new()),
        ("key.pem".to_owned(), Vec::new()),
        (layout.roots.to_owned(), authority.roots_pem().into()),
        (layout.certificate.to_owned(), authority.issuer().pem().into()),
        (layout.key.to_owned(), authority.key().expose_pem().into()),
    ]);
    if name == CACERTS {
        data.insert(GENERATED.to_owned(), Vec::new());
    }
    data
}

/// Reads the data of a Secret that istiod or [`to_secret`] wrote. An expired root is accepted, so that it can be rotated;
/// until then, no certificate is issued.
///
/// # Errors
/// The certificate or the key is missing, damaged, or they do not belong together.
pub fn from_secret(data: &BTreeMap<String, Vec<u8>>, now: SystemTime) -> Result<Authority, PluggedInError> {
    let layout = Layout::ISTIO;
    let of = |key: &'static str| data.get(key).map(Vec::as_slice).filter(|value| !value.is_empty());
    let missing: Vec<_> = [layout.certificate, layout.key].into_iter().filter(|key| of(key).is_none()).collect();
    let (Some(certificate), Some(key)) = (of(layout.certificate), of(layout.key)) else {
        let present = [layout.certificate, layout.key].into_iter().filter(|key| of(key).is_some()).collect();
        return Err(PluggedInError::Incomplete { missing, present });
    };
    let issuer = plugged_in::first(layout.certificate, certificate)?;
    let key = PrivateKey::from_pem(key).map_err(|error| PluggedInError::at(layout.key, Problem::Key(error)))?;
    plugged_in::check_pair(&issuer, &key, &layout)?;
    let mut roots = vec![issuer.clone()];
    // istiod ignores these roots and keeps the oldest one. Those of other keys are useful while they are valid, if they can be read.
    let others = of(layout.roots).and_then(|pem| Certificate::list(pem).ok()).unwrap_or_default();
    for root in others {
        let is_known = roots.iter().any(|known| known.is_same_authority(&root));
        if root.is_valid_at(now) && root.is_authority() && !is_known {
            roots.push(root);
        }
    }
    Ok(Authority::new(Parts { issuer, key, intermediates: Vec::new(), roots, revocation: None }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tests::{DAY, identity, now, request, verify};
    use crate::{Csr, Lifetimes};

    fn settings() -> Settings {
        Settings { key: KeyKind::P256, ..Settings::new("cluster.local") }
    }

    #[test]
    fn the_defaults_are_those_of_istiod() {
        let settings = Settings::new("cluster.local");
        assert_eq!((settings.key, settings.grace_percent), (KeyKind::Rsa(2048), 20));
        assert_eq!(settings.lifetime, DAY * 3650);
    }

    #[test]
    fn a_root_is_rotated_when_a_fifth_of_its_life_is_left() {
        let authority = create(&settings(), now()).unwrap();
        assert_eq!(authority.issuer().subject(), "O=cluster.local");
        let Rotation::Keep { until } = decide(&authority, &settings(), now()) else { panic!("too early") };
        let left = authority.issuer().not_after().duration_since(until).unwrap();
        assert!(left >= DAY * 730 && left < DAY * 731, "{left:?}");
        assert_eq!(decide(&authority, &settings(), until), Rotation::Keep { until });
        assert_eq!(decide(&authority, &settings(), until + DAY), Rotation::Due);
        assert_eq!(decide(&authority, &settings(), now() + DAY * 3650), Rotation::Expired);
        let always = Settings { grace_percent: 255, ..settings() };
        assert_eq!(decide(&authority, &always, now()), Rotation::Due);
    }

    #[test]
    fn leaves_of_both_roots_are_valid_under_either() {
        let old = create(&settings(), now()).unwrap();
        let later = now() + DAY * 3000;
        let new = rotate(&old, &settings(), later).unwrap();
        assert_ne!(new.issuer(), old.issuer());
        assert_eq!(new.issuer().key_id(), old.issuer().key_id());
        assert_eq!(new.roots(), [new.issuer().clone()], "Envoy uses the first root of a key, even if it has expired");
        let csr = Csr::from_pem(&request().0).unwrap();
        for issuer in [&old, &new] {
            let leaf = issuer.issue(&csr, &[identity("a")], 0, &Lifetimes::default(), later).unwrap();
            for root in [&old, &new] {
                verify(&leaf, &[root.issuer().clone()], later).unwrap();
            }
        }
    }

    #[test]
    fn roots_of_other_keys_remain_while_they_are_valid() {
        let (old, other) = (create(&settings(), now()).unwrap(), create(&settings(), now()).unwrap());
        let mut data = to_secret(&old, SECRET);
        let roots = [other.roots_pem(), old.roots_pem()].concat();
        data.insert("root-cert.pem".to_owned(), roots.into());
        let mut authority = from_secret(&data, now()).unwrap();
        for hour in 0..20 {
            authority = rotate(&authority, &settings(), now() + Duration::from_secs(hour * 3600)).unwrap();
            assert_eq!(authority.roots(), [authority.issuer().clone(), other.issuer().clone()]);
        }
        let after = rotate(&authority, &settings(), now() + DAY * 5000).unwrap();
        assert_eq!(after.roots(), [after.issuer().clone()], "the other one has expired");
    }

    #[test]
    fn earlier_roots_of_the_same_key_are_left_out_of_a_stored_bundle() {
        let old = create(&settings(), now()).unwrap();
        let new = rotate(&old, &settings(), now() + DAY).unwrap();
        let mut data = to_secret(&new, SECRET);
        data.insert("root-cert.pem".to_owned(), [old.roots_pem(), new.roots_pem()].concat().into());
        assert_eq!(from_secret(&data, now() + DAY).unwrap(), new);
    }

    #[test]
    fn an_expired_root_is_recovered_from_its_secret() {
        let old = create(&settings(), now()).unwrap();
        let later = now() + DAY * 4000;
        let stored = from_secret(&to_secret(&old, SECRET), later).unwrap();
        assert_eq!(decide(&stored, &settings(), later), Rotation::Expired);
        let csr = Csr::from_pem(&request().0).unwrap();
        assert!(stored.issue(&csr, &[identity("a")], 0, &Lifetimes::default(), later).is_err());
        let new = rotate(&stored, &settings(), later).unwrap();
        let leaf = new.issue(&csr, &[identity("a")], 0, &Lifetimes::default(), later).unwrap();
        verify(&leaf, new.roots(), later).unwrap();
    }

    #[test]
    fn the_secret_has_the_keys_of_istiod_and_reads_back() {
        let authority = rotate(&create(&settings(), now()).unwrap(), &settings(), now() + DAY).unwrap();
        let data = to_secret(&authority, SECRET);
        let keys: BTreeSet<&str> = data.keys().map(String::as_str).collect();
        let expected = ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "key.pem", "root-cert.pem"];
        assert_eq!(keys, BTreeSet::from(expected));
        assert_eq!(from_secret(&data, now() + DAY).unwrap(), authority);
        assert!(to_secret(&authority, CACERTS).contains_key("istio-generated"));
        let generated = plugged_in::load(&to_secret(&authority, CACERTS), now() + DAY).unwrap();
        assert!(matches!(generated, plugged_in::Loaded::SelfSigned));
    }

    #[test]
    fn a_secret_of_two_authorities_is_refused() {
        let (one, other) = (create(&settings(), now()).unwrap(), create(&settings(), now()).unwrap());
        let mut data = to_secret(&one, SECRET);
        data.insert("ca-key.pem".to_owned(), other.key().expose_pem().into());
        let error = from_secret(&data, now()).unwrap_err().to_string();
        assert!(error.starts_with("ca-key.pem: is not the key of ca-cert.pem"), "{error}");
        data.remove("ca-key.pem");
        let error = from_secret(&data, now()).unwrap_err().to_string();
        assert!(error.contains("ca-key.pem") && !error.contains("PRIVATE"), "{error}");
    }

    #[test]
    fn a_key_identifier_of_another_scheme_survives_rotation() {
        let key = PrivateKey::generate(KeyKind::P256).unwrap();
        let subject = der::subject(Some("mesh"), None);
        let root = sign_root(&key, &subject, b"a SHA-1 of the key", DAY * 10, now()).unwrap();
        let roots = vec![root.clone()];
        let old = Authority::new(Parts { issuer: root, key, intermediates: Vec::new(), roots, revocation: None });
        let new = rotate(&old, &settings(), now()).unwrap();
        assert_eq!(new.issuer().key_id(), Some(&b"a SHA-1 of the key"[..]));
    }
}
