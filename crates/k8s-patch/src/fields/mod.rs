//! Sets of fields: who owns what, and what a change changed.
//!
//! A [`Set`] is a tree of [`Element`]s of which some are members. `metadata.managedFields` writes it as `FieldsV1`:
//! `{"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}}}}`, where `.` (or an empty object) makes the
//! element itself a member.

mod codec;
mod element;
mod set;

pub(crate) use codec::{decode, encode};
pub(crate) use element::{Element, display_path};
pub(crate) use set::Set;
