//! Audiences and resource keys: the facts that two proxies must share to receive equal bytes.
//!
//! A generator gets one of these keys and its reads, nothing else. Every field splits audiences, so a field that does not
//! change the output makes the mesh slower; a fact without a field cannot influence the output. Facts that concern one
//! class of proxies only are inside the variant of [`ProxyClass`] for that class.

mod class;
mod clusters;
mod endpoints;
mod filters;
mod host_list;
mod listeners;
mod policies;
mod resource;
mod routes;
mod scope;
mod secrets;
mod section;

pub use class::{GatewayFacts, GatewaySet, ProxyClass};
pub use clusters::{
    ALL_ADDRESSES, ClusterAudience, ClusterKey, DefaultEndpoint, GatewayClusterFacts, InboundPort, OutboundKey,
    OverriddenCluster, PolicyKey, SidecarClusterFacts,
};
pub use endpoints::{
    ClientLocation, ClientView, EndpointsAudience, EndpointsSection, LOCAL_CLUSTER, OwnEndpoints, OwnWorkload,
    TEMPLATE_LABELS,
};
pub use filters::{ExtensionAudience, FilterRef, Filters, HostSource, PatchedCluster, PatchedHost, PatchedListener};
pub use host_list::{HostList, HostPart, HostRun, SharedHostList, SharedHostsKey};
pub use listeners::{GrpcAudience, ListenerAudience, SidecarListenerFacts};
pub use policies::{Policies, PolicyIds};
pub use resource::ResourceKey;
pub use routes::{
    DestinationRef, RouteAudience, RouteTable, RoutesKey, VirtualHostAudience, VirtualHostContent, VirtualHostSpec,
};
pub use scope::{IpFamilies, NameAudience, NameView, Scope, Source};
pub use secrets::{Access, Account, SecretAudience, SecretKey};
pub use section::Section;
