//! Plain data types that the layers share. They hold values and keep their invariants: no I/O, no derivation, no
//! encoding.
//!
//! ```text
//! proxy::Proxy ──(traffic)──► audience::* ──(traffic)──► audience::ResourceKey ──(envoy)──► xds::Resource
//! service::Service, service::Endpoint ──(registry)──► readers of all layers above
//! ```
//!
//! - [`proxy`]: a connected proxy as it described itself. [`service`], [`network`]: services, endpoints, workloads,
//!   gateways.
//! - [`audience`]: the facts that proxies must share to receive equal bytes, and the keys of single resources.
//! - [`listener`], [`tls`], [`mtls`], [`session`]: parts of keys, complete so that encoding makes no decisions.
//! - [`authorization`]: checks of requests and connections, complete in the same way.
//! - [`kube`]: routes and listeners of the Gateway API. [`standing`]: facts for their statuses.
//! - [`jwt`]: keys of token issuers and the verification of tokens.
//! - [`xds`]: resource types, encoded resources and versions.
//!
//! Invariants: keys have a total order and a hash; equal keys mean equal bytes. A version is a hash of the resource's
//! bytes.

pub mod audience;
pub mod authorization;
pub mod chains;
pub mod jwt;
pub mod kube;
pub mod listener;
pub mod mtls;
pub mod network;
pub mod open_key;
pub mod proxy;
pub mod service;
pub mod session;
pub mod standing;
pub mod tls;
pub mod xds;
