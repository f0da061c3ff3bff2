use proptest::prelude::*;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

use super::*;
use crate::tests::{DAY, Foreign, cacerts, foreign, now, revoked};

struct Mesh {
    root: Foreign,
    issuer: Foreign,
}

fn mesh() -> Mesh {
    let root = foreign("root", None, |_| ());
    let issuer = foreign("issuer", Some(&root), |_| ());
    Mesh { root, issuer }
}

impl Mesh {
    fn data(&self) -> BTreeMap<String, Vec<u8>> {
        cacerts(&self.issuer, &[&self.issuer, &self.root], &[&self.root])
    }

    fn with(&self, key: &str, value: impl Into<Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
        let mut data = self.data();
        data.insert(key.to_owned(), value.into());
        data
    }
}

fn plugged_in(data: &BTreeMap<String, Vec<u8>>) -> Authority {
    match load(data, now()) {
        Ok(Loaded::PluggedIn(authority)) => authority,
        other => panic!("{other:?}"),
    }
}

fn error(data: &BTreeMap<String, Vec<u8>>) -> String {
    load(data, now()).unwrap_err().to_string()
}

#[test]
fn nothing_is_absent_and_a_part_is_incomplete() {
    assert_eq!(load(&BTreeMap::new(), now()), Ok(Loaded::Absent));
    assert_eq!(load(&BTreeMap::from([("notes".to_owned(), Vec::new())]), now()), Ok(Loaded::Absent));
    let mut data = mesh().data();
    data.remove("root-cert.pem");
    data.remove("ca-key.pem");
    assert_eq!(
        error(&data),
        "ca-key.pem, root-cert.pem are missing, but ca-cert.pem, cert-chain.pem are present; add the missing keys, or \
         remove all for a self-signed authority"
    );
}

#[test]
fn intermediates_exclude_roots_and_include_the_issuer() {
    let mesh = mesh();
    let authority = plugged_in(&mesh.data());
    let subjects: Vec<_> = authority.intermediates().iter().map(Certificate::subject).collect();
    assert_eq!(subjects, ["CN=issuer"]);
    let without = plugged_in(&cacerts(&mesh.issuer, &[&mesh.root], &[&mesh.root]));
    assert_eq!(without, authority, "the issuer is added to a chain without it");
    let root_signs = plugged_in(&cacerts(&mesh.root, &[], &[&mesh.root]));
    assert!(root_signs.intermediates().is_empty());
}

#[test]
fn a_tls_secret_has_other_names() {
    let mesh = mesh();
    let data = BTreeMap::from([
        ("tls.crt".to_owned(), mesh.issuer.pem().into_bytes()),
        ("tls.key".to_owned(), mesh.issuer.key().serialize_pem().into_bytes()),
        ("ca.crt".to_owned(), mesh.root.pem().into_bytes()),
    ]);
    assert_eq!(plugged_in(&data), plugged_in(&mesh.data()));
    let mut incomplete = data;
    incomplete.remove("ca.crt");
    assert!(error(&incomplete).starts_with("ca.crt is missing, but tls.crt, tls.key are present"));
}

