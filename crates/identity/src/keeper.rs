//! Composes what is served from the certificate, the roots of its issuer, and the roots of the mesh.

use std::sync::Arc;
use std::time::Duration;

use agent_core::exchange::MeshRoots;
use tokio::sync::watch;

use crate::issuer::Issued;
use crate::metrics::Metrics;
use crate::name::FileName;
use crate::secret::{Content, Entry, Pair, Secret, Table};
use crate::settings::Settings;
use crate::wanted::Lease;
use crate::{Certificates, output, pem};

/// The place from which the certificate, or the roots, come.
pub(crate) enum Origin {
    /// The certificate authority.
    Authority,
    /// A file, which stays watched.
    File { name: FileName, _lease: Option<Lease> },
}

/// The interval at which the agent looks whether there is a revocation list.
const LOOK: Duration = Duration::from_secs(10);

/// Composes what is served.
pub(crate) struct Keeper {
    pub(crate) settings: Arc<Settings>,
    pub(crate) pair: Origin,
    pub(crate) roots: Origin,
    pub(crate) issued: watch::Receiver<Issued>,
    pub(crate) mesh: watch::Receiver<MeshRoots>,
    pub(crate) table: Arc<watch::Sender<Table>>,
    pub(crate) certificates: watch::Sender<Option<Certificates>>,
    pub(crate) metrics: Metrics,
}

impl Keeper {
    /// Composes what is served whenever a part of it changes, forever.
    pub(crate) async fn run(mut self) {
        let mut files = self.table.subscribe();
        loop {
            files.mark_unchanged();
            let issued = self.issued.borrow_and_update().clone();
            let mesh = self.mesh.borrow_and_update().clone();
            self.publish(&issued, &mesh);
            tokio::select! {
                Ok(()) = self.issued.changed() => {}
                Ok(()) = self.mesh.changed() => {}
                Ok(()) = files.changed() => {}
                // A revocation list may appear or go.
                () = tokio::time::sleep(LOOK), if self.issued.has_changed().is_ok() => {}
                else => return,
            }
        }
    }

    fn publish(&self, issued: &Issued, mesh: &MeshRoots) {
        let (pair, own) = {
            let table = self.table.borrow();
            (self.pair(issued, &table), self.own_roots(issued, &table))
        };
        let roots = merged(&own, mesh);
        let crl = self.settings.crl();
        let workload = pair.map(|pair| Secret::from(Content::Pair(pair.clone())));
        let bundle = roots.map(|roots| Secret::from(Content::Roots(roots.clone(), crl.as_deref().map(Into::into))));
        if let (Some(pair), Some(roots)) = (pair.ready(), roots.ready()) {
            self.metrics.expiry.set(pair.expires);
            let Pair { chain, key, expires } = pair.clone();
            self.hand_out(Certificates { chain, key, roots: roots.clone(), expires });
        }
        self.table.send_if_modified(|table| {
            let changed = table.workload.advance(workload);
            table.roots.advance(bundle) || changed
        });
    }

    /// Writes new certificates, then gives them to the other parts of the agent.
    fn hand_out(&self, certificates: Certificates) {
        if self.certificates.borrow().as_ref() == Some(&certificates) {
            return;
        }
        if let Some(folder) = &self.settings.output
            && let Err(error) = output::write(folder, self.settings.output_mode, &certificates)
        {
            tracing::error!(folder = %folder.display(), %error, "cannot write the certificates of OUTPUT_CERTS");
        }
        self.certificates.send_replace(Some(certificates));
    }

    fn pair(&self, issued: &Issued, table: &Table) -> Entry<Pair> {
        match &self.pair {
            Origin::Authority => issued.pair.clone(),
            Origin::File { name, .. } => file(table, name, |content| match content {
                Content::Pair(pair) => Some(pair.clone()),
                Content::Roots(..) => None,
            }),
        }
    }

    fn own_roots(&self, issued: &Issued, table: &Table) -> Entry<Arc<str>> {
        match &self.roots {
            Origin::Authority => issued.roots.clone(),
            Origin::File { name, .. } => file(table, name, |content| match content {
                Content::Roots(roots, _) => Some(roots.clone()),
                Content::Pair(_) => None,
            }),
        }
    }
}

fn file<T>(table: &Table, name: &FileName, part: impl FnOnce(&Content) -> Option<T>) -> Entry<T> {
    match table.files.get(name) {
        None | Some(Entry::Pending) => Entry::Pending,
        Some(Entry::Failed(reason)) => Entry::Failed(reason.clone()),
        Some(Entry::Ready(secret)) => part(&secret.content).map_or(Entry::Pending, Entry::Ready),
    }
}

/// The trust bundle: the roots of the issuer and those of the mesh.
fn merged(own: &Entry<Arc<str>>, mesh: &MeshRoots) -> Entry<Arc<str>> {
    own.map(|own| {
        let all = std::iter::once(own.as_bytes()).chain(mesh.iter().map(String::as_bytes));
        pem::bundle(all).map_or_else(|_| own.clone(), Arc::from)
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_bundle_has_the_roots_of_the_mesh() {
        let root = || CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let (one, two) = (root(), root());
        let own = Entry::Ready(Arc::from(one.as_str()));
        let bundle = |mesh: &[String]| merged(&own, &Arc::new(mesh.to_vec())).ready().unwrap().matches("BEGIN").count();
        assert_eq!(bundle(&[]), 1);
        assert_eq!(bundle(&[one.clone(), two.clone()]), 2);
        assert_eq!(bundle(&["garbage".to_owned(), two.clone()]), 2);
        assert_eq!(merged(&Entry::Pending, &Arc::new(vec![two])), Entry::Pending);
    }
}
