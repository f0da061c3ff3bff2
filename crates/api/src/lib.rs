//! The Kubernetes-shaped REST interface over a store.
//!
//! [`Api`] is a function from requests to answers; [`server`] puts it on sockets, with TLS, authentication and limits.
//! `kubectl`, client libraries and Rutter's own command line are the same kind of client to it.
//!
//! - Routes are data: the definitions of `config::schema`. A path is parsed once ([`path`]), and nothing behind it
//!   compares texts of paths.
//! - What is stored is ready to be sent: lists and watches are ropes of stored bytes, and a watch event is encoded once
//!   for all watchers.
//! - Every refusal is a `Status` object with the reason and the text of Kubernetes ([`failure`]).
//!
//! This crate knows nothing of what the objects mean to a mesh; `admission` judges them.

pub mod access;
mod answer;
mod api;
mod body;
mod crds;
pub mod credentials;
mod discovery;
mod events;
pub mod failure;
mod house;
mod kinds;
mod media;
mod metrics;
mod openapi;
pub mod params;
pub mod path;
mod request;
pub mod server;
mod table;
mod verbs;
mod view;

pub use access::{Access, Role, User};
pub use answer::Answer;
pub use api::{Api, Limits, Options};
pub use body::Body;
pub use failure::Failure;
pub use metrics::{Metrics, Requests, Series, Snapshot};
pub use request::Request;
pub use server::Server;
pub use verbs::{StatusOutcome, StatusTarget};