#[test]
fn each_part_is_named_with_its_problem() {
    let mesh = mesh();
    let other = foreign("other", None, |_| ());
    let pem = |authority: &Foreign| authority.pem();
    let cases: Vec<(&str, String, &str)> = vec![
        ("ca-cert.pem", "x".to_owned(), "ca-cert.pem: has no certificate"),
        ("ca-cert.pem", pem(&mesh.issuer).replace('M', "N"), "ca-cert.pem: its certificate number 1 is damaged"),
        ("ca-key.pem", "x".to_owned(), "ca-key.pem: is not an unencrypted private key"),
        ("ca-key.pem", other.key().serialize_pem(), "ca-key.pem: is not the key of ca-cert.pem"),
        ("root-cert.pem", String::new(), "root-cert.pem: has no certificate"),
        ("root-cert.pem", pem(&other), "cert-chain.pem: a certificate that CN=issuer issues does not lead to a root"),
        ("cert-chain.pem", "x".to_owned(), "cert-chain.pem: has no certificate"),
    ];
    for (key, value, expected) in cases {
        let found = error(&mesh.with(key, value));
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_chain_that_proxies_would_reject_is_refused() {
    let mesh = mesh();
    let bottom = foreign("bottom", Some(&mesh.issuer), |_| ());
    let whole = cacerts(&bottom, &[&bottom, &mesh.issuer], &[&mesh.root]);
    assert_eq!(plugged_in(&whole).intermediates().len(), 2);
    let gap = cacerts(&bottom, &[&bottom], &[&mesh.root]);
    assert!(error(&gap).contains("add the missing intermediate certificates"), "{}", error(&gap));
    let last = foreign("last", Some(&mesh.root), |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let too_deep = foreign("too deep", Some(&last), |_| ());
    let data = cacerts(&too_deep, &[&too_deep, &last], &[&mesh.root]);
    assert!(error(&data).contains("does not lead to a root"), "{}", error(&data));
    let for_mail = foreign("for mail", Some(&mesh.root), |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
    });
    let data = cacerts(&for_mail, &[&for_mail], &[&mesh.root]);
    assert!(error(&data).contains("does not lead to a root"), "{}", error(&data));
}

#[test]
fn what_may_not_sign_is_refused() {
    let mesh = mesh();
    let leaf = foreign("leaf", Some(&mesh.root), |params| params.is_ca = IsCa::ExplicitNoCa);
    let no_usage =
        foreign("no usage", Some(&mesh.root), |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    for issuer in [leaf, no_usage] {
        let found = error(&cacerts(&issuer, &[&issuer], &[&mesh.root]));
        assert!(found.contains("is not a certificate authority; create it with CA:TRUE"), "{found}");
    }
}

#[test]
fn expired_and_future_certificates_are_refused() {
    let mesh = mesh();
    let expired = foreign("expired", Some(&mesh.root), |params| params.not_after = (now() - DAY).into());
    let future = foreign("future", Some(&mesh.root), |params| params.not_before = (now() + DAY).into());
    for issuer in [&expired, &future] {
        let found = error(&cacerts(issuer, &[issuer], &[&mesh.root]));
        assert!(found.starts_with("ca-cert.pem: CN=") && found.contains("renew it"), "{found}");
    }
    let old_root = foreign("old root", None, |params| params.not_after = (now() - DAY).into());
    let issuer = foreign("issuer", Some(&old_root), |_| ());
    let found = error(&cacerts(&issuer, &[&issuer], &[&old_root]));
    assert!(found.starts_with("root-cert.pem: CN=old root is valid from"), "{found}");
    let both = cacerts(&mesh.issuer, &[&mesh.issuer], &[&old_root, &mesh.root]);
    assert_eq!(plugged_in(&both).roots().len(), 2, "an expired root beside a valid one does no harm");
}

#[test]
fn revocation_lists_belong_to_the_authorities() {
    let mesh = mesh();
    let (by_issuer, by_root) = (revoked(&mesh.issuer, &[&[7]]), revoked(&mesh.root, &[]));
    let both = format!("{by_issuer}{by_root}");
    let authority = plugged_in(&mesh.with("ca-crl.pem", both.clone()));
    assert_eq!(authority.revocation_pem(), Some(&*both));
    assert_eq!(authority.revocation_lists().check_complete(authority.roots()), Ok(()));
    let other = foreign("issuer", None, |_| ());
    let cases = [
        (format!("{both}{}", revoked(&other, &[])), "ca-crl.pem: its revocation list number 3 is not signed by"),
        (by_issuer, "ca-crl.pem: has no revocation list of CN=root"),
        (String::new(), "ca-crl.pem: has no revocation list; it must have"),
        (crate::certificate::pem("X509 CRL", b"x"), "ca-crl.pem: its revocation list number 1 cannot be used"),
    ];
    for (lists, expected) in cases {
        let found = error(&mesh.with("ca-crl.pem", lists));
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn lists_that_make_every_certificate_invalid_are_refused() {
    let root = foreign("root", None, |_| ());
    let issuer = foreign("issuer", Some(&root), |params| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[5]));
    });
    let with = |issuer: &Foreign, lists: String| {
        let mut data = cacerts(issuer, &[issuer, &root], &[&root]);
        data.insert("ca-crl.pem".to_owned(), lists.into());
        data
    };
    let revoked_issuer = with(&issuer, format!("{}{}", revoked(&issuer, &[]), revoked(&root, &[&[5]])));
    let signs_no_lists = foreign("signs no lists", Some(&root), |params| {
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    });
    // rcgen refuses to sign a list with such an issuer, but not with its key.
    let same_key = rcgen::Issuer::new(
        {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, "signs no lists");
            params.key_usages = vec![KeyUsagePurpose::CrlSign];
            params
        },
        signs_no_lists.key(),
    );
    let lists = format!("{}{}", revoked(&same_key, &[]), revoked(&root, &[]));
    for data in [revoked_issuer, with(&signs_no_lists, lists)] {
        let found = error(&data);
        assert!(found.starts_with("ca-crl.pem: rejects all certificates that CN="), "{found}");
    }
}

#[test]
fn roots_may_only_be_added_or_removed_while_proxies_run() {
    let (mesh, other) = (mesh(), foreign("other", None, |_| ()));
    let with = |roots: &[&Foreign]| plugged_in(&cacerts(&mesh.issuer, &[&mesh.issuer], roots));
    let (one, two) = (with(&[&mesh.root]), with(&[&mesh.root, &other]));
    let moved = {
        let issuer = foreign("issuer", Some(&other), |_| ());
        plugged_in(&cacerts(&issuer, &[&issuer], &[&other]))
    };
    assert_eq!(check_root_change(&one, &one, false), Ok(()));
    assert_eq!(check_root_change(&one, &two, false), Err(RootChangeError::SingleRoot));
    assert_eq!(check_root_change(&one, &two, true), Ok(()));
    assert_eq!(check_root_change(&two, &one, true), Ok(()));
    assert_eq!(check_root_change(&one, &moved, true), Err(RootChangeError::Replaced));
    assert_eq!(check_root_change(&two, &moved, true), Ok(()));
}

#[test]
fn errors_never_contain_the_key() {
    let mesh = mesh();
    let key = mesh.issuer.key().serialize_pem();
    for wrong in ["ca-cert.pem", "cert-chain.pem", "root-cert.pem", "ca-crl.pem"] {
        let found = error(&mesh.with(wrong, key.clone()));
        assert!(key.lines().filter(|line| line.len() > 10).all(|line| !found.contains(line)), "{found}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(key in 0usize..5, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        static MESH: std::sync::LazyLock<BTreeMap<String, Vec<u8>>> = std::sync::LazyLock::new(|| mesh().data());
        let keys = ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem", "ca-crl.pem"];
        let mut data = MESH.clone();
        data.insert(keys[key].to_owned(), bytes);
        prop_assert!(load(&data, now()).is_err() || keys[key] == "cert-chain.pem");
    }
}
