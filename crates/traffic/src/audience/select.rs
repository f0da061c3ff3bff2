//! Selects objects for a proxy by its labels.

use std::sync::Arc;

use config::Object;
use config::istio::{DestinationRule, Gateway, ServerTlsMode, Sidecar, VirtualService};
use flow::{Reads, Relation};
use gateway_api::merged::{GatewayPlan, GatewayPlans};
use gateway_api::plan::Passthrough;
use model::audience::GatewaySet;
use model::proxy::{Labels, selects};
use model::service::ObjectId;
use registry::inputs::{DestinationRules, Sidecars};
use registry::{Gateways, VirtualServices};

flow::index! {
    /// `Sidecar` objects of a namespace.
    pub SidecarsByNamespace: Arc<str> => members of Sidecars = "sidecars by namespace", sidecars_by_namespace_keys;
}

fn sidecars_by_namespace_keys(key: &ObjectId, _: &Arc<Object<Sidecar>>) -> Vec<Arc<str>> {
    vec![key.namespace.clone()]
}

flow::index! {
    /// DestinationRules of a namespace with a `workloadSelector`.
    pub RulesWithSelector: Arc<str> => members of DestinationRules = "destination rules with a selector", rules_with_selector_keys;
}

fn rules_with_selector_keys(key: &ObjectId, row: &Arc<Object<DestinationRule>>) -> Vec<Arc<str>> {
    row.spec.workload_selector.iter().map(|_| key.namespace.clone()).collect()
}

flow::index! {
    /// `Gateway` objects by the first label of their selector (in order of keys), or by none if the selector is empty, so that
    /// a proxy reads only candidates.
    pub GatewaysBySelector: Option<(Arc<str>, Arc<str>)> => members of Gateways = "gateways by selector", gateways_by_selector_keys;
}

fn gateways_by_selector_keys(_: &ObjectId, row: &Arc<Object<Gateway>>) -> Vec<Option<(Arc<str>, Arc<str>)>> {
    vec![row.spec.selector.first_key_value().map(|(k, v)| (k.clone(), v.clone()))]
}

flow::index! {
    /// The label keys that HTTP routes name in `sourceLabels`. Route tables depend on no other labels of a client.
    pub HttpSourceLabels: Arc<str> => members of VirtualServices = "source labels of http routes", http_source_labels_keys;
}

fn http_source_labels_keys(_: &ObjectId, row: &Arc<Object<VirtualService>>) -> Vec<Arc<str>> {
    row.spec.http.iter().flat_map(|r| &r.matches).flat_map(|m| m.source_labels.keys().cloned()).collect()
}

flow::index! {
    /// The label keys that TCP and TLS routes name in `sourceLabels`. Listeners depend on no other labels of a client.
    pub TcpSourceLabels: Arc<str> => members of VirtualServices = "source labels of tcp and tls routes", tcp_source_labels_keys;
}

fn tcp_source_labels_keys(_: &ObjectId, row: &Arc<Object<VirtualService>>) -> Vec<Arc<str>> {
    let tls = row.spec.tls.iter().flat_map(|r| &r.matches).flat_map(|m| m.source_labels.keys());
    let tcp = row.spec.tcp.iter().flat_map(|r| &r.matches).flat_map(|m| m.source_labels.keys());
    tls.chain(tcp).cloned().collect()
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<SidecarsByNamespace>();
    b.index::<RulesWithSelector>();
    b.index::<GatewaysBySelector>();
    b.index::<HttpSourceLabels>();
    b.index::<TcpSourceLabels>();
}

