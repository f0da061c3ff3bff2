//! From what a client sent to an object that may be stored: decoding, defaults, pruning, validation.
//!
//! 1. [`decode`] turns a body, JSON or YAML, into a value, within limits, and tells which keys are there twice.
//! 2. [`Admission::admit`] turns the value into an object of its kind, or refuses it with all reasons at once: unknown
//!    fields, defaults, types and bounds by schema, rules in CEL, names and labels, what never changes in kinds that every
//!    Kubernetes has, and what the mesh thinks of its own kinds.
//! 3. [`prepare`] writes what only the server writes: uid, times, generation.
//!
//! Nothing here does I/O or reads a clock; reasons are worded as Kubernetes words them, because people and programs know
//! these texts.

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

pub use admit::{Admission, Admitted, FieldValidation, Operation, Review, Subresource};
pub use cause::{Cause, Reason, Rejection};
pub use decode::{DecodeError, Decoded, Limits, decode};
pub use prepare::{Stamp, fill_name, mark_deleted, prepare};
pub use types::check_types;
