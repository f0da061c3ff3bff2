//! Namespaces whose clients differ from others.
//!
//! Most namespaces only have services and DestinationRules that all clients see alike. Their clients share everything that
//! depends on the namespace by visibility and policies only, whatever the number of namespaces. Where a namespace has a few
//! private services or policies of its own, its clients share the rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{CaptureMode, EgressListener};
use flow::Reads;
use gateway_api::mesh::has_connection_consumers;
use model::audience::{ListenerAudience, ProxyClass, Scope};
use model::service::{ExportTo, ObjectId};
use names::Hostname;
use registry::aliases::aliases;
use registry::inputs::{Mesh, Sidecars};
use registry::{Exported, ServicesByExport, ServicesByHost};

use super::{OutboundPolicy, ServicesByNamespace, is_open, outbound_policy};
use crate::policy::{DestinationRuleSummaries, RuleSummary};
use crate::virtual_service::L4VirtualServices;

flow::index! {
    /// DestinationRules by the namespaces whose clients they may concern more than others: those that they are exported to,
    /// or their own.
    RulesByClient: Arc<str> => members of DestinationRuleSummaries = "destination rules by client namespace", rules_by_client_keys;
}

fn rules_by_client_keys(_: &ObjectId, row: &Arc<RuleSummary>) -> Vec<Arc<str>> {
    match &row.export_to {
        ExportTo::All => vec![row.id.namespace.clone()],
        ExportTo::Namespaces(names) => names.iter().cloned().collect(),
    }
}

/// The maximum number of hosts that the clients of a namespace have themselves beside shared lists. Each workload of the namespace
/// lists them; with more, one list for the namespace costs less.
const FEW: usize = 32;

flow::rule! {
    /// What the clients of a namespace may see or use otherwise than clients of a namespace without any objects; no row if
    /// nothing.
    ParticularNamespaces: Arc<str> => Particular = "particular namespaces", derive_particular_namespaces;
}

/// What the clients of a namespace may have otherwise than others: services that others do not see, or policies of their own.
#[derive(Clone, PartialEq, Debug)]
enum Particular {
    /// The services of these hosts.
    Few(Arc<BTreeSet<Hostname>>),
    /// Many services.
    Many,
}

fn derive_particular_namespaces(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<Particular> {
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(namespace.clone()));
    if private.as_ref().is_some_and(|keys| keys.len() > FEW) {
        return Some(Particular::Many);
    }
    let mut hosts: BTreeSet<Hostname> =
        private.iter().flat_map(|keys| keys.iter()).map(|key| key.hostname.clone()).collect();
    for host in hosts_of_own_rules(cx, namespace).into_iter().chain(hosts_of_others(cx, namespace)) {
        // A wildcard is for many hosts.
        if host.is_wildcard() || hosts.len() > FEW {
            return Some(Particular::Many);
        }
        if cx.contains::<ServicesByHost>(&host) {
            hosts.insert(host);
        }
    }
    match hosts.len() {
        0 => None,
        few if few <= FEW => Some(Particular::Few(Arc::new(hosts))),
        _ => Some(Particular::Many),
    }
}

/// The hosts of DestinationRules that concern clients of this namespace more than others.
fn hosts_of_own_rules(cx: &Reads<'_>, namespace: &Arc<str>) -> Vec<Hostname> {
    let Some(rules) = cx.get::<RulesByClient>(namespace) else { return Vec::new() };
    let is_root = || cx.with::<Mesh, _>(&(), |mesh| mesh.is_some_and(|mesh| mesh.config.root_namespace == *namespace));
    let concerns_all = |rule: &RuleSummary| {
        if rule.export_to != ExportTo::All || rule.selector.is_some() {
            return false;
        }
        // The rules of a service's namespace, and of the root namespace, apply to all clients.
        let own_service = || {
            let definitions = cx.get::<ServicesByHost>(&rule.host);
            !rule.host.is_wildcard()
                && definitions.iter().flat_map(|keys| keys.iter()).all(|key| key.namespace == *namespace)
        };
        is_root() || own_service()
    };
    let rules = rules.iter().filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
    rules.filter(|rule| !concerns_all(rule)).map(|rule| rule.host.clone()).collect()
}

/// The hostnames of services of this namespace that another one has, too: clients prefer that of their own namespace.
fn hosts_of_others(cx: &Reads<'_>, namespace: &Arc<str>) -> Vec<Hostname> {
    let Some(services) = cx.get::<ServicesByNamespace>(&(namespace.clone(), Exported::All)) else { return Vec::new() };
    let is_shared =
        |host: &&Hostname| cx.with::<ServicesByHost, _>(*host, |keys| keys.is_some_and(|keys| keys.len() > 1));
    services.iter().map(|key| &key.hostname).filter(is_shared).cloned().collect()
}

