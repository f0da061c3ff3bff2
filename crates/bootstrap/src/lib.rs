//! The bootstrap configuration of Envoy and of gRPC applications, and the metadata of their node, as Istio's agent makes them.
//!
//! ```text
//! defaults < mesh file < PROXY_CONFIG < annotation ─settings─► ProxyConfig ┐
//! environment variables ─────────────────────────────Options──────────────┤
//! labels, annotations (downward API), platform ──────node─────────────────┴► Node ─► generate: JSON
//!                                                                                 └► render:   a custom template
//! ```
//!
//! [`proxy_config`] merges the settings of the proxy, [`Node::new`] describes the proxy to the control plane, and [`generate`]
//! makes the bootstrap. The agent reads all files, looks names up and passes them in; the crate is pure. A broken value does not
//! affect the others: it gives a [`Diagnostic`] and the default.
//!
//! The bootstrap is for unmodified Envoy from version 1.37 on ([`Flavor::Stock`]). Left out, because only Istio's Envoy has it:
//! the extension `metadata_discovery` (`istio.workload.BootstrapExtension`), unless [`Flavor::Istio`] is selected. Left out for
//! both, because Envoy has removed them: the tracers of Lightstep, Stackdriver and OpenCensus.

mod diagnostic;
mod downward;
mod envoy;
mod grpc;
mod node;
mod options;
mod overlay;
mod settings;
mod source;
mod template;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use downward::{DownwardError, parse_downward};
pub use envoy::{Flavor, generate};
pub use grpc::{grpc, grpc_certificates};
pub use node::{Facts, Locality, Node, Platform, Role};
pub use options::{Options, Variables};
pub use overlay::overlay_json;
pub use settings::{Arguments, Layers, proxy_config};
pub use source::{Source, source};
pub use template::{TemplateError, render};