/// The `Sidecar` that applies to a workload: the oldest of its namespace that selects it, else the oldest of its namespace
/// without a selector, else the oldest of the root namespace without a selector.
pub(super) fn sidecar(
    cx: &Reads<'_>,
    namespace: &Arc<str>,
    labels: &Labels,
    root: &Arc<str>,
) -> Option<(ObjectId, Arc<Object<Sidecar>>)> {
    let own = sidecars(cx, namespace);
    let selecting = |o: &&Arc<Object<Sidecar>>| {
        let selector = o.spec.workload_selector.as_ref();
        selector.is_some_and(|s| selects(&s.labels, labels))
    };
    let whole = |o: &&Arc<Object<Sidecar>>| o.spec.workload_selector.is_none();
    let found = own.iter().find(selecting).or_else(|| own.iter().find(whole)).cloned();
    let found = found.or_else(|| (namespace != root).then(|| sidecars(cx, root).iter().find(whole).cloned()).flatten());
    found.map(|object| {
        let id = ObjectId { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() };
        (id, object)
    })
}

/// DestinationRules of a namespace whose selector selects a workload, sorted.
pub(super) fn rules(cx: &Reads<'_>, namespace: &Arc<str>, labels: &Labels) -> Vec<ObjectId> {
    let candidates = cx.get::<RulesWithSelector>(namespace);
    let candidates = candidates.iter().flat_map(|members| members.iter());
    let selecting = |id: &&ObjectId| {
        cx.with::<DestinationRules, _>(id, |rule| {
            let selector = rule.and_then(|rule| rule.spec.workload_selector.as_ref());
            selector.is_some_and(|s| selects(&s.match_labels, labels))
        })
    };
    candidates.filter(selecting).cloned().collect()
}

/// `Gateway` objects that select a proxy with these labels, the oldest first.
pub(crate) fn gateways(cx: &Reads<'_>, labels: &Labels) -> Vec<ObjectId> {
    let keys = labels.iter().map(|(k, v)| Some((k.clone(), v.clone()))).chain([None]);
    let found = keys.filter_map(|key| cx.get::<GatewaysBySelector>(&key));
    let ids: Vec<ObjectId> = found.flat_map(|members| members.to_vec()).collect();
    let mut selected: Vec<(ObjectId, Arc<Object<Gateway>>)> = ids
        .into_iter()
        .filter_map(|id| cx.get::<Gateways>(&id).map(|o| (id, (*o).clone())))
        .filter(|(_, object)| selects(&object.spec.selector, labels))
        .collect();
    selected.sort_by(|(_, a), (_, b)| a.meta.by_age(&b.meta));
    selected.into_iter().map(|(id, _)| id).collect()
}

/// Whether one of these gateways has a server or a listener in mode `AUTO_PASSTHROUGH`.
pub(super) fn has_auto_passthrough(cx: &Reads<'_>, set: &GatewaySet) -> bool {
    let modes = |gateway: &Gateway| {
        let mut settings = gateway.servers.iter().filter_map(|server| server.tls.as_ref());
        settings.any(|tls| tls.mode == ServerTlsMode::AutoPassthrough)
    };
    let listens = |plan: Option<&Arc<GatewayPlan>>| {
        let mut listeners = plan.iter().flat_map(|plan| plan.listeners());
        listeners.any(|(_, listener)| listener.passthrough == Some(Passthrough::Clusters))
    };
    set.gateways.iter().any(|id| cx.with::<Gateways, _>(id, |gateway| gateway.is_some_and(|g| modes(&g.spec))))
        || set.kube.iter().any(|id| cx.with::<GatewayPlans, _>(id, listens))
}

/// The labels whose keys a relation has: those that some VirtualService names.
pub(super) fn named<R: Relation<Key = Arc<str>>>(cx: &Reads<'_>, labels: &Labels) -> Labels {
    let keys = cx.keys::<R>();
    keys.iter().filter_map(|key| labels.get_key_value(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// `Sidecar` objects of a namespace, the oldest first.
fn sidecars(cx: &Reads<'_>, namespace: &Arc<str>) -> Vec<Arc<Object<Sidecar>>> {
    let ids = cx.get::<SidecarsByNamespace>(namespace);
    let ids = ids.iter().flat_map(|members| members.iter());
    let mut objects: Vec<Arc<Object<Sidecar>>> =
        ids.filter_map(|id| cx.get::<Sidecars>(id).map(|o| (*o).clone())).collect();
    objects.sort_by(|a, b| a.meta.by_age(&b.meta));
    objects
}
