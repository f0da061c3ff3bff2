//! Clusters that all clients with unrestricted visibility share.
//!
//! As for route tables, the clusters of a client without private services and policies are listed once, and each
//! service notes the namespaces whose clients may have different clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::tls::ClientFacts;
use registry::{Exported, ServicesByExport};

use super::{Entry, add_service};
use crate::layered::{Base, Differs};
use crate::policy::particular_to;
use crate::scope;

flow::rule! {
    /// The shared clusters of services, by the client facts that TLS may depend on.
    pub SharedClusters: ClientFacts => Arc<SharedClusterList> = "shared clusters", derive_shared_clusters;
}

/// Shared clusters of services.
#[derive(PartialEq, Debug, Default)]
pub struct SharedClusterList {
    /// The services.
    services: Base,
    /// Ascending by cluster name, with the index of the service.
    entries: Vec<(usize, Entry)>,
}

fn derive_shared_clusters(cx: &Reads<'_>, client: &ClientFacts) -> Option<Arc<SharedClusterList>> {
    let scope =
        Scope { namespace: "".into(), sidecar: None, selected_rules: Vec::new(), cluster: "".into(), assigned: false };
    let mut out = SharedClusterList::default();
    let mut entries = Vec::new();
    for (at, service) in scope::all_seen(cx, &scope).iter().enumerate() {
        let mut differs = BTreeSet::new();
        particular_to(cx, &service.key.hostname, &mut differs);
        out.services.0.push((service.key.hostname.clone(), Differs::For(differs)));
        add_service(cx, &scope, service, *client, &mut entries);
        out.entries.extend(entries.drain(..).map(|entry| (at, entry)));
    }
    out.entries.sort_by(|(_, a), (_, b)| a.0.cmp(&b.0));
    Some(Arc::new(out))
}

/// The clusters of services for a client with unrestricted visibility.
pub(super) fn seen_by(cx: &Reads<'_>, scope: &Arc<Scope>, client: ClientFacts) -> Vec<Entry> {
    let Some(base) = cx.get::<SharedClusters>(&client) else {
        return Vec::new();
    };
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(scope.namespace.clone()));
    let private = private.iter().flat_map(|keys| keys.iter()).map(|key| &key.hostname);
    let overlay = base.services.overlay(&scope.namespace, private);
    let kept = base.entries.iter().filter(|(at, _)| !overlay.replaced[*at]);
    let mut out: Vec<Entry> = kept.map(|(_, entry)| entry.clone()).collect();
    let services = base.services.0.iter().zip(&overlay.replaced);
    let replaced = services.filter(|(_, replaced)| **replaced).map(|((host, _), _)| host);
    for host in replaced.chain(overlay.added.iter().copied()) {
        if let Some(service) = scope::find(cx, scope, host) {
            add_service(cx, scope, &service, client, &mut out);
        }
    }
    out
}
