//! Services that are exported to a namespace, and precedence between services with one hostname.

use std::sync::Arc;

use flow::{Members, Reads, Relation};
use model::service::ServiceKey;
use registry::{Exported, Services, ServicesByExport};

use super::{Ports, VisibleService};

/// All services that are exported to a namespace, one per hostname, ascending.
pub(super) fn exported_to(cx: &Reads<'_>, namespace: &Arc<str>) -> Arc<[VisibleService]> {
    one_per_host(cx, namespace, all_exported_to(cx, namespace))
}

/// All services that are exported to a namespace, unordered.
pub(super) fn all_exported_to(cx: &Reads<'_>, namespace: &Arc<str>) -> Vec<ServiceKey> {
    let exports = [Exported::All, Exported::Namespace(namespace.clone())];
    let lists = exports.map(|export| members::<ServicesByExport>(cx, &export));
    lists.iter().flat_map(|list| list.iter().cloned()).collect()
}

/// Services of one namespace that a client of a namespace sees.
pub(super) fn of_namespace(cx: &Reads<'_>, client: &Arc<str>, owner: &Arc<str>) -> Vec<ServiceKey> {
    let exports = [Exported::All, Exported::Namespace(client.clone())];
    let lists = exports.map(|export| members::<super::ServicesByNamespace>(cx, &(owner.clone(), export)));
    lists.iter().flat_map(|list| list.iter().cloned()).collect()
}

/// Those of these services that a namespace sees.
pub(super) fn visible_of(cx: &Reads<'_>, namespace: &str, keys: &Members<ServiceKey>) -> Vec<ServiceKey> {
    let seen = |key: &&ServiceKey| cx.with::<Services, _>(key, |s| s.is_some_and(|s| s.export_to.includes(namespace)));
    keys.iter().filter(seen).cloned().collect()
}

/// The preferred service of each hostname, ascending.
pub(super) fn one_per_host(cx: &Reads<'_>, namespace: &Arc<str>, mut keys: Vec<ServiceKey>) -> Arc<[VisibleService]> {
    keys.sort_unstable();
    keys.dedup();
    let visible = |key| VisibleService { key, ports: Ports::All };
    if keys.windows(2).all(|pair| pair[0].hostname != pair[1].hostname) {
        return keys.into_iter().map(visible).collect();
    }
    let groups = keys.chunk_by(|a, b| a.hostname == b.hostname);
    groups.filter_map(|group| preferred(cx, namespace, group.to_vec())).map(visible).collect()
}

/// The preferred of several services with one hostname: the client's own namespace, then Kubernetes, then the oldest.
pub(super) fn preferred(cx: &Reads<'_>, namespace: &Arc<str>, mut keys: Vec<ServiceKey>) -> Option<ServiceKey> {
    if keys.len() <= 1 {
        return keys.pop();
    }
    if let Some(own) = keys.iter().find(|key| key.namespace == *namespace) {
        return Some(own.clone());
    }
    let rows = keys.iter().filter_map(|key| cx.get::<Services>(key));
    rows.min_by(|a, b| a.precedence(b)).map(|service| service.key.clone())
}

fn members<R: Relation<Row = Members<ServiceKey>>>(cx: &Reads<'_>, key: &R::Key) -> Members<ServiceKey> {
    cx.get::<R>(key).map(|row| (*row).clone()).unwrap_or_default()
}
