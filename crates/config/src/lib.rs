//! Configuration resources: typed objects of Istio, the Gateway API and Kubernetes, and the settings of the mesh.
//!
//! The crate declares every field of every kind once, with its type, constraints, default and description. Decoding, JSON
//! encoding, OpenAPI and CRD schemas, the reference page and form validation are generated from these declarations
//! (macros in `decode::macros`). So are the checks of Istio's webhook that concern one field: formats (`form`), ranges,
//! exclusive fields, fields without effect. Relations between fields are written in Rust in `validate`.
//!
//! ```text
//!  YAML or JSON text ─► yaml tree ─► decode ─► AnyObject ─► validate ─► Parsed { objects, diagnostics }
//!                                      ▲                        ▲
//!                          kind declarations (istio, gateway_api, core, mesh, multicluster)
//!                                      │
//!                                      ▼
//!                      schema ─► CRDs, OpenAPI, docs/reference
//! ```
//!
//! Main types:
//!
//! - [`AnyObject`]: an object of any [`Kind`]; [`Object`] is an object of one kind: [`Meta`] and its `spec`.
//! - [`ObjectKey`]: kind, namespace and name of an object.
//! - [`Diagnostic`]: a problem with its object, [`FieldPath`], position in the file, code and hint.
//! - [`MeshConfig`] and [`MeshNetworks`]: mesh-wide settings with Istio's defaults.
//!
//! Invariants:
//!
//! - Invalid configuration is data. Parsing and validation never fail, log, or stop at the first problem: they return
//!   values and diagnostics.
//! - An object with an error is not applied; an object with warnings is. For objects that were accepted before, the parts
//!   with errors are left out, and the errors become warnings ([`ParseOptions::degrade`]).
//! - The crate is pure: it reads no files, clocks or environment variables.
//! - The cost of parsing is bounded by [`Limits`].

mod change_set;
mod diagnostic;
#[macro_use]
pub mod schema;
#[macro_use]
mod decode;
pub mod core;
pub mod effects;
mod form;
pub mod gateway_api;
pub mod istio;
pub mod json_path;
mod key_set;
pub mod mesh;
pub mod multicluster;
mod object;
mod parse;
mod problem;
pub mod rules;
mod time;
mod validate;
mod yaml;

pub use change_set::{ChangeSet, Observed};
pub use decode::{nearest, parse_duration};
pub use diagnostic::Diagnostic;
pub use form::{CURVES, DEFAULT_PROGRAM_SIZE, MAX_PROGRAM_SIZE, is_claim_header, is_header_name, regex_program_size};
pub use key_set::{KeySet, KeySetError, MAX_KEY_SET, curve_point};
pub use mesh::{MeshConfig, MeshNetworks};
pub use object::{
    AnyObject, AssignedAddresses, Kind, Meta, Object, ObjectKey, Origin, Owner, Resource, StatusPart, StringMap,
};
pub use parse::{
    Limits, ParseOptions, Parsed, Read, YamlDocument, YamlJson, locate, parents_of, parse_documents, parse_mesh_config,
    parse_mesh_networks, parse_yaml_json, read_object,
};
pub use problem::{FieldPath, Segment, Severity};
pub use protos::parse_bool;
pub use time::Timestamp;
