use proptest::prelude::*;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::*;
use crate::Lifetimes;
use crate::tests::{DAY, cacerts, foreign, identity as account, now, root};

fn params(uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.subject_alt_names = uris.iter().map(|uri| SanType::URI(Ia5String::try_from(*uri).unwrap())).collect();
    params
}

fn pem(params: &CertificateParams) -> String {
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

fn refused(params: &CertificateParams) -> String {
    let error = check_request(&pem(params), &account("cart")).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    error.to_string()
}

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

#[test]
fn a_request_for_the_callers_identity_is_passed_on() {
    check_request(&pem(&params(&[CART])), &account("cart")).unwrap();
    // The agent of Istio sends an empty organization.
    let mut agent = params(&[CART]);
    agent.distinguished_name.push(DnType::OrganizationName, "");
    check_request(&pem(&agent), &account("cart")).unwrap();
}

#[test]
fn requests_for_anything_else_are_refused() {
    let other = "spiffe://cluster.local/ns/shop/sa/admin";
    for uris in [&[other][..], &[CART, other], &[other, CART], &[CART, CART], &[]] {
        assert!(refused(&params(uris)).contains(CART), "{uris:?}");
    }
    let mut named = params(&[CART]);
    named.subject_alt_names.push(SanType::DnsName("istiod.istio-system.svc".try_into().unwrap()));
    assert!(refused(&named).contains("istiod.istio-system.svc"));
    let mut with_subject = params(&[CART]);
    with_subject.distinguished_name.push(DnType::CommonName, "system:masters");
    assert!(refused(&with_subject).contains("subject"));
    let mut organization = params(&[CART]);
    organization.distinguished_name.push(DnType::OrganizationName, "system:masters");
    assert!(refused(&organization).contains("subject"));
    let mut authority = params(&[CART]);
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    assert!(refused(&authority).contains("extension"));
}

#[test]
fn the_signer_comes_from_domain_and_request_or_from_the_default() {
    assert_eq!(signer("", "example.com/ca", "").unwrap(), "example.com/ca");
    assert_eq!(signer("example.com", "other.com/ca", "gold").unwrap(), "example.com/gold");
    assert_eq!(signer("example.com", "other.com/ca", "").unwrap(), "other.com/ca");
    assert_eq!(signer("clusters.example.com", "", "issuers.name").unwrap(), "clusters.example.com/issuers.name");
    for (domain, default, asked) in [
        ("", "", ""),
        ("", "", "gold"),
        ("example.com", "", ""),
        ("example.com", "", "../x"),
        ("example.com", "", "a/b"),
        ("example.com", "", ""),
        ("", "noslash", ""),
        ("ex ample", "", "a"),
    ] {
        assert!(signer(domain, default, asked).is_err(), "{domain} {default} {asked}");
    }
}

#[test]
fn a_good_answer_is_leaf_intermediates_and_roots() {
    let signer_root = foreign("root", None, |_| ());
    let middle = foreign("middle", Some(&signer_root), |_| ());
    let set = cacerts(&middle, &[&middle], &[&signer_root]);
    let Ok(crate::plugged_in::Loaded::PluggedIn(authority)) = crate::plugged_in::load(&set, now()) else {
        panic!("not loaded")
    };
    let csr = check_request(&pem(&params(&[CART])), &account("cart")).unwrap();
    let issued = authority.issue(&csr, &[account("cart")], 0, &Lifetimes::default(), now()).unwrap();
    let whole = issued.chain().concat();
    let answer = check_answer(whole.as_bytes(), &csr, &account("cart"), ("s/a", &[]), now()).unwrap();
    assert_eq!(answer.cert_chain(), issued.chain());
    // Without the root in the answer, the operator has to list it.
    let without: String = issued.chain()[..2].concat();
    let check =
        |pem: &str, roots: &[Certificate]| check_answer(pem.as_bytes(), &csr, &account("cart"), ("s/a", roots), now());
    assert_eq!(check(&without, &[]), Err(RegistrationError::NoRoot("s/a".to_owned())));
    assert_eq!(check(&without, authority.roots()).unwrap(), answer);
    let other = root("other", now());
    assert!(matches!(check(&whole, other.roots()), Err(RegistrationError::Wrong(_))), "listed roots decide");
    // Someone else's certificate, another key, an authority, an expired certificate.
    let wrong = |identity: &str| check_answer(whole.as_bytes(), &csr, &account(identity), ("s/a", &[]), now());
    assert!(wrong("admin").unwrap_err().to_string().contains(CART));
    let foreign_csr = check_request(&pem(&params(&[CART])), &account("cart")).unwrap();
    let other_key = check_answer(whole.as_bytes(), &foreign_csr, &account("cart"), ("s/a", &[]), now());
    assert!(other_key.unwrap_err().to_string().contains("another key"));
    let roots_only = issued.chain()[2].clone();
    assert!(check(&roots_only, &[]).is_err() && check("", &[]).is_err());
    let late = check_answer(whole.as_bytes(), &csr, &account("cart"), ("s/a", &[]), now() + DAY * 2);
    assert!(late.is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}", asked in "\\PC{0,60}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check_request(&text, &account("cart"));
        let _ = signer(&text, &asked, &asked);
        let csr = Csr::from_pem(&crate::tests::request().0).unwrap();
        prop_assert!(check_answer(&bytes, &csr, &account("cart"), ("s/a", &[]), now()).is_err());
    }
}
