//! Gateways of networks, through which other networks reach them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::gateway_api::Gateway;
use flow::Reads;
use model::network::NetworkEntries;
use model::service::SourceId;

use super::found::{Found, Place, network_of};
use crate::inputs::{HostAddresses, KubeGateways, Mesh, Networks, ServiceObject, ServiceObjectKey, ServiceObjects};

flow::index! {
    /// Services with a network label.
    pub(super) GatewayServices: () => members of ServiceObjects = "services of network gateways", gateway_services_keys;
}

fn gateway_services_keys(_: &ServiceObjectKey, row: &ServiceObject) -> Vec<()> {
    match row {
        ServiceObject::Kubernetes(o) => network_of(&o.meta).map(|_| ()).into_iter().collect(),
        _ => Vec::new(),
    }
}

flow::index! {
    /// Gateway API Gateways with a network label.
    pub(super) GatewayResources: () => members of KubeGateways = "resources of network gateways", gateway_resources_keys;
}

fn gateway_resources_keys(_: &SourceId, row: &Arc<Object<Gateway>>) -> Vec<()> {
    network_of(&row.meta).map(|_| ()).into_iter().collect()
}

flow::rule! {
    /// Gateways as configured, by address or name.
    pub(super) GatewayPlaces: () => Arc<BTreeSet<Place>> = "places of network gateways", derive_gateway_places;
}

fn derive_gateway_places(cx: &Reads<'_>, (): &()) -> Option<Arc<BTreeSet<Place>>> {
    let mesh = cx.get::<Mesh>(&())?;
    let mut found = Found::new(cx, &mesh);
    let labelled = cx.get::<GatewayServices>(&());
    labelled.iter().flat_map(|keys| keys.iter()).for_each(|key| found.labelled(key));
    let resources = cx.get::<GatewayResources>(&());
    for id in resources.iter().flat_map(|ids| ids.iter()) {
        if let Some(gateway) = cx.get::<KubeGateways>(id) {
            found.of_resource(&id.cluster, &gateway);
        }
    }
    if let Some(networks) = cx.get::<Networks>(&()) {
        found.of_networks(&networks.spec);
    }
    Some(Arc::new(found.into_places()))
}

flow::rule! {
    /// Names of gateways that must be resolved.
    pub GatewayNames: () => Arc<BTreeSet<Arc<str>>> = "names of network gateways", derive_gateway_names;
}

fn derive_gateway_names(cx: &Reads<'_>, (): &()) -> Option<Arc<BTreeSet<Arc<str>>>> {
    let places = cx.get::<GatewayPlaces>(&())?;
    let names = places.iter().filter(|place| place.address().is_none());
    Some(Arc::new(names.map(|place| place.host().clone()).collect()))
}

flow::rule! {
    /// The gateways of the mesh's networks, with resolved addresses.
    pub NetworkGateways: () => Arc<NetworkEntries> = "network gateways", derive_network_gateways;
}

fn derive_network_gateways(cx: &Reads<'_>, (): &()) -> Option<Arc<NetworkEntries>> {
    let places = cx.get::<GatewayPlaces>(&())?;
    let mut entries = Vec::new();
    for place in places.iter() {
        let addresses = match place.address() {
            Some(address) => vec![address],
            None => cx.with::<HostAddresses, _>(place.host(), |found| found.map(|f| f.to_vec()).unwrap_or_default()),
        };
        entries.extend(addresses.into_iter().map(|address| place.at(address)));
    }
    Some(Arc::new(NetworkEntries::new(entries)))
}

/// Adds this module's rules; those of services must be registered before.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<GatewayServices>();
    b.index::<GatewayResources>();
    b.view::<GatewayPlaces>();
    b.view::<GatewayNames>();
    b.view::<NetworkGateways>();
}
