use std::net::Ipv4Addr;

use proptest::prelude::*;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;
use crate::KeyKind;
use crate::self_signed::{Settings, create};
use crate::tests::{DAY, foreign, identity, now, request, root, verify};

fn csr() -> Csr {
    Csr::from_pem(&request().0).unwrap()
}

fn issue(authority: &Authority, lifetime: i64, now: SystemTime) -> Result<Issued, IssueError> {
    authority.issue(&csr(), &[identity("cart")], lifetime, &Lifetimes::default(), now)
}

/// Start and end of a certificate, relative to the time of the tests, in seconds.
fn validity(der: &[u8]) -> (i64, i64) {
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let validity = certificate.validity();
    (validity.not_before.timestamp() - seconds(now()), validity.not_after.timestamp() - seconds(now()))
}

fn uris(der: &[u8]) -> Vec<String> {
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert!(names.critical);
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => (*uri).to_owned(),
        other => panic!("another name: {other}"),
    };
    names.value.general_names.iter().map(uri).collect()
}

#[test]
fn the_fields_are_those_of_istiod() {
    let issued = issue(&root("cluster.local", now()), 0, now()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&issued.der).unwrap();
    assert_eq!(certificate.subject().to_string(), "");
    assert_eq!(certificate.issuer().to_string(), "O=cluster.local");
    assert_eq!(uris(&issued.der), ["spiffe://cluster.local/ns/shop/sa/cart"]);
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical);
    assert_eq!(usage.value.to_string(), "Digital Signature, Key Encipherment");
    let extended = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.server_auth && extended.client_auth && !extended.any);
    let basic = certificate.basic_constraints().unwrap().unwrap();
    assert!(basic.critical && !basic.value.ca);
    assert_eq!(certificate.raw_serial().len(), 16);
    assert_eq!(validity(&issued.der), (-120, 86_400));
    assert_eq!(issued.not_after, now() + DAY);
}

#[test]
fn serial_numbers_differ() {
    let authority = root("cluster.local", now());
    let serial = || {
        let issued = issue(&authority, 0, now()).unwrap();
        X509Certificate::from_der(&issued.der).unwrap().1.raw_serial().to_vec()
    };
    assert_ne!(serial(), serial());
}

#[test]
fn a_common_name_is_the_identity_if_it_was_asked_for_and_fits() {
    let authority = root("cluster.local", now());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "admin");
    let csr = Csr::from_der(params.serialize_request(&key).unwrap().der()).unwrap();
    for (account, expected) in [("cart", "CN=spiffe://cluster.local/ns/shop/sa/cart"), (&*"a".repeat(40), "")] {
        let issued = authority.issue(&csr, &[identity(account)], 0, &Lifetimes::default(), now()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&issued.der).unwrap();
        assert_eq!(certificate.subject().to_string(), expected);
        verify(&issued, authority.roots(), now()).unwrap();
    }
}

#[test]
fn keys_of_every_kind_sign() {
    for key in [KeyKind::P256, KeyKind::P384, KeyKind::Rsa(2048)] {
        let authority = create(&Settings { key, ..Settings::new("mesh") }, now()).unwrap();
        let issued = issue(&authority, 3600, now()).unwrap();
        verify(&issued, authority.roots(), now()).unwrap();
        assert!(verify(&issued, authority.roots(), now() + DAY).is_err(), "it has expired");
        assert!(verify(&issued, root("mesh", now()).roots(), now()).is_err(), "another root of the same name");
    }
}

