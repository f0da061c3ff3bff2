//! Patches of Kubernetes objects: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! ```text
//! object + patch + Schema ─► json_patch | merge_patch | strategic_merge_patch | apply ─► object with managedFields
//! ```
//!
//! - [`json_patch`] (RFC 6902) and [`merge_patch`] (RFC 7386) need no schema.
//! - [`strategic_merge_patch`] is used by `kubectl apply` and `kubectl edit` for core kinds. The
//!   [`Schema`](config::schema::Schema) of the kind defines how lists and maps merge.
//! - [`apply`] is server-side apply: `metadata.managedFields` lists the owners of fields, and changing another
//!   manager's field is a conflict.
//! - [`track`] updates `metadata.managedFields` after other writes.
//!
//! All functions are pure. Patches are untrusted: nothing panics, the three patch functions check [`Limits`], and [`apply`]
//! limits the nesting of the configuration.

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
