//! Publishes the issuer and the roots: to the server, to the controllers, to the world (PCDS), and to the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ca::keeper;
use ca::{Authority, Certificate};
use config::MeshConfig;
use controllers::PublishedRoots;
use server::WorldHandle;
use server::signing::{Issuer, Signing};
use tokio::sync::watch;
use tokio::time::sleep;
use world::Batch;

use super::external::KubernetesSigner;
use super::keeping::Clock;
use super::trust::{Bundles, Roots, all_signer_roots};

/// The interval in which expired roots are removed.
const EXPIRY: Duration = Duration::from_secs(3600);

/// The source of the issuer.
pub(super) enum Source {
    /// An own authority.
    Keeper(watch::Receiver<Option<keeper::Issuer>>),
    /// Another signer.
    External {
        /// The signer.
        signer: Arc<KubernetesSigner>,
        /// The roots that it returned, while none are configured.
        learned: watch::Receiver<Vec<Certificate>>,
        /// The authority that issues the certificates of the control plane's ports.
        own: watch::Receiver<Option<keeper::Issuer>>,
    },
    /// None, for this reason.
    Nobody(Arc<str>),
}

/// Publishes until the server ends.
pub(super) struct Publishing {
    pub(super) source: Source,
    pub(super) mesh: watch::Receiver<Arc<MeshConfig>>,
    pub(super) bundles: watch::Receiver<Bundles>,
    pub(super) signing: watch::Sender<Arc<Signing>>,
    pub(super) published: watch::Sender<PublishedRoots>,
    /// Proxies receive the trust bundle (`ISTIO_MULTIROOT_MESH`).
    pub(super) world: Option<WorldHandle>,
    pub(super) clock: Clock,
}

/// The last published values.
#[derive(Default)]
struct Last {
    roots: Option<Roots>,
    problems: Vec<String>,
    bundle: Vec<Arc<str>>,
    own: Option<Authority>,
}

impl Publishing {
    /// Publishes now and after each change. `first` becomes true after the first decision.
    pub(super) async fn run(mut self, first: watch::Sender<bool>) {
        let mut last = Last::default();
        loop {
            let mesh = self.mesh.borrow_and_update().clone();
            let bundles = self.bundles.borrow_and_update().clone();
            if let Some((issuer, roots, revocation)) = self.issuer(&mesh) {
                self.publish(&mesh, (issuer, &roots, revocation), &bundles, &mut last).await;
                first.send_replace(true);
            }
            let source = async {
                match &mut self.source {
                    Source::Keeper(issuer) => issuer.changed().await,
                    Source::External { learned, own, .. } => tokio::select! {
                        changed = learned.changed() => changed,
                        changed = own.changed() => changed,
                    },
                    Source::Nobody(_) => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                changed = source => changed.is_err(),
                changed = self.mesh.changed() => changed.is_err(),
                changed = self.bundles.changed() => changed.is_err(),
                () = self.signing.closed() => true,
                () = sleep(EXPIRY) => false,
            };
            if ended {
                return;
            }
        }
    }

    /// The issuer, its roots and its revocation lists; `None` while it is unknown.
    fn issuer(&mut self, mesh: &MeshConfig) -> Option<(Issuer, Vec<Certificate>, Option<keeper::Issuer>)> {
        match &mut self.source {
            Source::Keeper(issuer) => {
                let issuer = issuer.borrow_and_update().clone()?;
                Some(match &issuer {
                    keeper::Issuer::Own(authority) => {
                        (Issuer::Own(authority.clone()), authority.roots().to_vec(), Some(issuer))
                    }
                    keeper::Issuer::Unavailable(reason) => {
                        (Issuer::Unavailable(reason.as_str().into()), Vec::new(), None)
                    }
                })
            }
            Source::External { signer, learned, own } => {
                let mut roots = signer.file_roots().to_vec();
                roots.extend(all_signer_roots(mesh));
                roots.extend(learned.borrow_and_update().iter().cloned());
                let own = own.borrow_and_update().clone();
                Some((Issuer::External(signer.clone()), roots, own))
            }
            Source::Nobody(reason) => Some((Issuer::Unavailable(reason.clone()), Vec::new(), None)),
        }
    }

    async fn publish(
        &self,
        mesh: &MeshConfig,
        (issuer, authority, keeper): (Issuer, &[Certificate], Option<keeper::Issuer>),
        bundles: &Bundles,
        last: &mut Last,
    ) {
        let own = match &keeper {
            Some(keeper::Issuer::Own(own)) => Some(own),
            _ => None,
        };
        // Workloads verify the control plane with these.
        let shown = own.map_or(authority, |own| own.roots());
        let lists = own.and_then(|own| own.revocation_pem());
        let (roots, problems) = Roots::gather(mesh, authority, lists, bundles);
        if last.problems != problems {
            problems.iter().for_each(|problem| tracing::warn!("{problem}; this entry is not used"));
            last.problems = problems;
        }
        // Open connections are verified again only if the bundle differs.
        let trust = match last.roots.as_ref() == Some(&roots) {
            true => self.signing.borrow().trust.clone(),
            false => Arc::new(roots.bundle(own.map(|own| own.revocation_lists()).unwrap_or_default())),
        };
        last.roots = Some(roots);
        let now = (self.clock)();
        let mut pem: Vec<String> = shown.iter().filter(|root| root.is_valid_at(now)).map(Certificate::pem).collect();
        let mut seen = BTreeSet::new();
        pem.retain(|pem| seen.insert(pem.clone()));
        let published = PublishedRoots {
            roots: Some(pem.concat().into()).filter(|pem: &Arc<str>| !pem.is_empty()),
            revocation: lists.map(Into::into),
        };
        self.published.send_if_modified(|current| {
            // Without roots, those that were published stay.
            let differs = *current != published && published.roots.is_some();
            if differs {
                *current = published;
            }
            differs
        });
        let bundle: Vec<Arc<str>> = trust.certificates(now).iter().map(|root| root.pem().into()).collect();
        let is_same_own = last.own.as_ref() == own;
        last.own = own.cloned();
        self.signing.send_if_modified(|current| {
            let is_same = is_same_own && Arc::ptr_eq(&current.trust, &trust) && is_same(&current.issuer, &issuer);
            if !is_same {
                *current = Arc::new(Signing { issuer, trust });
            }
            !is_same
        });
        if let Some(world) = self.world.as_ref().filter(|_| last.bundle != bundle) {
            let mut batch = Batch::new();
            batch.set_trust_bundle(bundle.clone());
            // Fails only during shutdown.
            drop(world.commit(batch).await);
            last.bundle = bundle;
        }
    }
}

fn is_same(a: &Issuer, b: &Issuer) -> bool {
    match (a, b) {
        (Issuer::Own(a), Issuer::Own(b)) => a == b,
        (Issuer::External(a), Issuer::External(b)) => Arc::ptr_eq(a, b),
        (Issuer::Unavailable(a), Issuer::Unavailable(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
