//! What users write: the kinds of Istio, of the Gateway API and of Kubernetes, and the mesh's settings, parsed into values
//! and diagnostics.
//!
//! [`parse_documents`] turns the bytes of a file into objects that are valid and diagnostics about everything else. Bad
//! configuration is data: nothing here fails, logs, or stops at the first problem.

mod change_set;
mod diagnostic;
#[macro_use]
pub mod schema;
#[macro_use]
mod decode;
pub mod core;
pub mod effects;
pub mod gateway_api;
pub mod istio;
pub mod mesh;
pub mod multicluster;
mod object;
mod parse;
pub mod rules;
mod time;
mod validate;
mod yaml;

pub use change_set::{ChangeSet, Observed};
pub use decode::parse_duration;
pub use diagnostic::{Diagnostic, FieldPath, Segment, Severity};
pub use mesh::{MeshConfig, MeshNetworks};
pub use object::{AnyObject, AssignedAddresses, Kind, Meta, Object, ObjectKey, Origin, Owner, Resource, StringMap};
pub use parse::{
    Limits, ParseOptions, Parsed, Read, YamlDocument, YamlJson, locate, parse_documents, parse_mesh_config,
    parse_mesh_networks, parse_yaml_json, read_object,
};
pub use time::Timestamp;
pub use validate::{is_header_name, validate};
