//! Keys of single resources.

use std::sync::Arc;

use super::{
    ClusterKey, EndpointsAudience, ExtensionAudience, GrpcAudience, NameAudience, OwnWorkload, PatchedCluster,
    PatchedHost, PatchedListener, RouteAudience, Scope, SecretKey, VirtualHostSpec,
};
use crate::listener::ListenerSpec;
use crate::open_key::OpenKey;
use crate::service::ObjectId;

/// The key of one resource, in a catalogue or requested by name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ResourceKey {
    /// A cluster.
    Cluster(ClusterKey),
    /// The endpoints of the cluster of this name.
    Endpoints(Arc<EndpointsAudience>, Arc<str>),
    /// The instances of the client's own workload.
    OwnInstances(Arc<OwnWorkload>),
    /// A listener.
    Listener(Arc<ListenerSpec>),
    /// The listener that a gRPC client or server requests by this name.
    GrpcListener(Arc<GrpcAudience>, Arc<str>),
    /// The cluster of this name, for gRPC clients.
    GrpcCluster(Arc<Scope>, Arc<str>),
    /// The route table of this name.
    Route(Arc<RouteAudience>, Arc<str>),
    /// The route table of this name without its virtual hosts, which are discovered by VHDS.
    RouteShell(Arc<RouteAudience>, Arc<str>),
    /// A virtual host of the route table of this name.
    VirtualHost(Arc<str>, Arc<VirtualHostSpec>),
    /// A secret.
    Secret(SecretKey),
    /// A cluster with patches.
    PatchedCluster(Arc<PatchedCluster>),
    /// The virtual host of this name with patches.
    PatchedVirtualHost(Arc<str>, Arc<PatchedHost>),
    /// A listener with patches.
    PatchedListener(Arc<PatchedListener>),
    /// A resource that a patch adds: the EnvoyFilter and the patch's index.
    Added(ObjectId, u16),
    /// None: the row of an own catalogue hides the shared resource of its name.
    Hidden,
    /// The name table.
    NameTable(Arc<NameAudience>),
    /// The root certificates of the mesh, for agents.
    TrustBundle,
    /// The extension configuration of this name.
    Extension(Arc<ExtensionAudience>, Arc<str>),
    /// A resource of a type that is registered elsewhere.
    Other(OpenKey),
}
