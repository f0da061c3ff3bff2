use proptest::prelude::*;
use rcgen::{CertificateParams, IsCa, KeyPair, SanType};

use super::*;
use crate::tests::{DAY, Foreign, foreign, identity, now, request, revoked, root};
use crate::{Authority, Csr, Lifetimes};

fn domain(text: &str) -> TrustDomain {
    TrustDomain::parse(text).unwrap()
}

/// A bundle of the mesh `cluster.local` with the alias `old.example`.
fn bundle_of(authority: &Authority) -> TrustBundle {
    let mut bundle = TrustBundle::new(TrustDomain::default(), [domain("old.example")]);
    bundle.replace(&TrustDomain::default(), Source::Authority, authority.roots()).unwrap();
    bundle
}

fn client(authority: &Authority, id: &str) -> Vec<CertificateDer<'static>> {
    let (csr, id) = (Csr::from_pem(&request().0).unwrap(), Identity::parse(id).unwrap());
    authority.issue(&csr, &[id], 0, &Lifetimes::default(), now()).unwrap().presented()
}

/// A certificate of a foreign authority with these URIs.
fn foreign_client(
    issuer: &Foreign,
    uris: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
    params.not_before = (now() - DAY).into();
    params.not_after = (now() + DAY).into();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[7]));
    change(&mut params);
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

fn certificate(authority: &Foreign) -> Certificate {
    Certificate::from_der(authority.der()).unwrap()
}

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

#[test]
fn certificates_of_the_mesh_and_its_aliases_are_trusted() {
    let authority = root("mesh", now());
    let bundle = bundle_of(&authority);
    assert_eq!(bundle.verify(&client(&authority, CART), now()), Ok(identity("cart")));
    let alias = "spiffe://old.example/ns/shop/sa/cart";
    assert_eq!(bundle.verify(&client(&authority, alias), now()).unwrap().to_string(), alias);
    let renamed = |id: &str| bundle.in_own_domain(Identity::parse(id).unwrap()).to_string();
    assert_eq!(renamed(alias), "spiffe://cluster.local/ns/shop/sa/cart");
    assert_eq!(renamed("spiffe://other.example/ns/shop/sa/cart"), "spiffe://other.example/ns/shop/sa/cart");
    assert!(bundle.is_own(&domain("old.example")) && !bundle.is_own(&domain("partner.example")));
    let unknown = bundle.verify(&client(&authority, "spiffe://partner.example/ns/shop/sa/cart"), now());
    assert_eq!(unknown, Err(TrustError::UnknownDomain(domain("partner.example"))));
}

#[test]
fn a_root_vouches_for_its_own_domain_only() {
    let (authority, partner) = (root("mesh", now()), foreign("partner", None, |_| ()));
    let mut bundle = bundle_of(&authority);
    bundle.replace(&domain("partner.example"), Source::MeshConfig, &[certificate(&partner)]).unwrap();
    let theirs = "spiffe://partner.example/ns/shop/sa/cart";
    assert!(bundle.verify(&[foreign_client(&partner, &[theirs], |_| ())], now()).is_ok());
    for claimed in [CART, "spiffe://old.example/ns/shop/sa/cart"] {
        let found = bundle.verify(&[foreign_client(&partner, &[claimed], |_| ())], now());
        assert!(matches!(found, Err(TrustError::Path(_))), "{found:?}");
    }
    let found = bundle.verify(&client(&authority, theirs), now());
    assert!(matches!(found, Err(TrustError::Path(_))), "{found:?}");
    assert_eq!(bundle.domains(), BTreeSet::from(["cluster.local", "old.example", "partner.example"].map(domain)));
}

#[test]
fn exactly_one_spiffe_identity_is_required() {
    let authority = foreign("root", None, |_| ());
    let mut bundle = TrustBundle::new(TrustDomain::default(), []);
    bundle.replace(&TrustDomain::default(), Source::Authority, &[certificate(&authority)]).unwrap();
    let verify = |uris: &[&str]| bundle.verify(&[foreign_client(&authority, uris, |_| ())], now());
    assert_eq!(verify(&[CART]), Ok(identity("cart")));
    for uris in [&[][..], &[CART, "spiffe://cluster.local/ns/shop/sa/admin"], &[CART, CART], &["https://a.example"]] {
        assert!(matches!(verify(uris), Err(TrustError::Identity(_))), "{uris:?}");
    }
}

#[test]
fn a_workload_cannot_sign_for_others() {
    let top = foreign("root", None, |_| ());
    let mut bundle = TrustBundle::new(TrustDomain::default(), []);
    bundle.replace(&TrustDomain::default(), Source::Authority, &[certificate(&top)]).unwrap();
    let workload = foreign("workload", Some(&top), |params| params.is_ca = IsCa::ExplicitNoCa);
    let forged = foreign_client(&workload, &[CART], |_| ());
    assert!(matches!(bundle.verify(&[forged, workload.der().clone()], now()), Err(TrustError::Path(_))));
    let intermediate = foreign("intermediate", Some(&top), |_| ());
    let good = foreign_client(&intermediate, &[CART], |_| ());
    assert!(bundle.verify(&[good.clone(), intermediate.der().clone()], now()).is_ok());
    assert!(bundle.verify(&[good], now()).is_err(), "the intermediate certificate is missing");
}

