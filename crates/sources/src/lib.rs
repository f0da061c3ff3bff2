//! Sources of configuration: directories of files, Kubernetes APIs, other control planes over xDS; and the DNS resolver
//! for hostnames, and the HTTP client for public keys, that the configuration mentions.
//!
//! Each source compares what it reads with what it emitted before and sends a [`config::ChangeSet`]: changed objects,
//! deleted keys, diagnostics, and observations for the status writer. Sources know nothing about derivation.
//!
//! ```text
//! files ──────► reader ─► directory ─┐
//! Kubernetes ─► watch ──► table ─────┼─► ChangeSet ─► intake ─► World::commit
//! xDS ────────► connection ─► state ─┘
//! ```
//!
//! Invariants:
//! - The first change set of a source is complete: nothing acts on a partial mesh.
//! - While a source is unavailable, or an object is invalid, the last valid version stays in effect.
//! - After any failure the objects are those of a fresh list.

pub mod clusters;
mod directory;
mod file_events;
pub mod files;
pub mod jwks;
pub mod kubernetes;
pub mod names;
mod reader;
mod reads;
mod sender;
pub mod stored;
pub mod xds;

pub use sender::{ChangeSender, Closed, SourceChange};
