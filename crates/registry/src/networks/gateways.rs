//! Gateways of networks, through which other networks reach them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::gateway_api::Gateway;
use flow::{Index, Members, Reads, Relation, Rule};
use model::network::NetworkEntries;
use model::service::SourceId;

use super::found::{Found, Place, network_of};
use crate::inputs::{HostAddresses, KubeGateways, Mesh, Networks, ServiceObject, ServiceObjectKey, ServiceObjects};

/// Services with a network label.
pub(super) struct GatewayServices;

impl Relation for GatewayServices {
    const NAME: &'static str = "services of network gateways";
    type Key = ();
    type Row = Members<ServiceObjectKey>;
}

impl Index for GatewayServices {
    type Of = ServiceObjects;
    fn keys(_: &ServiceObjectKey, row: &ServiceObject) -> Vec<()> {
        match row {
            ServiceObject::Kubernetes(o) => network_of(&o.meta).map(|_| ()).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// Gateway API Gateways with a network label.
pub(super) struct GatewayResources;

impl Relation for GatewayResources {
    const NAME: &'static str = "resources of network gateways";
    type Key = ();
    type Row = Members<SourceId>;
}

impl Index for GatewayResources {
    type Of = KubeGateways;
    fn keys(_: &SourceId, row: &Arc<Object<Gateway>>) -> Vec<()> {
        network_of(&row.meta).map(|_| ()).into_iter().collect()
    }
}

/// Gateways as configured, by address or name.
pub(super) struct GatewayPlaces;

impl Relation for GatewayPlaces {
    const NAME: &'static str = "places of network gateways";
    type Key = ();
    type Row = Arc<BTreeSet<Place>>;
}

impl Rule for GatewayPlaces {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<BTreeSet<Place>>> {
        let mesh = cx.get::<Mesh>(&())?;
        let mut found = Found::new(cx, &mesh);
        let labelled = cx.get::<GatewayServices>(&());
        labelled
            .iter()
            .flat_map(|keys| keys.iter())
            .for_each(|key| found.labelled(key));
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
}

/// Names of gateways that must be resolved.
pub struct GatewayNames;

impl Relation for GatewayNames {
    const NAME: &'static str = "names of network gateways";
    type Key = ();
    type Row = Arc<BTreeSet<Arc<str>>>;
}

impl Rule for GatewayNames {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<BTreeSet<Arc<str>>>> {
        let places = cx.get::<GatewayPlaces>(&())?;
        let names = places.iter().filter(|place| place.address().is_none());
        Some(Arc::new(names.map(|place| place.host().clone()).collect()))
    }
}

/// The gateways of the mesh's networks, with resolved addresses.
pub struct NetworkGateways;

impl Relation for NetworkGateways {
    const NAME: &'static str = "network gateways";
    type Key = ();
    type Row = Arc<NetworkEntries>;
}

impl Rule for NetworkGateways {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<NetworkEntries>> {
        let places = cx.get::<GatewayPlaces>(&())?;
        let mut entries = Vec::new();
        for place in places.iter() {
            let addresses = match place.address() {
                Some(address) => vec![address],
                None => {
                    cx.with::<HostAddresses, _>(place.host(), |found| found.map(|f| f.to_vec()).unwrap_or_default())
                }
            };
            entries.extend(addresses.into_iter().map(|address| place.at(address)));
        }
        Some(Arc::new(NetworkEntries::new(entries)))
    }
}

/// Adds this module's rules; those of services must be registered before.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<GatewayServices>();
    b.index::<GatewayResources>();
    b.view::<GatewayPlaces>();
    b.view::<GatewayNames>();
    b.view::<NetworkGateways>();
}
