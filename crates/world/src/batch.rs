//! A batch of input changes.

use std::net::IpAddr;
use std::sync::Arc;

use config::core::Hidden;
use config::effects::KINDS_NOT_YET;
use config::{AnyObject, Kind, ObjectKey};
use model::service::{ObjectId, Registry, SourceId};
use registry::inputs::{
    CredentialKey, CredentialObject, Credentials, DestinationRules, EndpointSlices, Environment, EnvoyFilters,
    HostAddresses, IngressClasses, KubeGateways, Mesh, MeshSettings, Namespaces, Networks, Nodes, PeerAuthentications,
    ProxyConfigs, RoutingKey, RoutingObject, RoutingObjects, ServiceExports, ServiceObject, ServiceObjectKey,
    ServiceObjects, Sidecars, WorkloadGroups, WorkloadObject, WorkloadObjectKey, WorkloadObjects,
};

/// Changes that are committed atomically.
#[derive(Default)]
pub struct Batch {
    inner: flow::Batch,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether it contains no changes.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Adds or replaces an object. The mesh configuration is not an object here: see [`Batch::set_mesh`].
    pub fn put(&mut self, object: AnyObject) {
        let key = object.meta().key();
        let (id, cluster) = (id_of(&key), key.cluster);
        let name = id.name.clone();
        let b = &mut self.inner;
        match object {
            AnyObject::ServiceEntry(o) => {
                b.put::<ServiceObjects>(service(Registry::ServiceEntry, cluster, id), ServiceObject::Entry(o))
            }
            AnyObject::ServiceImport(o) => {
                b.put::<ServiceObjects>(service(Registry::Import, cluster, id), ServiceObject::Import(o))
            }
            AnyObject::ServiceExport(o) => b.put::<ServiceExports>(SourceId { cluster, id }, o),
            AnyObject::Service(o) => {
                b.put::<ServiceObjects>(service(Registry::Kubernetes, cluster, id), ServiceObject::Kubernetes(o))
            }
            AnyObject::WorkloadEntry(o) => {
                b.put::<WorkloadObjects>(workload(false, cluster, id), WorkloadObject::Entry(o))
            }
            AnyObject::Pod(o) => b.put::<WorkloadObjects>(workload(true, cluster, id), WorkloadObject::Pod(o)),
            AnyObject::WorkloadGroup(o) => b.put::<WorkloadGroups>(id, o),
            AnyObject::EndpointSlice(o) => b.put::<EndpointSlices>(SourceId { cluster, id }, o),
            AnyObject::VirtualService(o) => {
                b.put::<RoutingObjects>(RoutingKey::virtual_service(id), RoutingObject::VirtualService(o))
            }
            AnyObject::DestinationRule(o) => b.put::<DestinationRules>(id, o),
            AnyObject::Gateway(o) => b.put::<RoutingObjects>(RoutingKey::gateway(id), RoutingObject::Gateway(o)),
            AnyObject::Ingress(o) => b.put::<RoutingObjects>(RoutingKey::ingress(id), RoutingObject::Ingress(o)),
            AnyObject::KubeGateway(o) => b.put::<KubeGateways>(SourceId { cluster, id }, o),
            AnyObject::IngressClass(o) => b.put::<IngressClasses>(name, o),
            AnyObject::Sidecar(o) => b.put::<Sidecars>(id, o),
            AnyObject::EnvoyFilter(o) => b.put::<EnvoyFilters>(id, o),
            AnyObject::ProxyConfig(o) => b.put::<ProxyConfigs>(id, o),
            AnyObject::PeerAuthentication(o) => b.put::<PeerAuthentications>(id, o),
            AnyObject::Node(o) => b.put::<Nodes>((cluster, name), o),
            AnyObject::Namespace(o) => b.put::<Namespaces>((cluster, name), o),
            AnyObject::MeshNetworks(o) => b.put::<Networks>((), o),
            AnyObject::Secret(o) => b.put::<Credentials>(credential(false, cluster, id), CredentialObject::Secret(o)),
            AnyObject::ConfigMap(o) => {
                b.put::<Credentials>(credential(true, cluster, id), CredentialObject::ConfigMap(o))
            }
            AnyObject::MeshConfig(_) => {}
            other => without_table(other.kind()),
        }
    }

