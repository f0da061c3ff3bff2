//! What patches do to messages, one by one and at random.
#![allow(clippy::unwrap_used)]

mod apply;
mod properties;
mod support;
