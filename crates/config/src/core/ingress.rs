//! Ingress and IngressClass: Kubernetes' older way to say what comes in from outside.

use std::sync::Arc;

use crate::core::LoadBalancerStatus;
use crate::mesh::{IngressControllerMode, MeshConfig};
use crate::object::StringMap;

/// The annotation by which an Ingress named its class before there was a field for it.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The controller of the classes that a mesh serves.
pub const CONTROLLER: &str = "istio.io/ingress-controller";

/// The value of the label `istio` of the pods that serve Ingresses.
///
/// What `ingressSelector` says, else the name of the service, which often has the same name as its pods; but the usual
/// service has pods of another name.
pub fn gateway_label(mesh: &MeshConfig) -> Arc<str> {
    match (&*mesh.ingress_selector, &*mesh.ingress_service) {
        ("", "" | "istio-ingressgateway") => "ingressgateway".into(),
        ("", _) => mesh.ingress_service.clone(),
        _ => mesh.ingress_selector.clone(),
    }
}

message! {
    /// A Kubernetes Ingress: HTTP hosts and paths from outside, and the services behind them.
    pub struct Ingress {
        /// Its class, by the name of an IngressClass.
        pub ingress_class_name: Option<Arc<str>>,
        /// Where goes what no rule matches. A mesh leaves it out: it would take all traffic of all hosts.
        pub default_backend: Option<IngressBackend>,
        /// The hosts that are served over TLS.
        pub tls: Vec<IngressTls>,
        /// The rules.
        pub rules: Vec<IngressRule>,
        /// `status.loadBalancer`.
        pub load_balancer: LoadBalancerStatus,
    }
}

impl Ingress {
    /// Whether a mesh with this configuration serves it. `class` looks an IngressClass up.
    ///
    /// The annotation counts before the field, the field before the mode. A class that does not exist is not ours.
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
    pub struct IngressRule {
        /// The host, perhaps with a wildcard as its first label; empty: all.
        pub host: Arc<str>,
        /// The paths; without them the rule says nothing.
        pub http: Option<IngressPaths>,
    }
}

message! {
    /// The paths of a rule.
    pub struct IngressPaths {
        /// One by one.
        pub paths: Vec<IngressPath>,
    }
}

message! {
    /// A path and where it leads.
    pub struct IngressPath {
        /// The path.
        pub path: Arc<str>,
        /// What the path means.
        pub path_type: PathType,
        /// Where it leads.
        pub backend: IngressBackend,
    }
}

enumeration! {
    /// What a path means.
    pub enum PathType {
        /// What the controller thinks fit.
        #[default]
        ImplementationSpecific = "ImplementationSpecific" 0,
        /// This path and no other.
        Exact = "Exact" 1,
        /// This path and those below it.
        Prefix = "Prefix" 2,
    }
}

message! {
    /// Where requests go.
    pub struct IngressBackend {
        /// A port of a service of the same namespace.
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
        /// The name; empty where there is a number.
        pub name: Arc<str>,
        /// The number; 0 where there is a name.
        pub number: u32,
    }
}

message! {
    /// Hosts that are served over TLS.
    pub struct IngressTls {
        /// The hosts; none: all.
        pub hosts: Vec<Arc<str>>,
        /// The Secret with certificate and key, of the same namespace.
        pub secret_name: Arc<str>,
    }
}

message! {
    /// A Kubernetes IngressClass: who serves the Ingresses of a class.
    pub struct IngressClass {
        /// The name of the controller.
        pub controller: Arc<str>,
    }
}
