//! InferencePools: model servers among which an endpoint picker selects one for each request.
//!
//! A pool is a backend of HTTPRoutes and GRPCRoutes of Gateways. Its service is that of [`registry::pools`]. The picker is a
//! Service that proxies ask over `ext_proc`.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::inference_pool::{EndpointPickerRef, FailureMode};
use config::gateway_api::reference::BackendObjectReference;
use flow::Reads;
use model::kube::{RouteId, RouteKind};
use model::service::{ObjectId, Registry, ServiceKey};
use names::{Hostname, Protocol};
use registry::Services;
use registry::inputs::{Mesh, RouteObject, RouteObjects, ServiceObject, ServiceObjects};

use crate::attach::Attachments;
use crate::backends;
use crate::grants::INFERENCE_GROUP;

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// The service, whose endpoints are the ports of its pods.
    pub service: ServiceKey,
    /// The endpoint picker. A pool without one is balanced like a Service.
    pub picker: Option<Picker>,
}

/// An endpoint picker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picker {
    /// The service and its port, or why there is none. Requests are then handled as if the picker did not answer.
    pub service: Result<(ServiceKey, u16), Arc<str>>,
    /// Without an answer, requests go to any endpoint. Otherwise they fail.
    pub fail_open: bool,
}

flow::rule! {
    /// InferencePools.
    pub Pools: ObjectId => Arc<Pool> = "inference pools", derive_pool;
    /// The Gateways that routes which refer to a pool are attached to.
    pub GatewaysOfPool: ObjectId => BTreeSet<ObjectId> = "gateways by inference pool", derive_gateways;
    /// The services of pools that routes refer to, and those of their pickers, with their ports. None if there are none.
    pub PoolServices: () => Arc<[(ServiceKey, u16)]> = "services of inference pools", derive_services;
    /// Gateways with routes to pools, whose proxies need a filter that asks pickers.
    pub PickingGateways: ObjectId => () = "gateways with inference pools", derive_picking;
}

flow::index! {
    /// Routes by the pools that they refer to.
    pub RoutesByPool: ObjectId => members of RouteObjects = "routes by inference pool", routes_by_pool_keys;
}

/// Whether a reference is to a pool.
pub(crate) fn is_pool(reference: &BackendObjectReference) -> bool {
    &*reference.group == INFERENCE_GROUP && &*reference.kind == "InferencePool"
}

/// Whether routes of a kind may have pools as backends.
pub(crate) fn are_backends_of(kind: RouteKind) -> bool {
    matches!(kind, RouteKind::Http | RouteKind::Grpc)
}

fn routes_by_pool_keys(id: &RouteId, route: &RouteObject) -> Vec<ObjectId> {
    if !are_backends_of(id.kind) {
        return Vec::new();
    }
    let pools: BTreeSet<ObjectId> = backends::pools_of(route, &id.id.namespace).collect();
    pools.into_iter().collect()
}

fn derive_pool(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Pool>> {
    let object = cx.get::<ServiceObjects>(&registry::pools::object_key(id.clone()))?;
    let ServiceObject::Pool(object) = &*object else { return None };
    let domain = cx.get::<Mesh>(&())?.domain.clone();
    let picker = object.spec.endpoint_picker_ref.as_ref().map(|reference| Picker {
        service: service_of(cx, &id.namespace, &domain, reference).map_err(Arc::from),
        fail_open: reference.failure_mode == FailureMode::FailOpen,
    });
    Some(Arc::new(Pool { service: registry::pools::service_key(id, &domain)?, picker }))
}

/// The service of a picker, in the namespace of the pool.
fn service_of(
    cx: &Reads<'_>,
    namespace: &Arc<str>,
    domain: &str,
    reference: &EndpointPickerRef,
) -> Result<(ServiceKey, u16), String> {
    let EndpointPickerRef { group, kind, name, .. } = reference;
    if !group.is_empty() || &**kind != "Service" {
        return Err(format!("Unsupported ExtensionRef kind {kind}"));
    }
    let port = reference.port.as_ref().map(|port| port.number).ok_or("ExtensionRef has no port")?;
    let hostname = Hostname::of_service(name, namespace, domain).ok();
    let key = hostname.map(|hostname| ServiceKey { hostname, namespace: namespace.clone() });
    let service = key.as_ref().and_then(|key| cx.get::<Services>(key));
    let service = service.filter(|service| service.registry == Registry::Kubernetes);
    let (Some(key), Some(service)) = (key, service) else {
        return Err(format!("Referenced ExtensionRef not found {name}"));
    };
    if service.external {
        return Err(format!(
            "Referenced ExtensionRef {name} is a Service of type ExternalName, which is not supported"
        ));
    }
    match service.port(port) {
        Some(found) if found.protocol != Protocol::Udp => Ok((key, port)),
        _ => Err(format!("Referenced ExtensionRef {name} has no port {port}")),
    }
}

fn derive_gateways(cx: &Reads<'_>, pool: &ObjectId) -> Option<BTreeSet<ObjectId>> {
    let mut gateways = BTreeSet::new();
    for route in cx.get::<RoutesByPool>(pool)?.iter() {
        let attachment = cx.get::<Attachments>(route);
        let parents = attachment.iter().flat_map(|row| &row.parents).filter(|parent| parent.outcome.is_ok());
        gateways.extend(parents.map(|parent| parent.gateway.clone()));
    }
    (!gateways.is_empty()).then_some(gateways)
}

fn derive_services(cx: &Reads<'_>, (): &()) -> Option<Arc<[(ServiceKey, u16)]>> {
    let mut services = BTreeSet::new();
    for id in cx.keys::<RoutesByPool>().iter() {
        let Some(pool) = cx.get::<Pools>(id) else { continue };
        services.insert((pool.service.clone(), registry::pools::PORT));
        services.extend(pool.picker.as_ref().and_then(|picker| picker.service.clone().ok()));
    }
    (!services.is_empty()).then(|| services.into_iter().collect())
}

fn derive_picking(cx: &Reads<'_>, gateway: &ObjectId) -> Option<()> {
    let keys = cx.keys::<RoutesByPool>();
    let has = |id: &ObjectId| cx.with::<GatewaysOfPool, _>(id, |row| row.is_some_and(|row| row.contains(gateway)));
    keys.iter().any(has).then_some(())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<RoutesByPool>();
    b.view::<Pools>();
    b.view::<GatewaysOfPool>();
    b.view::<PoolServices>();
    b.view::<PickingGateways>();
}
