//! Tests of the state machine with a synthetic world and clients that behave like Envoy.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![allow(clippy::print_stdout, reason = "prints the steps before a failure")]

mod client;
mod collections;
mod delta;
mod envoy;
mod fragments;
mod harness;
mod limits;
mod moves;
mod nack;
mod named;
mod opening;
mod order;
mod overlay;
mod own;
mod property;
mod quarantine;
mod resume;
mod sotw;
mod steps;
mod tally;
mod world;
