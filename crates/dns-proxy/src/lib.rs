//! The DNS proxy beside an application: answers from the name table, and forwards the rest.
//!
//! The name table that the control plane sends is itself the lookup table ([`table`]): short names, names with a search domain and
//! wildcards are tried when a query arrives, so that a table costs neither time nor memory beyond its own. Queries for other
//! names, and for other types than A and AAAA, are forwarded unchanged to the name servers of `resolv.conf` ([`forward`]).
//!
//! Limits: [`MAX_FORWARDED`] queries are forwarded at a time, further ones are answered with SERVFAIL. [`MAX_CONNECTIONS`] TCP
//! connections are open at a time, further ones wait. Queries that the table answers need neither a task nor a queue.

pub mod forward;
pub mod message;
mod metrics;
pub mod resolv;
mod server;
pub mod settings;
pub mod table;
#[cfg(test)]
mod tests;

pub use server::{MAX_CONNECTIONS, MAX_FORWARDED, Running, StartError, start};
pub use settings::{Settings, SettingsError};