    /// Deletes an object. Deleting an unknown object has no effect.
    pub fn remove(&mut self, key: &ObjectKey) {
        let (id, cluster) = (id_of(key), key.cluster.clone());
        let b = &mut self.inner;
        match key.kind {
            Kind::ServiceEntry => b.remove::<ServiceObjects>(service(Registry::ServiceEntry, cluster, id)),
            Kind::ServiceImport => b.remove::<ServiceObjects>(service(Registry::Import, cluster, id)),
            Kind::ServiceExport => b.remove::<ServiceExports>(SourceId { cluster, id }),
            Kind::Service => b.remove::<ServiceObjects>(service(Registry::Kubernetes, cluster, id)),
            Kind::WorkloadEntry => b.remove::<WorkloadObjects>(workload(false, cluster, id)),
            Kind::Pod => b.remove::<WorkloadObjects>(workload(true, cluster, id)),
            Kind::WorkloadGroup => b.remove::<WorkloadGroups>(id),
            Kind::EndpointSlice => b.remove::<EndpointSlices>(SourceId { cluster, id }),
            Kind::VirtualService => b.remove::<RoutingObjects>(RoutingKey::virtual_service(id)),
            Kind::DestinationRule => b.remove::<DestinationRules>(id),
            Kind::Gateway => b.remove::<RoutingObjects>(RoutingKey::gateway(id)),
            Kind::Ingress => b.remove::<RoutingObjects>(RoutingKey::ingress(id)),
            Kind::KubeGateway => b.remove::<KubeGateways>(SourceId { cluster, id }),
            Kind::IngressClass => b.remove::<IngressClasses>(id.name),
            Kind::Sidecar => b.remove::<Sidecars>(id),
            Kind::EnvoyFilter => b.remove::<EnvoyFilters>(id),
            Kind::ProxyConfig => b.remove::<ProxyConfigs>(id),
            Kind::PeerAuthentication => b.remove::<PeerAuthentications>(id),
            Kind::Node => b.remove::<Nodes>((cluster, id.name)),
            Kind::Namespace => b.remove::<Namespaces>((cluster, id.name)),
            Kind::MeshNetworks => b.remove::<Networks>(()),
            Kind::Secret => b.remove::<Credentials>(credential(false, cluster, id)),
            Kind::ConfigMap => b.remove::<Credentials>(credential(true, cluster, id)),
            Kind::MeshConfig => {}
            other => without_table(other),
        }
    }

    /// Replaces the mesh-wide settings.
    pub fn set_mesh(&mut self, settings: MeshSettings) {
        self.inner.put::<Mesh>((), Arc::new(settings));
    }

    /// Sets an environment variable that the mesh settings refer to. The value may be a secret.
    pub fn set_environment(&mut self, name: Arc<str>, value: Option<String>) {
        match value {
            Some(value) => self.inner.put::<Environment>(name, Hidden::from(value.into_bytes())),
            None => self.inner.remove::<Environment>(name),
        }
    }

    /// Sets the addresses of a hostname, in any order. No addresses: it is unknown or no longer needed.
    pub fn set_addresses(&mut self, host: Arc<str>, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.is_empty() {
            true => self.inner.remove::<HostAddresses>(host),
            false => self.inner.put::<HostAddresses>(host, addresses.into()),
        }
    }

    /// Adds a later batch, which overrides changes of the same objects.
    pub fn merge(&mut self, later: Batch) {
        self.inner.merge(later.inner);
    }

    pub(crate) fn into_inner(self) -> flow::Batch {
        self.inner
    }
}

/// Kinds without an input table are accepted but have no effect ([`KINDS_NOT_YET`]).
fn without_table(kind: Kind) {
    debug_assert!(KINDS_NOT_YET.contains(&kind), "the kind {kind} has no input table");
}

fn id_of(key: &ObjectKey) -> ObjectId {
    ObjectId {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

fn service(registry: Registry, cluster: Arc<str>, id: ObjectId) -> ServiceObjectKey {
    ServiceObjectKey { registry, cluster, id }
}

fn credential(config_map: bool, cluster: Arc<str>, id: ObjectId) -> CredentialKey {
    CredentialKey {
        config_map,
        cluster,
        id,
    }
}

fn workload(pod: bool, cluster: Arc<str>, id: ObjectId) -> WorkloadObjectKey {
    WorkloadObjectKey { pod, cluster, id }
}
