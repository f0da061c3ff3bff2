//! Admission of objects: decoding, defaulting, pruning and validation.
//!
//! ```text
//! body ─decode─► value ─admit─► object ─prepare─► stored object
//!               └─► Rejection (all causes)
//! ```
//!
//! 1. [`decode`] parses a body (JSON, YAML, protobuf) within limits and reports duplicate keys.
//! 2. [`admit`] validates an object of its kind: unknown fields, defaults, types and bounds, CEL rules, names
//!    and labels, immutable fields of core kinds, and the checks of the control plane for mesh kinds. It reports all causes
//!    together.
//! 3. [`prepare`] sets the fields that only the server writes: UID, timestamps, generation.
//!
//! [`webhook`] decodes the calls of admission webhooks, for control planes beside a Kubernetes API server, and judges the
//! objects of the mesh.
//!
//! This crate does no I/O and reads no clock. Messages use the wording of Kubernetes because people and programs rely on
//! it.

mod admit;
mod cause;
mod core;
mod decode;
mod identify;
mod meta;
mod names;
mod prepare;
mod semantic;
mod types;
mod walk;
pub mod webhook;

pub use admit::{Admitted, FieldValidation, Operation, Review, Subresource, admit, check_apply};
pub use cause::{Cause, Reason, Rejection};
pub use decode::{DecodeError, Decoded, Limits, decode};
pub use prepare::{Stamp, fill_name, mark_deleted, prepare};
pub use types::check_types;
