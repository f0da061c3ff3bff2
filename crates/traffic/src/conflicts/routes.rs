//! Conflicts of VirtualServices: hosts that others have, and references that do not resolve.

use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::service::ObjectId;
use names::Hostname;
use registry::VirtualServices;

use super::leaders::{HostLeaders, Leaders, VirtualServicesByHost, unconditional};
use super::references::UnresolvedByVirtualService;
use super::{Conflicts, attached, claims, conflict, connections, diagnostic, leaders, overruled_in, row};
use crate::virtual_service::{Summary, VirtualServiceSummaries, missing_delegates};

flow::rule! {
    /// The conflicts of each VirtualService.
    pub VirtualServiceConflicts: ObjectId => Conflicts = "conflicts on virtual services", derive_virtual_service_conflicts;
}

fn derive_virtual_service_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let mut conflicts = Vec::new();
    if let Some(own) = cx.get::<VirtualServiceSummaries>(key) {
        add_overruled(cx, &own, &mut conflicts);
        claims::add_unknown(cx, &own, &mut conflicts);
    }
    if let Some(unresolved) = cx.get::<UnresolvedByVirtualService>(key) {
        conflicts.extend(unresolved.iter().cloned());
    }
    conflicts.extend(missing_delegates(cx, key).into_iter().map(|(index, what)| {
        let path = FieldPath::spec().field("http").index(index).field("delegate");
        let hint = "a delegate has no hosts, and is exported to the namespace of who delegates to it";
        diagnostic(
            Kind::VirtualService,
            key,
            Diagnostic::MISSING_REFERENCE,
            path,
            format!("{what}: the route is left out"),
            hint,
        )
    }));
    row(conflicts)
}

/// Adds the conflicts with other VirtualServices and with routes of its hosts.
fn add_overruled(cx: &Reads<'_>, own: &Summary, conflicts: &mut Vec<Diagnostic>) {
    for (index, host) in own.hosts.iter().enumerate() {
        let path = FieldPath::spec().field("hosts").index(index);
        conflicts.extend(attached::overruled(cx, own, host, path.clone()));
        let Some(leaders) = cx.get::<HostLeaders>(host) else { continue };
        conflicts.extend(overruled(own, &leaders, host, path));
        conflicts.extend(unreachable(cx, own, &leaders, host));
        connections::never_taken(cx, own, &leaders.connections, host, conflicts);
    }
}

/// Where sidecars use another one for a host: they use the first of several.
fn overruled(own: &Summary, leaders: &Leaders, host: &Hostname, path: FieldPath) -> Option<Diagnostic> {
    if own.http.is_empty() || !own.applies_to_mesh() {
        return None;
    }
    let mut rivals = leaders.for_sidecars(own).into_iter();
    let (rival, whom) = rivals.find_map(|rival| Some((rival, overruled_in(own, rival)?)))?;
    let message = format!(
        "VirtualService {}/{} has the host {host}, too, and takes precedence: sidecars of {whom} use its HTTP routes \
         only",
        rival.id.namespace, rival.id.name
    );
    let hint = "put all routes for a host into one VirtualService, or into delegates of one";
    Some(conflict(Kind::VirtualService, &own.id, path, message, hint))
}

/// A route without conditions after another one without conditions: gateways use all VirtualServices of a host, those
/// with conditions first.
fn unreachable(cx: &Reads<'_>, own: &Summary, leaders: &Leaders, host: &Hostname) -> Option<Diagnostic> {
    let (shared, rival) = leaders.at_gateway(own)?;
    let object = cx.get::<VirtualServices>(&own.id)?;
    let index = unconditional(&object.spec)?;
    let message = format!(
        "VirtualService {}/{} has a route without a condition for {host} at the gateway {}/{}, too, and takes \
         precedence: this route is never taken there",
        rival.id.namespace, rival.id.name, shared.namespace, shared.name
    );
    let hint = "give one of the two routes a condition";
    let path = FieldPath::spec().field("http").index(index);
    Some(conflict(Kind::VirtualService, &own.id, path, message, hint))
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<VirtualServicesByHost>();
    leaders::register(b);
    b.view::<VirtualServiceConflicts>();
}
