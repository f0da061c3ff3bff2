//! A batch of input changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::core::Hidden;
use config::gateway_api::reference::ParentReference;
use config::{AnyObject, ChangeSet, KeySet, Kind, ObjectKey};
use flow::Engine;
use model::audience::Account;
use model::jwt::{KeyFailure, KeySource};
use model::kube::GatewayRefusal;
use model::service::ObjectId;
use registry::inputs::{
    Environment, FetchedKeys, GatewayRefusals, HostAddresses, KeyFailures, MeshDefaults, MeshSettings, RefusedObjects,
    SecretReaders, Sources, TrustBundle,
};
use registry::objects;
use registry::tables::Rank;

/// Whether an object of this kind is an endpoint or has some.
fn is_workload(kind: Kind) -> bool {
    matches!(kind, Kind::EndpointSlice | Kind::Pod | Kind::WorkloadEntry)
}

/// Changes that are committed atomically.
#[derive(Default)]
pub struct Batch {
    /// The changed objects of each source.
    objects: BTreeMap<Rank, ChangeSet>,
    /// The sources and clusters whose changes contain all objects.
    complete: BTreeSet<(Rank, Arc<str>)>,
    inputs: flow::Batch,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether it contains no changes.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.complete.is_empty() && !self.objects.values().any(ChangeSet::has_objects)
    }

    /// Whether it may change endpoints or pods.
    pub fn has_workloads(&self) -> bool {
        !self.complete.is_empty() || self.kinds().any(is_workload)
    }

    /// Whether it may change anything else.
    pub fn has_others(&self) -> bool {
        !self.complete.is_empty() || !self.inputs.is_empty() || !self.kinds().all(is_workload)
    }

    /// Whether it may add pods.
    pub fn has_pods(&self) -> bool {
        !self.complete.is_empty() || self.kinds().any(|kind| kind == Kind::Pod)
    }

    /// A copy, if it changes nothing but endpoints and pods.
    pub fn copy_of_workloads(&self) -> Option<Batch> {
        (!self.has_others()).then(|| Batch { objects: self.objects.clone(), ..Batch::default() })
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.objects.values().flat_map(|change| change.upserts.keys().chain(&change.deletes)).map(|key| key.kind)
    }

    /// Adds or replaces an object of the source with the lowest rank.
    pub fn put(&mut self, object: AnyObject) {
        self.objects.entry(Rank::default()).or_default().upsert(object);
    }

    /// Deletes an object of the source with the lowest rank. Deleting an unknown object has no effect.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.objects.entry(Rank::default()).or_default().delete(key.clone());
    }

    /// Adds the changes of a source.
    pub fn apply(&mut self, rank: Rank, change: ChangeSet) {
        self.objects.entry(rank).or_default().merge(change);
    }

    /// Replaces the objects that a source has in a cluster with those of `change`.
    pub fn replace(&mut self, rank: Rank, cluster: Arc<str>, change: ChangeSet) {
        self.forget(rank, &cluster);
        self.complete.insert((rank, cluster));
        self.apply(rank, change);
    }

    /// Drops the changes that a source has for a cluster.
    fn forget(&mut self, rank: Rank, cluster: &Arc<str>) {
        if let Some(pending) = self.objects.get_mut(&rank) {
            pending.upserts.retain(|key, _| key.cluster != *cluster);
            pending.deletes.retain(|key| key.cluster != *cluster);
        }
    }

    /// Names a source, for messages and debug output.
    pub fn set_source(&mut self, rank: Rank, name: Arc<str>) {
        self.inputs.put::<Sources>(rank, name);
    }

    /// Replaces the mesh-wide settings, with the mesh configuration that applies if there is no `MeshConfig` object.
    pub fn set_mesh(&mut self, settings: MeshSettings) {
        self.inputs.put::<MeshDefaults>((), Arc::new(settings));
    }

    /// Sets an environment variable that the mesh settings refer to. The value may be a secret.
    pub fn set_environment(&mut self, name: Arc<str>, value: Option<String>) {
        match value {
            Some(value) => self.inputs.put::<Environment>(name, Hidden::from(value.into_bytes())),
            None => self.inputs.remove::<Environment>(name),
        }
    }

    /// Sets the addresses of a hostname, in any order. No addresses: it is unknown or no longer needed.
    pub fn set_addresses(&mut self, host: Arc<str>, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.is_empty() {
            true => self.inputs.remove::<HostAddresses>(host),
            false => self.inputs.put::<HostAddresses>(host, addresses.into()),
        }
    }

    /// Sets what is known of a source of keys: its keys, and its last fetch if it failed. Neither: it is no longer needed.
    pub fn set_keys(&mut self, source: KeySource, keys: Option<KeySet>, failure: Option<KeyFailure>) {
        match failure {
            Some(failure) => self.inputs.put::<KeyFailures>(source.clone(), failure),
            None => self.inputs.remove::<KeyFailures>(source.clone()),
        }
        match keys {
            Some(keys) => self.inputs.put::<FetchedKeys>(source, keys),
            None => self.inputs.remove::<FetchedKeys>(source),
        }
    }

    /// Sets the root certificates of the mesh in PEM, sorted, which agents receive. Without any, they receive none.
    pub fn set_trust_bundle(&mut self, roots: Vec<Arc<str>>) {
        match roots.is_empty() {
            true => self.inputs.remove::<TrustBundle>(()),
            false => self.inputs.put::<TrustBundle>((), roots.into()),
        }
    }

    /// Sets why a Gateway of the Gateway API cannot be deployed; none if it can.
    pub fn set_gateway_refusal(&mut self, gateway: ObjectId, refusal: Option<GatewayRefusal>) {
        match refusal {
            Some(refusal) => self.inputs.put::<GatewayRefusals>(gateway, refusal),
            None => self.inputs.remove::<GatewayRefusals>(gateway),
        }
    }

    /// Sets whether validation refuses an object of the Gateway API, with its parents. Objects of other kinds have no effect.
    pub fn set_refused(&mut self, object: &ObjectKey, parents: Option<&[ParentReference]>) {
        use Kind::{BackendTlsPolicy, BackendTrafficPolicy, KubeGateway, ListenerSet};
        let kind = object.kind;
        let is_read =
            kind.is_route() || matches!(kind, KubeGateway | ListenerSet | BackendTlsPolicy | BackendTrafficPolicy);
        if !is_read || !object.cluster.is_empty() {
            return;
        }
        let key = (kind, ObjectId { namespace: object.namespace.clone(), name: object.name.clone() });
        match parents {
            Some(parents) => self.inputs.put::<RefusedObjects>(key, parents.into()),
            None => self.inputs.remove::<RefusedObjects>(key),
        }
    }

    /// Sets whether a service account may list the Secrets of its namespace.
    pub fn set_secret_reader(&mut self, account: Account, allowed: bool) {
        match allowed {
            true => self.inputs.put::<SecretReaders>(account, ()),
            false => self.inputs.remove::<SecretReaders>(account),
        }
    }

    /// Adds a later batch, which overrides changes of the same objects.
    pub fn merge(&mut self, later: Batch) {
        for (rank, cluster) in &later.complete {
            self.forget(*rank, cluster);
        }
        self.complete.extend(later.complete);
        for (rank, change) in later.objects {
            self.apply(rank, change);
        }
        self.inputs.merge(later.inputs);
    }

    /// The changes of the engine's inputs.
    pub(crate) fn into_inputs(self, engine: &Engine) -> flow::Batch {
        let mut inputs = self.inputs;
        let none = ChangeSet::default();
        for (rank, cluster) in &self.complete {
            let keep = self.objects.get(rank).unwrap_or(&none);
            objects::remove_absent(engine, &mut inputs, (*rank, cluster), keep);
        }
        for (rank, change) in self.objects {
            objects::apply(engine, &mut inputs, rank, change);
        }
        inputs
    }
}
