//! The network edge: xDS over HTTP/2, readiness, metrics and debug pages.
//!
//! ```text
//! proxy ─► listen (Peer) ─► discovery ─► WorldHandle ─► world thread: World + xds::Hub + StatusTracker
//!   ▲                                                        │                             │
//!   └──────────── grpc (response body) ◄─────────────────────┘                             └─► statuses to write
//! ```
//!
//! One thread, reached through [`WorldHandle`], owns the world and the hub of streams. All other tasks communicate with it
//! over a bounded channel. A stream has two halves: a task that reads requests, and a body from which HTTP/2 pulls
//! responses. Responses are ropes of shared bytes.
//!
//! The identity of a client is established when its connection is accepted ([`Peer`]). Access to secrets derives from it,
//! never from a claim of the client.
//!
//! The crate makes no decisions of its own: `world` derives the resources, `xds` decides when they are sent, and
//! `status` plans the statuses. Other control planes read the configuration of the sources ([`Configuration`]) on the
//! xDS port.

mod ahead;
mod authentication;
mod budget;
mod certificate_service;
mod clients;
mod clock;
mod config_dump;
mod connection;
mod connection_age;
mod core;
mod counters;
mod ctrlz;
mod debug;
mod debug_service;
mod discovery;
mod gate;
mod gathered;
mod grpc;
mod inbox;
mod listen;
mod log;
mod log_limit;
mod mcp;
mod metrics;
mod pace;
mod page_access;
mod page_data;
mod pages;
mod peer;
mod per_address;
mod pods;
mod processor;
pub mod registration;
mod repairs;
mod replica_counts;
mod security;
mod served_world;
pub mod signing;
mod stalls;
mod status_tracker;
mod syncz;
mod tls;
mod unix_socket;
mod watched;
mod webhooks;
mod world_handle;
mod xds_log;

pub use authentication::{
    Authenticator, Authenticators, ClientCertificate, Credentials, ForwardedCertificates, MAX_TOKEN, Purpose, Refused,
};
pub use ctrlz::{Apply, LogLevels};
pub use listen::{Addresses, ConnectionLimits, Options, Server};
pub use log::log_diagnostics;
pub use mcp::Configuration;
pub use metrics::Metric;
pub use pace::Pace;
pub use pages::ServingStatus;
pub use peer::{ClaimError, Peer, SecretAccess};
pub use pods::PodIndex;
pub use security::{CertificateOptions, PageAccess, SecurePort, Security};
pub use status_tracker::Observations;
pub use unix_socket::UnixSocket;
pub use watched::{Accounts, Keys, Names};
pub use webhooks::{WebhookPort, Webhooks};
pub use world_handle::{Closed, WorldHandle};
