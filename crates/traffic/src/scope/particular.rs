//! Namespaces whose clients differ from others.
//!
//! Most namespaces only have services and DestinationRules that all clients see alike. Their clients share everything that
//! depends on the namespace by visibility and policies only, whatever the number of namespaces.

use std::sync::Arc;

use flow::Reads;
use gateway_api::mesh::has_connection_consumers;
use model::audience::Scope;
use model::service::{ExportTo, ObjectId};
use registry::aliases::aliases;
use registry::inputs::Mesh;
use registry::{Exported, ServicesByExport, ServicesByHost};

use super::ServicesByNamespace;
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

flow::rule! {
    /// Whether the clients of a namespace may see other services, or use other policies, than clients of a namespace
    /// without any objects.
    ParticularNamespaces: Arc<str> => () = "particular namespaces", derive_particular;
}

fn derive_particular(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<()> {
    let sees_more = cx.get::<ServicesByExport>(&Exported::Namespace(namespace.clone())).is_some();
    let particular = sees_more || has_own_rules(cx, namespace) || defines_hosts_of_others(cx, namespace);
    particular.then_some(())
}

/// Whether a DestinationRule concerns clients of this namespace more than others.
fn has_own_rules(cx: &Reads<'_>, namespace: &Arc<str>) -> bool {
    let Some(rules) = cx.get::<RulesByClient>(namespace) else { return false };
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
    let mut rules = rules.iter().filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
    rules.any(|rule| !concerns_all(&rule))
}

/// Whether a service of this namespace has a hostname that another one has, too: clients prefer that of their own
/// namespace.
fn defines_hosts_of_others(cx: &Reads<'_>, namespace: &Arc<str>) -> bool {
    let Some(services) = cx.get::<ServicesByNamespace>(&(namespace.clone(), Exported::All)) else { return false };
    services
        .iter()
        .any(|key| cx.with::<ServicesByHost, _>(&key.hostname, |keys| keys.is_some_and(|keys| keys.len() > 1)))
}

/// The scope for resources that depend on the namespace by visibility and policies only: without the namespace, if its
/// clients see what others see.
pub(crate) fn shared(cx: &Reads<'_>, scope: &Arc<Scope>) -> Arc<Scope> {
    let open = scope.sidecar.is_none() && scope.selected_rules.is_empty();
    match open && cx.get::<ParticularNamespaces>(&scope.namespace).is_none() {
        true => Arc::new(Scope { namespace: Arc::default(), ..(**scope).clone() }),
        false => scope.clone(),
    }
}

/// Whether no listener depends on the namespace in other ways: TCP and TLS routes match it, consumer routes apply in it, and aliases
/// have short names in it.
pub(crate) fn listeners_are_shared(cx: &Reads<'_>) -> bool {
    cx.get::<L4VirtualServices>(&()).is_none() && aliases(cx).is_empty() && !has_connection_consumers(cx)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<RulesByClient>();
    b.view::<ParticularNamespaces>();
}
