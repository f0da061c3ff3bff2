use std::time::SystemTime;

use ca::self_signed::{Settings, create, rotate};
use ca::{Authority, KeyKind};
use config::mesh::{CertificateData, CertificateSource};

use super::*;
use crate::authority::channel;

struct Harness {
    keeper: watch::Sender<Option<keeper::Issuer>>,
    mesh: watch::Sender<Arc<MeshConfig>>,
    _bundles: watch::Sender<Bundles>,
    signing: server::signing::Watched,
    published: watch::Receiver<PublishedRoots>,
}

fn settings() -> Settings {
    Settings { key: KeyKind::P256, ..Settings::new("cluster.local") }
}

fn root() -> Authority {
    create(&settings(), SystemTime::now()).unwrap()
}

fn start() -> Harness {
    let (keeper, issuer) = watch::channel(None);
    let (mesh, mesh_seen) = watch::channel(Arc::new(MeshConfig::default()));
    let (bundles, bundles_seen) = watch::channel(Bundles::new());
    let (signing, watched) = channel();
    let (published, roots) = watch::channel(PublishedRoots::default());
    let publishing = Publishing {
        source: Source::Keeper(issuer),
        mesh: mesh_seen,
        bundles: bundles_seen,
        signing,
        published,
        world: None,
        clock: Arc::new(SystemTime::now),
    };
    let (first, _) = watch::channel(false);
    tokio::spawn(publishing.run(first));
    Harness { keeper, mesh, _bundles: bundles, signing: watched, published: roots }
}

impl Harness {
    async fn signed_by(&mut self, authority: &Authority) -> Arc<Signing> {
        self.keeper.send_replace(Some(keeper::Issuer::Own(authority.clone())));
        let is = |signing: &Arc<Signing>| matches!(&signing.issuer, Issuer::Own(own) if own == authority);
        self.signing.wait_for(is).await.unwrap().clone()
    }
}

#[tokio::test]
async fn issuer_and_roots_are_published_and_the_bundle_is_kept_if_it_is_equal() {
    let mut harness = start();
    let authority = root();
    let first = harness.signed_by(&authority).await;
    let own = names::TrustDomain::default();
    assert_eq!(first.trust.pem(&own, SystemTime::now()), authority.roots_pem());
    let roots = harness.published.wait_for(|published| published.roots.is_some()).await.unwrap().clone();
    assert_eq!(roots.roots.as_deref(), Some(authority.roots_pem()));
    // A change of the mesh configuration without effect on trust.
    harness.signing.mark_unchanged();
    harness.mesh.send_replace(Arc::new(MeshConfig { access_log_file: "/dev/stdout".into(), ..MeshConfig::default() }));
    let rotated = rotate(&authority, &settings(), SystemTime::now()).unwrap();
    let second = harness.signed_by(&rotated).await;
    assert!(!Arc::ptr_eq(&first.trust, &second.trust), "the roots differ");
    // It has the same key, so that certificates of both are trusted.
    assert_eq!(second.trust.pem(&own, SystemTime::now()), rotated.roots_pem());
    // Without an authority, what was published stays.
    harness.keeper.send_replace(Some(keeper::Issuer::Unavailable("lost".to_owned())));
    let lost = |signing: &Arc<Signing>| matches!(&signing.issuer, Issuer::Unavailable(reason) if **reason == *"lost");
    harness.signing.wait_for(lost).await.unwrap();
    assert_eq!(harness.published.borrow().roots.as_deref(), Some(rotated.roots_pem()));
}

#[tokio::test]
async fn a_trust_domain_is_migrated_through_its_aliases() {
    let mut harness = start();
    let authority = root();
    harness.signed_by(&authority).await;
    let domain = |text: &str| names::TrustDomain::parse(text).unwrap();
    let mesh = |own: &str, aliases: &[&str]| MeshConfig {
        trust_domain: own.into(),
        trust_domain_aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        ..MeshConfig::default()
    };
    // The new domain is an alias first, then the old one, then it is gone.
    for (own, aliases, trusted, foreign) in [
        ("old", &["new"][..], &["old", "new"][..], "other"),
        ("new", &["old"], &["old", "new"], "other"),
        ("new", &[], &["new"], "old"),
    ] {
        harness.mesh.send_replace(Arc::new(mesh(own, aliases)));
        let wanted = domain(foreign);
        let is = |signing: &Arc<Signing>| {
            trusted.iter().all(|one| signing.trust.is_own(&domain(one))) && !signing.trust.is_own(&wanted)
        };
        let signing = harness.signing.wait_for(is).await.unwrap().clone();
        for one in trusted {
            assert_eq!(signing.trust.pem(&domain(one), SystemTime::now()), authority.roots_pem(), "{one}");
        }
        assert_eq!(signing.trust.pem(&wanted, SystemTime::now()), "");
    }
}

#[tokio::test]
async fn roots_of_mesh_config_are_trusted_but_not_published_as_roots_of_the_control_plane() {
    let mut harness = start();
    let (authority, other) = (root(), root());
    harness.signed_by(&authority).await;
    let data =
        CertificateData { data: Some(CertificateSource::Pem(other.roots_pem().into())), ..CertificateData::default() };
    harness.mesh.send_replace(Arc::new(MeshConfig { ca_certificates: vec![data], ..MeshConfig::default() }));
    let has = |signing: &Arc<Signing>| signing.trust.all_pem(SystemTime::now()).contains(other.roots_pem());
    let signing = harness.signing.wait_for(has).await.unwrap().clone();
    assert_eq!(signing.trust.certificates(SystemTime::now()).len(), 2);
    assert_eq!(harness.published.borrow().roots.as_deref(), Some(authority.roots_pem()));
}
