//! Public keys of token issuers: when they are fetched, from where, and what of the answers is used. A state machine without
//! I/O; its driver is in `sources`.
//!
//! ```text
//! objects ─wanted sources─► Schedule ─Fetch─► driver ─► HTTP server of the issuer
//!                              ▲                 │  Guard: which addresses may be asked
//! FetchedKeys, KeyFailures ◄───┴─────outcome─────┘  document: which answers are used
//! ```
//!
//! - [`Schedule`] keeps the state of each source: its keys, whether it is being fetched, and when it is due again.
//! - [`Guard`] refuses hosts and addresses that no issuer has, such as those of cloud metadata services, so that an object
//!   cannot make the control plane call them.
//! - [`document`] reads discovery documents; [`config::KeySet`] reads key sets.
//! - [`token`] verifies the tokens of callers of the control plane. Proxies verify those of requests themselves.
//!
//! Invariants:
//!
//! - A source that fails keeps its keys for [`Settings::keep`]. A source that never had keys has none, and its tokens are
//!   rejected.
//! - The number of sources and of concurrent fetches is limited, also for each namespace, so that no namespace delays the
//!   keys of others.
//! - No failure shows anything of a response.

pub mod document;
mod guard;
mod schedule;
pub mod token;

pub use guard::{Guard, GuardError, Pattern, Refusal};
pub use schedule::{Change, Fetch, Now, Schedule, Settings};
