//! The tasks of an agent beside a proxy, for tests and the demonstrations.
//!
//! [`client::Client`] requests a certificate at the TLS port of a control plane, [`serve`] gives it to an Envoy over SDS, and
//! [`bootstrap`] makes that Envoy use it, also for its own connection to the control plane. [`issuer`] signs JSON Web Tokens.

mod bootstrap;
pub mod client;
pub mod issuer;
mod secrets;

pub use bootstrap::{bootstrap, over_tls};
pub use secrets::{Secrets, serve, serve_at};
