//! The protocol machine from outside: a world of made-up resources, clients that behave like Envoy, and what they see.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![allow(clippy::print_stdout, reason = "what led to a failure")]

mod client;
mod collections;
mod delta;
mod envoy;
mod harness;
mod limits;
mod moves;
mod named;
mod order;
mod property;
mod refusal;
mod resume;
mod sotw;
mod tally;
mod world;
