//! The certificate authority of this control plane: where its key comes from, and who learns of its roots.
//!
//! ```text
//! ROOT_CA_DIR ─directory─┐
//! Secrets, store ────────┼─► keeping (ca::keeper) ─Issuer─┐
//! CertificateSigningRequests ─► external ─────────────────┼─► publishing ─► server (Signing), controllers (ConfigMaps), world (PCDS)
//! MeshConfig, bundle endpoints ──► trust ─────────────────┘
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`keeping`] | runs the keeper: stores what it creates, and reloads what others change |
//! | [`directory`], [`record`] | plugged-in files; the record in a store of Rutter, with its key sealed |
//! | [`external`] | the registration authority |
//! | [`trust`] | the roots by trust domain |
//! | [`publishing`] | hands issuer and roots to those who use them |
//! | [`join`] | redeems join tokens |

mod config_map;
mod directory;
mod external;
mod join;
mod keeping;
mod publishing;
mod record;
pub(crate) mod storage;
mod trust;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use ca::keeper::{Content, Keeper, Options, Place};
use ca::self_signed::{CACERTS, SECRET};
use ca::{KeyKind, TrustBundle};
use config::MeshConfig;
use controllers::PublishedRoots;
use server::signing::{Signing, Watched};
use server::{Authenticator, WorldHandle};
use settings::{Settings, StoreBackend};
use store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend;
use crate::kubernetes::secrets::{AuthoritySecrets, NamespaceSecrets};
use crate::kubernetes::{Clients, Cluster};
use join::{JoinTokens, StoredSecrets};
use keeping::{Clock, Keeping, QUEUE, Schedule};
use publishing::{Publishing, Source};
use record::{Record, Sealing};
use storage::Secrets;

/// The value of `EXTERNAL_CA` for signers of Kubernetes.
const KUBERNETES_RA: &str = "ISTIOD_RA_KUBERNETES_API";
/// How long the start waits for the authority. It does not fail without one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The reason why there is no authority yet.
pub(super) const STARTING: &str = "the certificate authority is being started";

/// The sender and the receiver of issuer and roots.
pub(super) fn channel() -> (watch::Sender<Arc<Signing>>, Watched) {
    let trust = TrustBundle::new(trust::own_domain(&MeshConfig::default()), []);
    watch::channel(Arc::new(Signing::unavailable(STARTING, trust)))
}

/// Accepts join tokens: Secrets of Kubernetes, or of a store that can be written.
pub(super) fn join_tokens(
    settings: &Settings,
    cluster: Option<&Cluster>,
    store: Option<&Arc<dyn Store>>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
) -> Option<Arc<dyn Authenticator>> {
    if let Some(cluster) = cluster {
        let secrets = NamespaceSecrets::new(cluster.clients().home, &settings.namespace);
        return Some(Arc::new(JoinTokens::new(secrets, mesh)));
    }
    let secrets = StoredSecrets::new(store?.clone(), &settings.namespace);
    Some(Arc::new(JoinTokens::new(secrets, mesh)))
}

/// The place in which a self-signed authority is stored.
pub(super) enum Home {
    /// Secrets of Kubernetes.
    Kubernetes(Clients),
    /// A store of Rutter, and the one that the API serves if it is another.
    Store {
        /// The store with the record.
        store: Arc<dyn Store>,
        /// The store that the API serves, in which the root is published.
        served: Option<Arc<dyn Store>>,
    },
}

impl Home {
    /// The home of an authority without Kubernetes. `store` is the store with objects, if it can be written; `files` is the one
    /// with the objects of files, which the API serves.
    ///
    /// # Errors
    /// The store of the authority cannot be opened.
    pub(super) async fn without_kubernetes(
        settings: &Settings,
        store: Option<Arc<dyn Store>>,
        files: Option<Arc<dyn Store>>,
    ) -> Result<Home> {
        if let Some(store) = store {
            return Ok(Home::Store { store: store.clone(), served: Some(store) });
        }
        // The objects are in files, which are not written. The authority has a small store of its own.
        let own: Arc<dyn Store> = match backend::chosen(settings) {
            StoreBackend::Files => {
                let directory = settings.data_dir.join("authority");
                let opened = store::embedded::Embedded::open(&directory, store::embedded::Options::default()).await;
                Arc::new(opened.map_err(|error| anyhow::anyhow!("cannot open {}: {error}", directory.display()))?)
            }
            _ => crate::file_objects::fresh_store(),
        };
        Ok(Home::Store { store: own, served: files })
    }
}

/// The running tasks.
pub(super) struct Running {
    _tasks: JoinSet<()>,
    published: watch::Receiver<PublishedRoots>,
}

impl Running {
    /// The roots for proxies.
    pub(super) fn published(&self) -> watch::Receiver<PublishedRoots> {
        self.published.clone()
    }
}

/// Starts the authority. Returns once it is known who signs, or after some seconds.
///
/// # Errors
/// A setting cannot be used.
pub(super) async fn start(
    settings: &Settings,
    home: Home,
    pilot: &WorldHandle,
    signing: watch::Sender<Arc<Signing>>,
) -> Result<Running> {
    let mut tasks = JoinSet::new();
    let mesh = pilot.mesh();
    let clock: Clock = Arc::new(SystemTime::now);
    let (published, roots) = watch::channel(PublishedRoots::default());
    let (bundles, bundles_seen) = watch::channel(trust::Bundles::new());
    let source = source(settings, &home, &mesh, &clock, &mut tasks)?;
    if let Home::Store { served: Some(store), .. } = &home {
        let namespace = settings.namespace.as_str().into();
        tasks.spawn(config_map::follow(store.clone(), namespace, settings.ca_cert_configmap.clone(), roots.clone()));
        tasks.spawn(join::clean(StoredSecrets::new(store.clone(), &settings.namespace)));
    }
    let (first, mut decided) = watch::channel(false);
    let publishing = Publishing {
        source,
        mesh,
        bundles: bundles_seen,
        signing,
        published,
        world: settings.multiroot_mesh.0.then(|| pilot.clone()),
        clock,
    };
    tasks.spawn(async move {
        publishing.run(first).await;
        drop(bundles);
    });
    if timeout(PATIENCE, decided.wait_for(|decided| *decided)).await.is_err() {
        tracing::warn!("the certificate authority is not known yet; certificates are signed as soon as it is");
    }
    Ok(Running { _tasks: tasks, published: roots })
}

