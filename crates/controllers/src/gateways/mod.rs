//! Deploys gateways for Gateways of the Gateway API: a ServiceAccount, a Deployment and a Service each, and what ConfigMaps
//! add. [`wanted`] makes the objects from the template `kube-gateway` of the injection configuration.
//!
//! - Objects without the label `gateway.istio.io/managed` are never changed; the writer checks it.
//! - A Gateway that another version of the controller manages is left to it (`gateway.istio.io/controller-version`).
//! - If the objects of a Gateway cannot be made, the ones that exist stay, and no other Gateway is affected ([`Problem`]).
//! - An object is written again when its content should change, or when somebody changed it to something else. Objects are deleted
//!   with their Gateway by Kubernetes.

mod classes;
mod drift;
mod driver;
mod observe;
mod overlay;
mod plan;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::gateway_api::{Gateway, ListenerSet};
use config::mesh::NamespaceProxyConfigs;
use config::{MeshConfig, Object};
use inject::Injector;
use model::standing::CONTROLLERS;
use serde_json::Value;

pub use classes::{ClassDriver, GatewayClasses};
pub use driver::DeploymentDriver;
pub use overlay::Parameters;

use crate::namespaces::Namespaces;
use crate::{Ledger, Target};
use drift::Seen;

/// The controller of served GatewayClasses, and the field manager of the objects.
const CONTROLLER: &str = CONTROLLERS[0];
/// The value of the label of the objects.
const CONTROLLER_LABEL: &str = "istio.io-gateway-controller";
/// The annotation of a Gateway with the version of the controller that manages it. The higher one wins.
const VERSION: &str = "gateway.istio.io/controller-version";
/// The version of this controller, as istiod's since 1.18.
const OWN_VERSION: i64 = 5;
const REVISION: &str = "istio.io/rev";

/// Settings of [`GatewayDeployments`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The namespace of the control plane, in which ConfigMaps have the defaults of classes.
    pub namespace: Arc<str>,
    /// The revision of the control plane, as it is set.
    pub revision: Arc<str>,
    /// The id of the cluster.
    pub cluster: Arc<str>,
    /// The class that is served without an object.
    pub default_class: Arc<str>,
    /// Whether labels and annotations of a Gateway are copied to its objects.
    pub copies_metadata: bool,
    /// Whether HTTPS is also served over UDP.
    pub http3: bool,
    /// Whether sidecars are native.
    pub native_sidecars: bool,
    /// Whether the cluster is an OpenShift cluster.
    pub openshift: bool,
    /// The compliance policy of the control plane; empty for none.
    pub compliance_policy: Arc<str>,
    /// The environment of the control plane, for the template function `env`.
    pub environment: BTreeMap<String, String>,
}

/// The reason for which the objects of a Gateway cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// `parametersRef`, or the ConfigMap that it names, is not valid.
    #[error("spec.infrastructure.parametersRef: {0}")]
    Parameters(String),
    /// The ConfigMap with the defaults of the class is not valid.
    #[error("ConfigMap {config_map} with the defaults of the class: {message}")]
    Defaults {
        /// The name of the ConfigMap.
        config_map: Arc<str>,
        /// The problem.
        message: String,
    },
    /// The template is missing or fails.
    #[error("{0}")]
    Template(String),
    /// Another Gateway has an object of the same name.
    #[error("{object} belongs to Gateway {owner}")]
    Taken {
        /// The object.
        object: String,
        /// The namespace and name of the Gateway.
        owner: String,
    },
}

impl Problem {
    /// The reason of a condition `Accepted: False` of the Gateway, if the Gateway is to blame.
    pub fn accepted_reason(&self) -> Option<&'static str> {
        matches!(self, Problem::Parameters(_)).then_some("InvalidParameters")
    }
}

/// A namespace and a name.
type Key = (Arc<str>, Arc<str>);

/// Deploys Gateways.
#[derive(Default)]
pub struct GatewayDeployments {
    options: Options,
    injector: Option<Arc<Injector>>,
    mesh: MeshConfig,
    /// The names that this revision and its tags have in labels; and whether it is that of objects without one.
    revisions: (BTreeSet<Arc<str>>, bool),
    gateways: BTreeMap<Key, Arc<Object<Gateway>>>,
    sets: BTreeMap<Key, Arc<Object<ListenerSet>>>,
    /// The controllers of classes.
    classes: BTreeMap<Arc<str>, Arc<str>>,
    /// ProxyConfigs by namespace.
    proxy_configs: BTreeMap<Arc<str>, NamespaceProxyConfigs>,
    namespaces: Namespaces,
    /// Annotations of namespaces with ranges of users.
    users: BTreeMap<Arc<str>, Value>,
    parameters: BTreeMap<Key, Parameters>,
    seen: BTreeMap<Target, Seen>,
    /// The Gateways of the objects that were planned.
    owners: BTreeMap<Target, Key>,
    problems: BTreeMap<Key, Problem>,
    dirty: BTreeSet<Key>,
    ledger: Ledger,
}
