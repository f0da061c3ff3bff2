//! The Kubernetes-style REST API of a store.
//!
//! [`Api`] is a function from requests to responses. [`server`] serves it over sockets, with TLS, authentication and
//! limits. `kubectl`, client libraries and Rutter's own command line are clients.
//!
//! ```text
//! connection ─► access (authentication, authorization) ─► path ─► verbs ─► admission ─► store
//!                                                                   └► view (version, table, metadata) ─► response
//! ```
//!
//! Invariants:
//!
//! - Routes come from the definitions in `config::schema`. A path is parsed once ([`path`]); later code does not compare
//!   path strings.
//! - Stored bytes are sent as they are: lists and watches are ropes of stored bytes, and a watch event is encoded once
//!   for all watchers.
//! - Every error response is a `Status` object with the reason and message of Kubernetes ([`error`]).
//! - This crate does not interpret objects for the mesh; `admission` validates them.

pub mod access;
mod answer;
mod api;
mod body;
mod cluster_ips;
mod crds;
pub mod credentials;
mod discovery;
pub mod error;
mod events;
mod housekeeping;
mod kinds;
mod media;
mod metrics;
mod openapi;
pub mod params;
pub mod path;
mod places;
mod request;
mod route;
pub mod server;
mod table;
mod verbs;
mod view;

pub use access::{Access, Role, User};
pub use answer::Answer;
pub use api::{Api, Limits, Options};
pub use body::Body;
pub use cluster_ips::ServiceRange;
pub use error::ApiError;
pub use metrics::{Metrics, Requests, Series, Snapshot};
pub use request::Request;
pub use server::Server;
pub use verbs::{StatusOutcome, StatusTarget};
