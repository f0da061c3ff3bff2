//! YAML and JSON text as a tree of nodes that know where they were written.
//!
//! A file is cut into documents before it is parsed, so that a syntax error in one leaves the others alone. Numbers and
//! booleans are told apart only when a value is asked for: what a text means depends on the type of its field.

mod build;
mod entries;
mod node;
mod scalar;
mod split;

pub(crate) use build::{SyntaxError, parse_document};
pub(crate) use node::{Entry, Node, Position, Value, quote};
pub(crate) use scalar::{Scalar, parse_int};
pub(crate) use split::{Document, split};
