//! Core kinds of Kubernetes, with the fields that a mesh reads. Other fields are ignored.

pub mod credential;
pub mod endpoint_slice;
pub mod ingress;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod secret;
pub mod service;
mod staple;

pub use credential::{CertificatePair, Content, Flaw, Hidden, Roots};
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
