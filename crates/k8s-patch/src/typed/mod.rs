//! Values and what their schema says about them: which fields they have, how two differ, how one is laid over another.
//!
//! All of it walks value and schema side by side. Where the schema is silent (unknown fields, `Any`) objects have fields,
//! and lists are wholes, as in Kubernetes.

mod compare;
mod form;
mod lay;
mod remove;
mod to_set;

pub(crate) use compare::{Comparison, compare};
pub(crate) use form::{Form, form, identity};
pub(crate) use lay::lay_over;
pub(crate) use remove::remove;
pub(crate) use to_set::to_set;
