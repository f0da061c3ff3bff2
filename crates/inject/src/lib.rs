//! Sidecar injection: decides whether a pod gets a sidecar, and what it looks like with one.
//!
//! ```text
//! ConfigMap istio-sidecar-injector ─► Injector
//!                                        │
//! pod ─► Injector::decide ─► Injector::inject ─► pod with sidecar ─► difference ─► JSON patch
//!          (Decision)            ▲
//!                     Surroundings: mesh, effective ProxyConfig, node and namespace facts
//! ```
//!
//! - [`Injector`] is the parsed configuration: policy, templates, aliases, selectors and values, in the form of istiod's
//!   ConfigMap. Templates are Go templates with Istio's functions (`functions`).
//! - [`Injector::inject`] renders the templates of a pod, merges the result onto the pod (strategic merge patch), applies the
//!   fields of the user's own `istio-proxy` container again, and completes the pod: probes, Prometheus annotations, order of
//!   the containers, labels and annotations. Injecting the result again changes nothing that was injected before.
//! - [`Injector::gateway`] renders the objects of a Gateway of the Gateway API.
//! - [`Workload`] finds the pod inside of a Deployment or another workload, for `rutter inject`.
//!
//! Pods are JSON values: a field that this version does not know is kept. The crate is pure; whatever depends on the
//! surroundings of a pod is in [`Surroundings`]. Errors name the template, its line and the pod.

mod annotations;
mod chance;
mod containers;
mod data;
mod decide;
mod difference;
mod error;
mod functions;
mod gateway;
mod image;
mod native;
mod openshift;
mod owner;
mod path;
mod pod;
mod probes;
mod prometheus;
mod render;
mod settings;
mod workload;

pub use decide::{Decision, Reason};
pub use difference::difference;
pub use error::{ConfigError, Error};
pub use gateway::{GATEWAY_NAME, GatewayInput, ServicePort};
pub use native::supports_native_sidecars;
pub use path::parameters;
pub use pod::potential_name;
pub use render::Surroundings;
pub use settings::{Injector, Policy};
pub use workload::Workload;

/// The name of the sidecar's container.
pub const PROXY: &str = "istio-proxy";
/// The name of the container that sets up the interception.
const INIT: &str = "istio-init";
/// The name of the container that checks the interception of the CNI plugin.
const VALIDATION: &str = "istio-validation";
/// The name of the container that enables core dumps.
const CORE_DUMPS: &str = "enable-core-dump";
/// The label (and, deprecated, annotation) that enables or disables injection.
const INJECT: &str = "sidecar.istio.io/inject";
/// The annotation with what was injected.
const STATUS: &str = "sidecar.istio.io/status";
/// The annotation with the containers that users defined and templates changed.
const OVERRIDES: &str = "proxy.istio.io/overrides";
/// The annotation with the names of templates.
const TEMPLATES: &str = "inject.istio.io/templates";
/// The annotation with the port of the agent.
const STATUS_PORT: &str = "status.sidecar.istio.io/port";
/// The annotation that selects native sidecars.
const NATIVE: &str = "sidecar.istio.io/nativeSidecar";
/// The annotation with the interception mode.
const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// The label with the network of a pod.
const NETWORK: &str = "topology.istio.io/network";
