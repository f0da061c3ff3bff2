//! The effects of patches on messages, by example and at random.
#![allow(clippy::unwrap_used)]

mod apply;
mod properties;
mod support;
