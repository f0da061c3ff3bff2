//! Scenario tests: objects, proxies, edits and the expected answers in one file.
//!
//! A scenario file is plain text in sections (see [`format`]). The [`run`] module plays it against a
//! [`world::World`] the incremental way, and after every step derives everything anew and compares. Answers are rewritten
//! with `RUTTER_BLESS=1`; the difference is the review.

pub mod format;
pub mod project;
pub mod proxy;
pub mod run;
pub mod state;
