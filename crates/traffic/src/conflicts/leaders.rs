//! The VirtualServices of a host that take routes from others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::istio::VirtualService;
use flow::Reads;
use model::service::{ExportTo, ObjectId};
use names::Hostname;

use crate::virtual_service::{Binding, EffectiveVirtualServices, Guard, Summary, VirtualServiceSummaries, precedence};

/// The maximum number of VirtualServices of a host with whose TCP and TLS routes those of others are compared: the first
/// by precedence. Routes differ in conditions, so that none stands for all.
const CONNECTIONS: usize = 64;

flow::index! {
    /// VirtualServices by each of their hosts.
    pub VirtualServicesByHost: Hostname => members of VirtualServiceSummaries = "virtual services by host", virtual_services_by_host_keys;
}

fn virtual_services_by_host_keys(_: &ObjectId, row: &Arc<Summary>) -> Vec<Hostname> {
    let hosts: BTreeSet<&Hostname> = row.hosts.iter().collect();
    hosts.into_iter().cloned().collect()
}

flow::rule! {
    /// The VirtualServices of a host that may take routes from others: a change of any other one stops here, so that
    /// thousands of VirtualServices can share a host. No row for a host of one VirtualService.
    pub(super) HostLeaders: Hostname => Leaders = "leading virtual services by host", derive_leaders;
}

/// The first VirtualServices of a host by precedence.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Leaders {
    /// Among those with an HTTP route for all sidecars that are exported to all namespaces.
    public: Option<Arc<Summary>>,
    /// Among those that are exported to some namespaces.
    explicit: Option<Arc<Summary>>,
    /// Among those that are exported to this namespace explicitly.
    to_namespace: BTreeMap<Arc<str>, Arc<Summary>>,
    /// Among those with a route without conditions at this gateway.
    at_gateway: BTreeMap<ObjectId, Arc<Summary>>,
    /// VirtualServices with TCP or TLS routes, by name; at most [`CONNECTIONS`].
    pub(super) connections: Vec<Arc<Summary>>,
}

fn derive_leaders(cx: &Reads<'_>, host: &Hostname) -> Option<Leaders> {
    // Most hosts are in one VirtualService.
    let members = cx.get::<VirtualServicesByHost>(host).filter(|members| members.len() > 1)?;
    let mut leaders = Leaders::default();
    for summary in members.iter().filter_map(|id| cx.get::<VirtualServiceSummaries>(id)) {
        if takes_routes(&summary) {
            leaders.add_for_sidecars(&summary);
        }
        leaders.add_at_gateways(cx, &summary);
        if summary.has_tcp || summary.has_tls {
            leaders.connections.push((*summary).clone());
        }
    }
    let first = |one: &Arc<Summary>| (one.export_to == ExportTo::All, one.created, one.id.clone());
    leaders.connections.sort_by_key(first);
    leaders.connections.truncate(CONNECTIONS);
    leaders.connections.sort_by(|a, b| a.id.cmp(&b.id));
    Some(leaders)
}

impl Leaders {
    fn add_for_sidecars(&mut self, summary: &Arc<Summary>) {
        match &summary.export_to {
            ExportTo::All => lead(&mut self.public, summary, ""),
            ExportTo::Namespaces(names) if names.is_empty() => {}
            ExportTo::Namespaces(names) => {
                lead(&mut self.explicit, summary, "");
                for name in names {
                    let first = self.to_namespace.entry(name.clone()).or_insert_with(|| summary.clone());
                    replace(first, summary, name);
                }
            }
        }
    }

    fn add_at_gateways(&mut self, cx: &Reads<'_>, summary: &Arc<Summary>) {
        let gateways = summary.gateways.iter().filter_map(|binding| match binding {
            Binding::Gateway(id) if summary.export_to.includes(&id.namespace) => Some(id),
            _ => None,
        });
        let mut gateways = gateways.peekable();
        let takes_all = |object: Option<&_>| object.is_some_and(|object| unconditional(object).is_some());
        if gateways.peek().is_none()
            || !cx.with::<EffectiveVirtualServices, _>(&summary.id, |object| takes_all(object.map(|o| &o.spec)))
        {
            return;
        }
        for id in gateways {
            let first = self.at_gateway.entry(id.clone()).or_insert_with(|| summary.clone());
            replace(first, summary, &id.namespace);
        }
    }

    /// The VirtualServices that may have precedence over a VirtualService for some sidecars.
    pub(super) fn for_sidecars<'a>(&'a self, own: &'a Summary) -> Vec<&'a Arc<Summary>> {
        let rivals: Vec<&Arc<Summary>> = match &own.export_to {
            ExportTo::All => self.public.iter().chain(&self.explicit).collect(),
            // One that is exported to all namespaces never precedes this one.
            ExportTo::Namespaces(names) => names.iter().filter_map(|name| self.to_namespace.get(name)).collect(),
        };
        rivals.into_iter().filter(|rival| rival.id != own.id).collect()
    }

    /// The VirtualServices that precede all others for some sidecars.
    pub(super) fn of_sidecars(&self) -> impl Iterator<Item = &Arc<Summary>> {
        self.public.iter().chain(self.to_namespace.values())
    }

    /// The first gateway of a VirtualService at which another one with a route without conditions precedes it, and that
    /// one.
    pub(super) fn at_gateway<'a>(&'a self, own: &'a Summary) -> Option<(&'a ObjectId, &'a Arc<Summary>)> {
        own.gateways.iter().find_map(|binding| {
            let Binding::Gateway(id) = binding else { return None };
            let rival = self.at_gateway.get(id).filter(|rival| rival.id != own.id)?;
            let precedes = own.export_to.includes(&id.namespace) && precedence(rival, own, &id.namespace).is_lt();
            precedes.then_some((id, rival))
        })
    }
}

/// Replaces the first one by another one that precedes it in a namespace.
fn replace(first: &mut Arc<Summary>, other: &Arc<Summary>, namespace: &str) {
    if precedence(other, first, namespace).is_lt() {
        *first = other.clone();
    }
}

fn lead(first: &mut Option<Arc<Summary>>, other: &Arc<Summary>, namespace: &str) {
    replace(first.get_or_insert_with(|| other.clone()), other, namespace);
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<HostLeaders>();
}

/// Whether a VirtualService takes all HTTP requests to its hosts from others, at sidecars that see it.
pub(super) fn takes_routes(summary: &Summary) -> bool {
    summary.applies_to_mesh() && summary.http.iter().any(is_for_all)
}

/// Whether a route is for all sidecars. A VirtualService for some clients or ports leaves others to the next.
fn is_for_all(guard: &Guard) -> bool {
    let of_mesh = guard.gateways.is_empty() || guard.gateways.iter().any(|gateway| gateway.is(None));
    of_mesh && guard.port.is_none() && guard.source_labels.is_empty() && guard.source_namespace.is_none()
}

/// Its first route without conditions.
pub(super) fn unconditional(spec: &VirtualService) -> Option<usize> {
    spec.http.iter().position(|route| route.matches.is_empty() && route.delegate.is_none())
}
