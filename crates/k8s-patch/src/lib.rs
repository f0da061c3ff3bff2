//! Patches of objects: JSON patch, merge patch, strategic merge patch, server-side apply.
//!
//! Everything here is a function from JSON to JSON: it reads no clock, takes no lock and knows no store. The
//! [`Schema`](config::schema::Schema) of a kind says how lists and maps merge.
//!
//! - [`json_patch`] (RFC 6902) and [`merge_patch`] (RFC 7386) need no schema.
//! - [`strategic_merge_patch`] is what `kubectl apply` and `kubectl edit` send for kinds that every Kubernetes has.
//! - [`apply`] is server-side apply: every field has owners, which `metadata.managedFields` lists, and taking a field
//!   that another manager set to another value is a conflict.
//! - [`track`] writes the same list after every other change of an object.
//!
//! Patches come from outside: each has [`Limits`], and none panics.

mod apply;
mod error;
mod fields;
mod json;
mod limits;
mod merge;
mod strategic;
mod typed;

pub use apply::{Writer, apply, check_declared, differ, manager_name, track};
pub use error::{Conflict, Conflicts, Error};
pub use json::json_patch;
pub use limits::Limits;
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;