#[test]
fn expired_certificates_and_roots_do_not_count() {
    let top = foreign("root", None, |_| ());
    let mut bundle = TrustBundle::new(TrustDomain::default(), []);
    bundle.replace(&TrustDomain::default(), Source::Authority, &[certificate(&top)]).unwrap();
    let leaf = foreign_client(&top, &[CART], |params| params.not_after = (now() + DAY * 600).into());
    assert!(bundle.verify(std::slice::from_ref(&leaf), now()).is_ok());
    assert_eq!(bundle.verify(std::slice::from_ref(&leaf), now() - DAY * 2), Err(TrustError::NotValid));
    let later = bundle.verify(&[leaf], now() + DAY * 550);
    assert_eq!(later, Err(TrustError::UnknownDomain(TrustDomain::default())), "the root has expired");
    assert_eq!(bundle.pem(&TrustDomain::default(), now() + DAY * 550), "");
    assert_eq!(bundle.pem(&TrustDomain::default(), now()), top.pem());
}

#[test]
fn revoked_certificates_do_not_count() {
    let top = foreign("root", None, |_| ());
    let roots = [certificate(&top)];
    let mut bundle = TrustBundle::new(TrustDomain::default(), []);
    bundle.replace(&TrustDomain::default(), Source::Authority, &roots).unwrap();
    let leaf = [foreign_client(&top, &[CART], |_| ())];
    let other = [foreign_client(&top, &[CART], |params| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[8]));
    })];
    assert!(bundle.verify(&leaf, now()).is_ok());
    bundle.set_revocation(RevocationLists::from_pem(revoked(&top, &[&[7]]).as_bytes(), &roots).unwrap());
    assert_eq!(bundle.verify(&leaf, now()), Err(TrustError::Revoked));
    assert!(bundle.verify(&other, now()).is_ok());
    let intermediate = foreign("intermediate", Some(&top), |_| ());
    let below = [foreign_client(&intermediate, &[CART], |_| ()), intermediate.der().clone()];
    assert!(bundle.verify(&below, now()).is_ok(), "an authority without a list revokes nothing");
}

#[test]
fn bundles_are_sorted_and_have_each_root_once() {
    let (one, two) = (certificate(&foreign("one", None, |_| ())), certificate(&foreign("two", None, |_| ())));
    let own = TrustDomain::default();
    let pem = |lists: &[(Source, &[Certificate])]| {
        let mut bundle = TrustBundle::new(own.clone(), []);
        for (source, list) in lists {
            bundle.replace(&own, *source, list).unwrap();
        }
        (bundle.pem(&own, now()), bundle.all_pem(now()))
    };
    let both = pem(&[(Source::Authority, &[one.clone(), two.clone()])]);
    let again =
        pem(&[(Source::RotatedOut, std::slice::from_ref(&one)), (Source::Authority, &[two.clone(), one.clone()])]);
    assert_eq!(both, again);
    assert_eq!(both.0.matches("BEGIN").count(), 2);
    let removed = pem(&[(Source::Authority, &[one, two.clone()]), (Source::Authority, std::slice::from_ref(&two))]);
    assert_eq!(removed.0, two.pem());
}

#[test]
fn what_is_no_authority_is_not_trusted() {
    let top = foreign("root", None, |_| ());
    let leaf = Certificate::from_der(&foreign_client(&top, &[CART], |_| ())).unwrap();
    let own = TrustDomain::default();
    let mut bundle = TrustBundle::new(own.clone(), []);
    bundle.replace(&own, Source::MeshConfig, &[certificate(&top)]).unwrap();
    assert!(bundle.replace(&own, Source::MeshConfig, &[leaf]).is_err());
    assert_eq!(bundle.pem(&own, now()), top.pem(), "nothing was replaced");
}

#[test]
fn chains_are_bounded() {
    let authority = root("mesh", now());
    let bundle = bundle_of(&authority);
    let one = client(&authority, CART);
    assert_eq!(bundle.verify(&[], now()), Err(TrustError::Chain));
    assert_eq!(bundle.verify(&vec![one[0].clone(); MAX_CHAIN + 1], now()), Err(TrustError::Chain));
    let large = CertificateDer::from(vec![0x30; MAX_CERTIFICATE + 1]);
    assert_eq!(bundle.verify(&[one[0].clone(), large], now()), Err(TrustError::Chain));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_changed_certificates_are_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        static MESH: std::sync::LazyLock<(TrustBundle, CertificateDer<'static>)> = std::sync::LazyLock::new(|| {
            let authority = root("mesh", now());
            (bundle_of(&authority), client(&authority, CART)[0].clone())
        });
        let (bundle, leaf) = &*MESH;
        prop_assert!(bundle.verify(&[bytes.clone().into()], now()).is_err());
        prop_assert!(bundle.verify(&[leaf.clone(), bytes.into()], now()).is_ok(), "a useless intermediate is ignored");
        let mut changed = leaf.to_vec();
        let at = at.index(changed.len());
        changed[at] ^= flip;
        prop_assert!(bundle.verify(&[changed.into()], now()).is_err(), "byte {at}");
    }
}
