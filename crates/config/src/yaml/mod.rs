//! Parser for YAML and JSON. The nodes of the tree know their positions.
//!
//! A file is split into documents before it is parsed, so that a syntax error affects one document only. Scalars are
//! resolved when they are read: their meaning depends on the type of the field.

mod build;
mod entries;
mod node;
mod scalar;
mod split;

pub(crate) use build::{SyntaxError, parse_document};
pub(crate) use node::{Entry, Node, Position, Value, quote};
pub(crate) use scalar::{Scalar, parse_int};
pub(crate) use split::{Document, split};
