//! Sets of fields.
//!
//! A [`Set`] is a tree of [`Element`]s, some of which are members. Its form in `metadata.managedFields` is `FieldsV1`:
//! `{"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}}}}`, where `.` (or an empty object) marks the
//! element itself as a member.

mod codec;
mod element;
mod set;

pub(crate) use codec::{decode, encode};
pub(crate) use element::{Element, display_path};
pub(crate) use set::Set;