#[test]
fn the_answer_is_leaf_intermediates_roots() {
    let (top, other) = (foreign("root", None, |_| ()), foreign("other root", None, |_| ()));
    let middle = foreign("middle", Some(&top), |_| ());
    let issuer = foreign("issuer", Some(&middle), |_| ());
    let data = crate::tests::cacerts(&issuer, &[&issuer, &middle, &top], &[&top, &other]);
    let crate::plugged_in::Loaded::PluggedIn(authority) = crate::plugged_in::load(&data, now()).unwrap() else {
        panic!("not plugged in");
    };
    let issued = issue(&authority, 0, now()).unwrap();
    let chain = issued.chain();
    assert_eq!(chain.len(), 4);
    assert_eq!(chain[0], pem("CERTIFICATE", &issued.der));
    let subjects = |pem: &str| -> Vec<String> {
        Certificate::list(pem.as_bytes()).unwrap().iter().map(|one| one.subject().to_owned()).collect()
    };
    assert_eq!(subjects(&chain[1]), ["CN=issuer"]);
    assert_eq!(subjects(&chain[2]), ["CN=middle"]);
    assert_eq!(subjects(&chain[3]), ["CN=root", "CN=other root"]);
    assert!(chain.iter().all(|part| part.ends_with("-----END CERTIFICATE-----\n")));
    assert_eq!(issued.presented().len(), 3);
    verify(&issued, &Certificate::list(chain[3].as_bytes()).unwrap(), now()).unwrap();
}

#[test]
fn an_issuer_with_repeated_attributes_is_named_byte_for_byte() {
    let part = |w: yasna::DERWriter<'_>, value: &str| {
        w.write_set(|w| {
            w.next().write_sequence(|w| {
                let dc = [0, 9, 2342, 19_200_300, 100, 1, 25];
                w.next().write_oid(&yasna::models::ObjectIdentifier::from_slice(&dc));
                w.next().write_ia5_string(value);
            });
        });
    };
    let subject = yasna::construct_der(|w| {
        w.write_sequence(|w| {
            for value in ["com", "example", "mesh"] {
                part(w.next(), value);
            }
        });
    });
    let key = PrivateKey::generate(KeyKind::P256).unwrap();
    let (public_key, at) = (key.public_key(), seconds(now()));
    let template = Template {
        subject: &subject,
        public_key: &public_key,
        valid: (at - 10, at + 9999),
        role: Role::Authority(b"id"),
    };
    let der = der::certificate(&template, &Signer { subject: &subject, key_id: None, key: &key }).unwrap();
    let issuer = Certificate::from_der(&der).unwrap();
    assert_eq!(issuer.subject(), "DC=com, DC=example, DC=mesh");
    let roots = vec![issuer.clone()];
    let authority = Authority::new(Parts { issuer, key, intermediates: Vec::new(), roots, revocation: None });
    let issued = issue(&authority, 0, now()).unwrap();
    verify(&issued, authority.roots(), now()).unwrap();
}

#[test]
fn lifetimes_have_a_default_and_a_maximum() {
    let authority = root("mesh", now());
    let end = |lifetime| issue(&authority, lifetime, now()).map(|issued| validity(&issued.der).1);
    for (asked, expected) in [(0, 86_400), (-5, 86_400), (i64::MIN, 86_400), (1, 1), (90 * 86_400, 90 * 86_400)] {
        assert_eq!(end(asked), Ok(expected), "{asked}");
    }
    for asked in [90 * 86_400 + 1, i64::MAX] {
        let error = end(asked).unwrap_err();
        assert_eq!((error.code(), error.label()), (Code::InvalidArgument, "TTL_ERROR"));
    }
}

#[test]
fn an_expired_issuer_signs_nothing() {
    let authority = root("mesh", now());
    let error = issue(&authority, 0, authority.issuer().not_after()).unwrap_err();
    assert_eq!((error.code(), error.label()), (Code::Internal, "CERT_GEN_ERROR"));
    assert!(issue(&authority, 0, authority.issuer().not_after() - Duration::from_secs(1)).is_ok());
}

#[test]
fn certificates_can_outlast_2049_and_bad_clocks_are_errors() {
    let late = SystemTime::UNIX_EPOCH + DAY * 40_000;
    let authority = root("mesh", late);
    let issued = issue(&authority, 0, late).unwrap();
    verify(&issued, authority.roots(), late).unwrap();
    let settings = Settings { key: KeyKind::P256, ..Settings::new("mesh") };
    assert!(create(&settings, SystemTime::UNIX_EPOCH + DAY * 4_000_000).is_err(), "the year 10,000 cannot be encoded");
    assert!(create(&Settings { lifetime: Duration::MAX, ..settings }, now()).is_err());
}