/// Starts what the settings select.
fn source(
    settings: &Settings,
    home: &Home,
    mesh: &watch::Receiver<Arc<MeshConfig>>,
    clock: &Clock,
    tasks: &mut JoinSet<()>,
) -> Result<Source> {
    if !settings.ca_server.0 {
        return Ok(Source::Nobody("the certificate authority is off (ENABLE_CA_SERVER)".into()));
    }
    let own = own(settings, home, mesh, clock, tasks)?;
    let external = settings.external_ca.as_str();
    if external.is_empty() {
        return Ok(Source::Keeper(own));
    }
    ensure!(external == KUBERNETES_RA, "--external-ca: only {KUBERNETES_RA} is known, not {external:?}");
    let Home::Kubernetes(clients) = home else {
        anyhow::bail!("--external-ca {KUBERNETES_RA} needs the store `kubernetes`");
    };
    // As in istiod, the own authority issues the certificates of the control plane's ports then.
    let signer = external::KubernetesSigner::new(clients.home.clone(), settings, mesh.clone(), own.clone())?;
    let learned = signer.learned();
    Ok(Source::External { signer: Arc::new(signer), learned, own })
}

/// Starts the keeper of the own authority.
fn own(
    settings: &Settings,
    home: &Home,
    mesh: &watch::Receiver<Arc<MeshConfig>>,
    clock: &Clock,
    tasks: &mut JoinSet<()>,
) -> Result<watch::Receiver<Option<ca::keeper::Issuer>>> {
    let (events, seen) = mpsc::channel(QUEUE);
    let (issuer, issued) = watch::channel(None);
    tasks.spawn(directory::follow(settings.root_ca_dir.clone(), events.clone()));
    let mut keeper = Keeper::new(options(settings, mesh));
    let parts = Parts { schedule: schedule(settings), clock: clock.clone(), mesh: mesh.clone(), issuer };
    match home {
        Home::Kubernetes(clients) => {
            let of = |client: &kube::Client| NamespaceSecrets::new(client.clone(), &settings.namespace);
            let secrets = AuthoritySecrets { own: of(&clients.own), home: of(&clients.home) };
            tasks.spawn(secrets.own.clone().follow(CACERTS, Place::Cacerts, events.clone()));
            tasks.spawn(secrets.home.clone().follow(SECRET, Place::SelfSigned, events));
            tasks.spawn(parts.keeping(keeper, secrets).run(seen));
        }
        Home::Store { store, .. } => {
            keeper.observe(Place::Cacerts, Content::Absent);
            let record = Record { store: store.clone(), sealing: sealing(settings)? };
            tasks.spawn(record.clone().follow(events));
            tasks.spawn(parts.keeping(keeper, record).run(seen));
        }
    }
    Ok(issued)
}

struct Parts {
    schedule: Schedule,
    clock: Clock,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    issuer: watch::Sender<Option<ca::keeper::Issuer>>,
}

impl Parts {
    fn keeping<S: Secrets>(self, keeper: Keeper, secrets: S) -> Keeping<S> {
        let Parts { schedule, clock, mesh, issuer } = self;
        Keeping { keeper: Arc::new(Mutex::new(keeper)), secrets, schedule, clock, mesh, issuer }
    }
}

fn options(settings: &Settings, mesh: &watch::Receiver<Arc<MeshConfig>>) -> Options {
    Options {
        self_signed: ca::self_signed::Settings {
            organization: mesh.borrow().trust_domain.to_string(),
            lifetime: settings.self_signed_ca_ttl,
            key: KeyKind::Rsa(u32::try_from(settings.self_signed_ca_rsa_bits).unwrap_or(u32::MAX)),
            grace_percent: u8::try_from(settings.self_signed_ca_grace.0).unwrap_or(u8::MAX),
        },
        rotates: !settings.self_signed_ca_check_interval.is_zero(),
        multiple_roots: settings.multiroot_mesh.0,
        in_cacerts: settings.self_signed_in_cacerts.0,
        revocation: settings.ca_crl.0,
    }
}

fn schedule(settings: &Settings) -> Schedule {
    Schedule { interval: settings.self_signed_ca_check_interval, jitter: settings.self_signed_ca_jitter.0 }
}

/// The key file: the given one, or one in the data directory. Replicas that share etcd must be given the same one.
fn sealing(settings: &Settings) -> Result<Sealing> {
    let default = || settings.data_dir.join("authority.key");
    let file = |path: Option<PathBuf>, create| path.map(|path| Sealing::File { path, create });
    Ok(match backend::chosen(settings) {
        StoreBackend::Memory | StoreBackend::None => Sealing::process()?,
        StoreBackend::Etcd => file(settings.ca_key_file.clone(), false).unwrap_or(Sealing::Missing),
        _ => Sealing::File { path: settings.ca_key_file.clone().unwrap_or_else(default), create: true },
    })
}
