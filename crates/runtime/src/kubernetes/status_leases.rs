//! The leases of the status writers: one that all revisions share, for the objects that no label assigns to a revision, and one of each
//! revision for its own objects.

use status::{Intent, Scope};
use tokio::sync::mpsc;

use super::lock::name_of_revision;

/// The lease for the objects of all revisions, with istiod's name.
const ALL: &str = "istio-status-leader";
/// The lease of a revision, without its name. Istiod has one of this name for the statuses of the Gateway API.
const OF_REVISION: &str = "istio-gateway-status-leader";

/// The scopes, in the order of their receivers.
pub(super) const SCOPES: [Scope; 2] = [Scope::All, Scope::Revision];

/// The name of the lease for a scope.
pub(super) fn name(scope: Scope, revision: &str) -> String {
    match scope {
        Scope::All => ALL.to_owned(),
        Scope::Revision => name_of_revision(OF_REVISION, revision),
    }
}

/// Divides intents by scope, until a writer ends.
pub(super) async fn divide(mut intents: mpsc::Receiver<Vec<Intent>>, writers: [mpsc::Sender<Vec<Intent>>; 2]) {
    loop {
        let batch = tokio::select! {
            batch = intents.recv() => batch,
            () = writers[0].closed() => None,
        };
        let Some(batch) = batch else { return };
        let (all, own): (Vec<Intent>, Vec<Intent>) = batch.into_iter().partition(|intent| intent.scope == Scope::All);
        for (writer, batch) in writers.iter().zip([all, own]) {
            if !batch.is_empty() && writer.send(batch).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_share_one_lease_and_have_one_each() {
        let names = |revision| SCOPES.map(|scope| name(scope, revision));
        assert_eq!(names(""), ["istio-status-leader", "istio-gateway-status-leader-default"]);
        assert_eq!(names("canary"), ["istio-status-leader", "istio-gateway-status-leader-canary"]);
    }
}
