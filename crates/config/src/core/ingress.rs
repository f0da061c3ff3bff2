//! Ingress and IngressClass.

use std::sync::Arc;

use crate::core::LoadBalancerStatus;
use crate::mesh::{IngressControllerMode, MeshConfig};
use crate::object::StringMap;

/// The annotation for the class, which the field replaced.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The controller name of classes that the mesh serves.
pub const CONTROLLER: &str = "istio.io/ingress-controller";

/// The value of the label `istio` of the Pods that serve Ingresses.
///
/// `ingressSelector`, or the name of the service if it is empty. The Pods of the default service have a different
/// label.
pub fn gateway_label(mesh: &MeshConfig) -> Arc<str> {
    match (&*mesh.ingress_selector, &*mesh.ingress_service) {
        ("", "" | "istio-ingressgateway") => "ingressgateway".into(),
        ("", _) => mesh.ingress_service.clone(),
        _ => mesh.ingress_selector.clone(),
    }
}

message! {
    /// A Kubernetes Ingress: routes external HTTP requests to services by host and path.
    pub struct Ingress: Relations {
        /// The name of its IngressClass.
        pub ingress_class_name: Option<Arc<str>>,
        /// The backend for requests that no rule matches. The mesh ignores it, because it would receive the traffic of
        /// all hosts.
        pub default_backend: Option<IngressBackend>,
        /// Hosts that are served over TLS.
        pub tls: Vec<IngressTls>,
        /// The rules.
        pub rules: Vec<IngressRule>,
        /// `status.loadBalancer`.
        pub load_balancer: LoadBalancerStatus,
    }
}

impl Ingress {
    /// Whether a mesh with this configuration serves it. `class` looks up an IngressClass.
    ///
    /// The annotation overrides the field, and the field overrides the mode. Ingresses of a class that does not exist
    /// are not served.
    pub fn is_selected<'c>(
        &self,
        annotations: &StringMap,
        mesh: &MeshConfig,
        class: impl FnOnce(&str) -> Option<&'c IngressClass>,
    ) -> bool {
        let mode = mesh.ingress_controller_mode;
        if matches!(mode, IngressControllerMode::Off | IngressControllerMode::Unspecified) {
            return false;
        }
        if let Some(named) = annotations.get(CLASS_ANNOTATION) {
            return *named == mesh.ingress_class;
        }
        match &self.ingress_class_name {
            Some(name) => class(name).is_some_and(|class| &*class.controller == CONTROLLER),
            None => mode == IngressControllerMode::Default,
        }
    }
}

message! {
    /// A rule of an Ingress.
    pub struct IngressRule: Relations {
        /// The host, whose first label may be a wildcard. Empty matches all hosts.
        pub host: Arc<str>,
        /// The paths. A rule without paths has no effect.
        pub http: Option<IngressPaths>,
    }
}

message! {
    /// The paths of a rule.
    pub struct IngressPaths {
        /// The paths.
        pub paths: Vec<IngressPath>,
    }
}

message! {
    /// A path and its backend.
    pub struct IngressPath: Relations {
        /// The path.
        pub path: Arc<str>,
        /// The type of the path.
        pub path_type: PathType,
        /// The backend.
        pub backend: IngressBackend,
    }
}

enumeration! {
    /// The type of a path.
    pub enum PathType {
        /// The controller decides.
        #[default]
        ImplementationSpecific = "ImplementationSpecific" 0,
        /// Matches the exact path.
        Exact = "Exact" 1,
        /// Matches the path as a prefix, element by element.
        Prefix = "Prefix" 2,
    }
}

message! {
    /// The backend of a path.
    pub struct IngressBackend: Relations {
        /// A port of a service in the same namespace.
        pub service: Option<IngressService>,
    }
}

message! {
    /// A port of a service.
    pub struct IngressService {
        /// The name of the service.
        pub name: Arc<str>,
        /// Its port.
        pub port: IngressPort,
    }
}

message! {
    /// A port, by name or by number.
    pub struct IngressPort {
        /// The name; empty if there is a number.
        pub name: Arc<str>,
        /// The number; 0 if there is a name.
        pub number: u32,
    }
}

message! {
    /// Hosts that are served over TLS.
    pub struct IngressTls: Relations {
        /// The hosts; empty means all.
        pub hosts: Vec<Arc<str>>,
        /// The Secret with certificate and key, in the same namespace.
        pub secret_name: Arc<str>,
    }
}

message! {
    /// A Kubernetes IngressClass: the controller for Ingresses of a class.
    pub struct IngressClass {
        /// The name of the controller.
        pub controller: Arc<str>,
    }
}
