//! The services whose proxies serve a Gateway.

use std::sync::Arc;

use config::Object;
use config::gateway_api::Gateway;
use flow::Reads;
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use registry::inputs::Mesh;

use crate::plan::{self, OwnPlan, OwnPlans};

/// Annotation with the name of the service of a Gateway without addresses.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
/// Annotation with the service account of the proxies of a Gateway without addresses.
const ACCOUNT: &str = "gateway.istio.io/service-account";
/// The type of addresses that are services.
pub(crate) const HOSTNAME: &str = "Hostname";

flow::rule! {
    /// The services of each Gateway, all in its namespace. They need not exist.
    pub GatewayServices: ObjectId => Arc<[ServiceKey]> = "services of gateways of the gateway api", derive_services;
    /// The service account of the proxies of a Gateway, if the name of the Gateway decides it. Gateways whose addresses are
    /// services have none, because their proxies are deployed by others.
    pub GatewayAccounts: ObjectId => Arc<str> = "service accounts of gateways of the gateway api", derive_account;
}

flow::index! {
    /// Gateways by their services.
    pub GatewaysByService: ServiceKey => members of GatewayServices = "gateways of the gateway api by service", gateways_by_service_keys;
}

fn derive_services(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<[ServiceKey]>> {
    cx.with::<OwnPlans, _>(id, |plan: Option<&Arc<OwnPlan>>| plan.map(drop))?;
    let object = plan::object(cx, id)?;
    let domain = cx.get::<Mesh>(&())?.domain.clone();
    let hosts = hosts(&object, &domain);
    let key = |hostname| ServiceKey { hostname, namespace: id.namespace.clone() };
    Some(hosts.into_iter().map(key).collect())
}

fn derive_account(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<str>> {
    let object = plan::object(cx, id)?;
    if named(&object.spec).next().is_some() {
        return None;
    }
    Some(object.meta.annotation(ACCOUNT).map_or_else(|| deployed_name(&object), Arc::from))
}

/// The name of the service of a Gateway without addresses, and of its Deployment.
fn deployed_name(object: &Object<Gateway>) -> Arc<str> {
    let default = || format!("{}-{}", object.meta.name, object.spec.gateway_class_name).into();
    object.meta.annotation(NAME_OVERRIDE).map_or_else(default, Arc::from)
}

/// The addresses of a Gateway that are services. One without a value requests any address.
pub(crate) fn named(spec: &Gateway) -> impl Iterator<Item = &Arc<str>> {
    let named = spec.addresses.iter().filter(|address| &*address.kind == HOSTNAME);
    named.filter_map(|address| address.value.as_ref()).filter(|value| !value.is_empty())
}

/// The hosts of a Gateway's services: its addresses that are hosts, else the service that is named like it.
fn hosts(object: &Object<Gateway>, domain: &str) -> Vec<Hostname> {
    let (spec, namespace) = (&object.spec, &object.meta.namespace);
    if named(spec).next().is_none() {
        return Hostname::of_service(&deployed_name(object), namespace, domain).into_iter().collect();
    }
    named(spec).filter_map(|host| Hostname::resolve(host, namespace, domain).ok()).collect()
}

fn gateways_by_service_keys(_: &ObjectId, row: &Arc<[ServiceKey]>) -> Vec<ServiceKey> {
    row.to_vec()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<GatewayServices, OwnPlans>();
    b.view::<GatewayAccounts>();
    b.index::<GatewaysByService>();
}
