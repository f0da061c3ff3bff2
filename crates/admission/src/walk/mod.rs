//! Values beside their schema.

mod conform;
mod validate;

pub(crate) use conform::{Conform, conform};
pub(crate) use validate::{Patterns, Walk, identity};
