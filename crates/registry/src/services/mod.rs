//! Services, merged by hostname and namespace from the definitions of single objects.

mod definitions;
mod entries;
mod fields;

use std::collections::BTreeMap;
use std::sync::Arc;

use flow::Reads;
use model::service::{ExportTo, Registry, Service, ServiceKey};
use names::Hostname;

use crate::inputs::{Mesh, ServiceObjectKey, ServiceObjects};
use crate::joined::joined;

pub use definitions::Definitions;
pub(crate) use definitions::definition;
pub use fields::export_to;

flow::index! {
    /// Objects that define a service of this hostname and namespace.
    pub DefinitionsByService: ServiceKey => members of Definitions = "service definitions by service", definitions_by_service_keys;
}

fn definitions_by_service_keys(_: &ServiceObjectKey, row: &[Arc<Service>]) -> Vec<ServiceKey> {
    row.iter().map(|s| s.key.clone()).collect()
}

flow::rule! {
    /// All services. Of several definitions the one with the highest [`Service::precedence`] wins. Definitions of one
    /// Kubernetes service in several clusters add the addresses of their cluster, and ServiceEntries add ports.
    pub Services: ServiceKey => Arc<Service> = "services", derive_services;
}

fn derive_services(cx: &Reads<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
    let objects = cx.get::<DefinitionsByService>(key)?;
    let definitions = objects.iter().filter_map(|object| definition(cx, object, key));
    let mut all: Vec<Arc<Service>> = definitions.collect();
    all.sort_by(|a, b| a.precedence(b));
    let first = all.first()?.clone();
    if first.registry == Registry::ServiceEntry {
        return Some(joined(first, &all[1..]));
    }
    let same = all.iter().filter(|s| s.registry == Registry::Kubernetes);
    if first.registry != Registry::Kubernetes || same.clone().count() < 2 {
        return Some(first);
    }
    let mesh = cx.get::<Mesh>(&())?;
    let addresses = same.map(|s| (mesh.cluster_id_of(&s.cluster).clone(), s.addresses.clone()));
    let cluster_addresses: BTreeMap<_, _> = addresses.collect();
    // A service without an address in one cluster may have one in another.
    let with_addresses = all.iter().find(|s| !s.addresses.is_empty()).filter(|_| !first.headless);
    Some(Arc::new(Service {
        addresses: with_addresses.map(|s| s.addresses.clone()).unwrap_or_default(),
        cluster_addresses: Arc::new(cluster_addresses),
        ..(*first).clone()
    }))
}

flow::index! {
    /// Services of a hostname, in all namespaces.
    pub ServicesByHost: Hostname => members of Services = "services by host", services_by_host_keys;
}

fn services_by_host_keys(key: &ServiceKey, _: &Arc<Service>) -> Vec<Hostname> {
    vec![key.hostname.clone()]
}

/// The audience of an exported service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Exported {
    /// All namespaces.
    All,
    /// This namespace explicitly.
    Namespace(Arc<str>),
}

flow::index! {
    /// Services by the namespaces that they are exported to.
    pub ServicesByExport: Exported => members of Services = "services by export", services_by_export_keys;
}

fn services_by_export_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<Exported> {
    match &row.export_to {
        ExportTo::All => vec![Exported::All],
        ExportTo::Namespaces(names) => names.iter().map(|n| Exported::Namespace(n.clone())).collect(),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Definitions, ServiceObjects>();
    b.index::<DefinitionsByService>();
    b.world::<Services, DefinitionsByService>();
    b.index::<ServicesByHost>();
    b.index::<ServicesByExport>();
}
