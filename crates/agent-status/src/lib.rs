//! The status port of the agent: readiness, merged metrics, probes of applications, and commands to drain or to end.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz/ready` | 200 if the proxy is ready, otherwise 503 and the reason ([`readiness`]) |
//! | `/stats/prometheus`, `/metrics` | the metrics of the agent, of Envoy and of the application ([`scrape`]) |
//! | `/app-health/…`, `/app-lifecycle/…` | the result of a probe of the application, which the kubelet sends here ([`probe`]) |
//! | `POST /drain`, `POST /quitquitquit` | tells the agent to drain, or to end; only from this machine |
//! | `/debug/ndsz` | the name table of the DNS proxy; only from this machine |
//!
//! [`health`] probes the application of a virtual machine, where there is no kubelet. [`commands`] are for the command line.

pub mod client;
pub mod commands;
pub mod health;
pub mod probe;
pub mod readiness;
pub mod scrape;
mod server;
pub mod settings;

pub use server::{Channels, Running, StartError, start};
pub use settings::{GRPC_BOOTSTRAP, Node, Settings, SettingsError};