/// The scope for resources that depend on the namespace by visibility and policies only: without the namespace, if its
/// clients see what others see.
pub(crate) fn shared(cx: &Reads<'_>, scope: &Arc<Scope>) -> Arc<Scope> {
    let open = common_sidecar(cx, scope).is_some() && scope.selected_rules.is_empty();
    match open && !cx.contains::<ParticularNamespaces>(&scope.namespace) {
        true => anywhere(scope, None),
        false => scope.clone(),
    }
}

/// The scope for most of such resources, beside which clients have those of [`few_hosts`] themselves. The same scope, if they
/// share nothing with other namespaces.
pub(crate) fn base(cx: &Reads<'_>, scope: &Arc<Scope>) -> Arc<Scope> {
    let shares =
        || cx.with::<ParticularNamespaces, _>(&scope.namespace, |particular| particular != Some(&Particular::Many));
    match common_sidecar(cx, scope) {
        Some(sidecar) if shares() => anywhere(scope, sidecar),
        _ => scope.clone(),
    }
}

/// The hosts whose resources clients of a scope have themselves, beside those of the [`base`]; none if all are shared, or no
/// resources.
pub(crate) fn few_hosts(cx: &Reads<'_>, scope: &Scope) -> Option<Arc<BTreeSet<Hostname>>> {
    common_sidecar(cx, scope)?;
    cx.with::<ParticularNamespaces, _>(&scope.namespace, |particular| match particular {
        Some(Particular::Few(hosts)) => Some(hosts.clone()),
        Some(Particular::Many) | None => None,
    })
}

/// The scope of clients in a namespace without any objects but this `Sidecar`.
fn anywhere(scope: &Scope, sidecar: Option<ObjectId>) -> Arc<Scope> {
    Arc::new(Scope { namespace: Arc::default(), selected_rules: Vec::new(), sidecar, ..scope.clone() })
}

/// The `Sidecar` that clients of any namespace can share; `None` if that of the scope is for its own clients only.
///
/// Those that import everything, through one listener that captures traffic as usual, can be shared: `Some`. It is without a `Sidecar` if
/// the scope has none, or one that changes nothing, because its policy for unknown destinations is that of the mesh.
fn common_sidecar(cx: &Reads<'_>, scope: &Scope) -> Option<Option<ObjectId>> {
    let Some(id) = &scope.sidecar else { return Some(None) };
    let is_plain =
        |listener: &EgressListener| listener.bind.is_empty() && listener.capture_mode == CaptureMode::Default;
    let captures_as_usual =
        cx.with::<Sidecars, _>(id, |row| row.is_none_or(|sidecar| sidecar.spec.egress.iter().all(is_plain)));
    let policy = outbound_policy(cx, scope);
    // The host of an egress proxy may be a short name, which depends on the namespace.
    if !is_open(cx, scope) || !captures_as_usual || matches!(policy, OutboundPolicy::AllowAny { egress_proxy: Some(_) })
    {
        return None;
    }
    let of_mesh = outbound_policy(cx, &Scope { sidecar: None, ..scope.clone() });
    Some(scope.sidecar.clone().filter(|_| policy != of_mesh))
}

/// The audience of the outbound listeners that a sidecar shares, beside which it has those that its namespace changes
/// ([`OwnOutboundListeners`](crate::listeners::outbound::OwnOutboundListeners)). `None` for other classes.
pub(crate) fn base_listeners(cx: &Reads<'_>, audience: &ListenerAudience) -> Option<ListenerAudience> {
    let mut base = audience.without_inbound()?;
    if listeners_are_shared(cx) {
        base.scope = self::base(cx, &base.scope);
        if let (true, ProxyClass::Sidecar(facts)) = (base.scope.namespace.is_empty(), &mut base.class) {
            facts.source = Arc::default();
        }
    }
    Some(base)
}

/// Whether no listener depends on the namespace in other ways: TCP and TLS routes match it, consumer routes apply in it, and aliases
/// have short names in it.
fn listeners_are_shared(cx: &Reads<'_>) -> bool {
    cx.get::<L4VirtualServices>(&()).is_none() && aliases(cx).is_empty() && !has_connection_consumers(cx)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<RulesByClient>();
    b.view::<ParticularNamespaces>();
}
