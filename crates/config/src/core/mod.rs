//! Kubernetes' own kinds, as far as a mesh uses them. Fields that are not here are ignored in silence.

pub mod credential;
pub mod endpoint_slice;
pub mod ingress;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod secret;
pub mod service;

pub use credential::{CertificatePair, Flaw, Hidden, Roots};
pub use endpoint_slice::{
    AddressType, Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForZone, ObjectReference,
};
pub use ingress::{
    Ingress, IngressBackend, IngressClass, IngressPath, IngressPaths, IngressPort, IngressRule, IngressService,
    IngressTls, PathType,
};
pub use namespace::Namespace;
pub use node::{Node, NodeAddress};
pub use pod::{Container, ContainerPort, ContainerStatus, Pod, PodCondition, PodIp, PodPhase, PodStatus};
pub use secret::{ConfigMap, Secret};
pub use service::{
    InternalTrafficPolicy, LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceStatus, ServiceType,
    TargetPort,
};
