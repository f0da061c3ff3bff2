//! HTTPRoutes and GRPCRoutes of services that are overridden by VirtualServices, as in `routes/mesh.rs`.

use std::sync::Arc;

use config::{FieldPath, Kind};
use flow::Reads;
use gateway_api::mesh::{Frontend, FrontendMatches, MeshAttachments};
use model::kube::{RouteId, RouteKind};
use model::service::ExportTo;
use names::Hostname;

use super::leaders::{HostLeaders, VirtualServicesByHost, takes_routes};
use super::{Conflicts, conflict, row};
use crate::virtual_service::{Summary, VirtualServiceSummaries};

flow::rule! {
    /// The conflicts of each route of services. It reads the first VirtualServices of the services' hosts only.
    pub RouteConflicts: RouteId => Conflicts = "conflicts on routes", derive_route_conflicts;
}

fn derive_route_conflicts(cx: &Reads<'_>, id: &RouteId) -> Option<Conflicts> {
    let kind = match id.kind {
        RouteKind::Http => Kind::HttpRoute,
        RouteKind::Grpc => Kind::GrpcRoute,
        RouteKind::Tls | RouteKind::Tcp | RouteKind::Udp => return None,
    };
    let mut conflicts = Vec::new();
    for parent in cx.get::<MeshAttachments>(id)?.iter() {
        let frontends = parent.outcome.iter().flatten();
        let Some(message) = frontends.filter_map(|frontend| overruled(cx, frontend)).next() else { continue };
        let path = FieldPath::spec().field("parentRefs").index(parent.index);
        let hint = "remove the VirtualService, or the parent";
        conflicts.push(conflict(kind, &id.id, path, message, hint));
    }
    row(conflicts)
}

/// Says where clients of a frontend use a VirtualService instead of its routes.
fn overruled(cx: &Reads<'_>, frontend: &Frontend) -> Option<String> {
    let host = &frontend.service.hostname;
    let created = cx.with::<FrontendMatches, _>(frontend, |merged| merged.map(|merged: &Arc<_>| merged.created))?;
    let found = first_of(cx, host).into_iter().find_map(|one| {
        let is_older = created < one.created;
        let whom = match (&one.export_to, &frontend.consumer) {
            (ExportTo::All, None) if !is_older => "all namespaces".to_owned(),
            (ExportTo::Namespaces(names), None) if !names.is_empty() => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                format!("the {} {}", if names.len() == 1 { "namespace" } else { "namespaces" }, names.join(", "))
            }
            (ExportTo::Namespaces(names), Some(namespace)) if names.contains(namespace) && !is_older => {
                format!("the namespace {namespace}")
            }
            _ => return None,
        };
        Some((one.id.clone(), whom))
    });
    let (rival, whom) = found?;
    Some(format!(
        "VirtualService {rival} has the host {host}, too, and takes precedence: sidecars of {whom} use only its HTTP routes at \
         port {}",
        frontend.port
    ))
}

/// The VirtualServices of a host that precede its others for sidecars.
fn first_of(cx: &Reads<'_>, host: &Hostname) -> Vec<Arc<Summary>> {
    if let Some(leaders) = cx.get::<HostLeaders>(host) {
        return leaders.of_sidecars().cloned().collect();
    }
    let members = cx.get::<VirtualServicesByHost>(host);
    let members = members.iter().flat_map(|members| members.iter());
    let summaries = members.filter_map(|id| cx.get::<VirtualServiceSummaries>(id).map(|row| (*row).clone()));
    summaries.filter(|summary| takes_routes(summary)).collect()
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<RouteConflicts>();
}