#[test]
fn identities_that_cannot_be_encoded_are_refused() {
    let authority = root("mesh", now());
    let try_all = |list: &[Identity]| authority.issue(&csr(), list, 0, &Lifetimes::default(), now()).map(|_| ());
    let named = |name: &str| Identity { namespace: name.into(), ..identity("a") };
    assert_eq!(try_all(&[]), Err(IssueError::Identity));
    for bad in ["é", "a b", "a\0", &*"n".repeat(3000)] {
        assert_eq!(try_all(&[identity("a"), named(bad)]), Err(IssueError::Identity), "{bad}");
    }
    assert_eq!(try_all(&vec![identity("a"); MAX_IDENTITIES + 1]), Err(IssueError::Identity));
}

#[test]
fn addresses_and_names_are_encoded_for_serving() {
    let authority = root("mesh", now());
    let names = [AlternativeName::Ip(Ipv4Addr::LOCALHOST.into()), AlternativeName::Dns("a.example".to_owned())];
    let issued = authority.leaf(csr().public_key(), None, &names, DAY, now()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&issued.der).unwrap();
    let found = certificate.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(found.general_names, [GeneralName::IPAddress(&[127, 0, 0, 1]), GeneralName::DNSName("a.example")]);
}

#[test]
fn debug_output_shows_no_key() {
    for key in [KeyKind::P256, KeyKind::Rsa(2048)] {
        let authority = create(&Settings { key, ..Settings::new("mesh") }, now()).unwrap();
        let issued = issue(&authority, 0, now()).unwrap();
        let shown = format!("{authority:?} {issued:?} {:?} {:?}", authority.key(), csr());
        let lines = authority.key().expose_pem().lines().filter(|line| !line.starts_with('-'));
        for line in lines {
            assert!(!shown.contains(line), "{shown}");
        }
        assert!(shown.len() < 10_000 && shown.contains("O=mesh"), "{shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_certificate_never_outlasts_its_issuer(
        lifetime in prop_oneof![any::<i64>(), -10i64..100 * 86_400],
        life in 1u64..400,
        after in 0u64..410 * 86_400,
    ) {
        let settings = Settings { lifetime: DAY * u32::try_from(life).unwrap(), key: KeyKind::P256, ..Settings::new("m") };
        let authority = create(&settings, now()).unwrap();
        let at = now() + Duration::from_secs(after);
        match issue(&authority, lifetime, at) {
            Ok(issued) => {
                let (start, end) = validity(&issued.der);
                prop_assert!(end <= i64::try_from(life * 86_400).unwrap());
                prop_assert_eq!(start, i64::try_from(after).unwrap() - 120);
                prop_assert!(end > i64::try_from(after).unwrap());
                prop_assert!(end - start <= 90 * 86_400 + 120);
                prop_assert_eq!(time(seconds(now()) + end), issued.not_after);
            }
            Err(IssueError::IssuerExpired { .. }) => prop_assert!(after >= life * 86_400),
            Err(IssueError::Lifetime { .. }) => prop_assert!(lifetime > 90 * 86_400),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn the_names_are_exactly_the_callers(accounts in proptest::collection::vec("[a-z0-9.-]{1,60}", 1..4)) {
        let authority = root("mesh", now());
        let list: Vec<Identity> = accounts.iter().map(|account| identity(account)).collect();
        let issued = authority.issue(&csr(), &list, 0, &Lifetimes::default(), now()).unwrap();
        let expected: Vec<String> = list.iter().map(ToString::to_string).collect();
        prop_assert_eq!(uris(&issued.der), expected);
        let (_, certificate) = X509Certificate::from_der(&issued.der).unwrap();
        let csr = csr();
        prop_assert_eq!(certificate.public_key().raw, csr.public_key());
    }
}
