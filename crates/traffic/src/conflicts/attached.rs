//! VirtualServices that are overridden by routes of a service, as in `routes/mesh.rs`.

use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use gateway_api::mesh::{self, Frontend, FrontendConnections, FrontendMatches, Layer};
use model::service::ExportTo;
use names::Hostname;
use registry::ServicesByHost;

use super::conflict;
use crate::virtual_service::Summary;

/// The conflict with the routes of the service with this host, if clients use these instead. The first of its ports is named.
pub(super) fn overruled(cx: &Reads<'_>, own: &Summary, host: &Hostname, path: FieldPath) -> Option<Diagnostic> {
    let has_connections = own.has_tcp || own.has_tls;
    if own.http.is_empty() && !has_connections || !own.applies_to_mesh() {
        return None;
    }
    let has = |layer: Layer| match layer {
        Layer::Requests => !own.http.is_empty(),
        Layer::Connections => has_connections,
    };
    let services = cx.get::<ServicesByHost>(host)?;
    let frontends = services.iter().flat_map(|service| mesh::frontends(cx, service));
    let frontend = frontends.into_iter().find(|frontend| has(frontend.layer) && yields(cx, own, frontend))?;
    let kinds = match frontend.layer {
        Layer::Requests => "an HTTPRoute or GRPCRoute",
        Layer::Connections => "a TLSRoute or TCPRoute",
    };
    let whom = match &frontend.consumer {
        None => "all namespaces".to_owned(),
        Some(namespace) => format!("the namespace {namespace}"),
    };
    let message = format!(
        "{kinds} has the service {host} as a parent, and takes precedence: sidecars of {whom} use only such \
         routes at port {}",
        frontend.port
    );
    let hint = "remove the VirtualService, or the routes of the service";
    Some(conflict(Kind::VirtualService, &own.id, path, message, hint))
}

/// Whether clients of a VirtualService use the routes of a frontend instead.
fn yields(cx: &Reads<'_>, own: &Summary, frontend: &Frontend) -> bool {
    let created = || match frontend.layer {
        Layer::Requests => {
            cx.with::<FrontendMatches, _>(frontend, |merged| merged.map(|merged: &Arc<_>| merged.created))
        }
        Layer::Connections => cx.with::<FrontendConnections, _>(frontend, |all| all.map(|all: &Arc<_>| all.created)),
    };
    let is_older = || created().is_some_and(|created| created < own.created);
    match (&own.export_to, &frontend.consumer) {
        (ExportTo::All, Some(_)) => true,
        (ExportTo::All, None) => is_older(),
        (ExportTo::Namespaces(names), Some(namespace)) => names.contains(namespace) && is_older(),
        (ExportTo::Namespaces(_), None) => false,
    }
}
