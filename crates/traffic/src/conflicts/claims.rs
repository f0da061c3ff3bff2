//! VirtualServices that match claims of tokens at gateways which verify no tokens.
//!
//! Connected proxies decide which RequestAuthentications select a gateway. Without a connected proxy, a workload is assumed that
//! the `Gateway` exactly selects, in its namespace.

use std::collections::BTreeSet;

use config::istio::{HttpMatchRequest, RequestAuthentication};
use config::{Diagnostic, FieldPath, Kind, is_claim_header};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::{Mesh, ProxyToken};
use registry::{Gateways, VirtualServices};
use security::selection;

use super::diagnostic;
use crate::audience::{Audiences, ProxyAudiences};
use crate::virtual_service::{Binding, Summary};

flow::index! {
    /// Connected gateways by the `Gateway`s that select them, and by whether a RequestAuthentication does.
    pub(super) AuthenticatingGateways: (ObjectId, bool) => members of Audiences = "authenticating gateways", authenticating_gateways_keys;
}

fn authenticating_gateways_keys(_: &ProxyToken, row: &ProxyAudiences) -> Vec<(ObjectId, bool)> {
    let authenticates = !row.listener.policies.authentication.is_empty();
    let gateways = row.listener.class.gateway().map(|facts| facts.set.gateways.clone()).unwrap_or_default();
    gateways.iter().map(|gateway| (gateway.clone(), authenticates)).collect()
}

flow::rule! {
    /// Gateways at which claims of tokens are never known. A relation of its own, so that other changes of proxies stop here.
    GatewaysWithoutClaims: ObjectId => () = "gateways without claims", derive_gateways_without_claims;
}

fn derive_gateways_without_claims(cx: &Reads<'_>, gateway: &ObjectId) -> Option<()> {
    let connected = |authenticates| cx.get::<AuthenticatingGateways>(&(gateway.clone(), authenticates)).is_some();
    if connected(false) {
        return Some(());
    }
    if connected(true) {
        return None;
    }
    let object = cx.get::<Gateways>(gateway)?;
    let mesh = cx.get::<Mesh>(&())?;
    let (root, selector) = (&mesh.config.root_namespace, &object.spec.selector);
    selection::of_workload::<RequestAuthentication>(cx, root, &gateway.namespace, selector).is_empty().then_some(())
}

/// Adds the conditions of a VirtualService on claims that are never known.
pub(super) fn add_unknown(cx: &Reads<'_>, own: &Summary, found: &mut Vec<Diagnostic>) {
    let Some(object) = cx.get::<VirtualServices>(&own.id) else { return };
    for (route, http) in object.spec.http.iter().enumerate() {
        for (index, condition) in http.matches.iter().enumerate() {
            let Some((field, name)) = claim(condition) else { continue };
            let Some(gateway) = without_claims(cx, own, condition) else { continue };
            let effect = if field == "headers" { "never" } else { "always" };
            let message = format!(
                "no RequestAuthentication selects the workloads of Gateway {}/{}, so that no claims are known there: the \
                 condition {effect} holds",
                gateway.namespace, gateway.name
            );
            let path = FieldPath::spec().field("http").index(route).field("match").index(index).field(field).key(name);
            let hint = "create a RequestAuthentication for the issuer of the tokens that selects the gateway";
            let code = Diagnostic::MISSING_REFERENCE;
            found.push(diagnostic(Kind::VirtualService, &own.id, code, path, message, hint));
        }
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<AuthenticatingGateways>();
    b.view::<GatewaysWithoutClaims>();
}

/// The first claim that a condition names, and its field.
fn claim(condition: &HttpMatchRequest) -> Option<(&'static str, std::sync::Arc<str>)> {
    let of = |field, mut names: std::collections::btree_map::Keys<'_, std::sync::Arc<str>, _>| {
        names.find(|name| is_claim_header(name)).map(|name| (field, name.clone()))
    };
    of("headers", condition.headers.keys()).or_else(|| of("withoutHeaders", condition.without_headers.keys()))
}

/// A gateway of a condition at which no claims are known.
fn without_claims(cx: &Reads<'_>, own: &Summary, condition: &HttpMatchRequest) -> Option<ObjectId> {
    let own_gateways: BTreeSet<&Binding> = own.gateways.iter().collect();
    let named: Vec<Binding> = condition.gateways.iter().filter_map(|name| Binding::parse(name)).collect();
    let gateways: Vec<&Binding> = match named.is_empty() {
        true => own_gateways.into_iter().collect(),
        false => named.iter().collect(),
    };
    gateways.into_iter().find_map(|binding| match binding {
        Binding::Gateway(gateway) => {
            let lacks = cx.get::<GatewaysWithoutClaims>(gateway).is_some();
            lacks.then(|| gateway.clone())
        }
        Binding::Mesh => None,
    })
}
