//! Values with their schema: their fields, differences and merging.
//!
//! All functions traverse value and schema together. Without a schema (unknown fields, `Any`), objects are granular and
//! lists are atomic, as in Kubernetes.

mod compare;
mod form;
mod overlay;
mod remove;
mod to_set;

pub(crate) use compare::{Comparison, compare};
pub(crate) use form::{Form, form, identity};
pub(crate) use overlay::overlay;
pub(crate) use remove::remove;
pub(crate) use to_set::to_set;
