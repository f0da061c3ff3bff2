//! The xDS protocol (ADS, SotW and delta) as a state machine: subscriptions, nonces, ordering.
//!
//! ```text
//! request ─► decode ─► opening ─► sotw, delta ─► Watch (a stream's state of one type) ─┐
//!                                                                                     ├─► next ─► compose ─► response
//! commit ──► apply ──► Ledger (resources of one type for one audience) ────────────────┘     (gate: make before break)
//! ```
//!
//! [`Hub`] has a ledger for each type and audience, which an [`Origin`] feeds, and the streams. Requests and commits go in,
//! responses come out. Nothing here uses a socket, a thread or a clock: the time is an argument. The properties of types
//! come from their [`TypeSpec`](model::xds::TypeSpec); to this crate, resources are names, versions and bytes.
//!
//! Invariants:
//!
//! - The origin encodes a resource once. A response is a rope of those bytes. It is composed once for each transition
//!   between two states of a selection and shared by all streams that make it, unless it depends on one stream.
//! - A stream has at most one unanswered response per type. Changes merge into the next one. A long one is sent in fragments,
//!   between which other types are sent.
//! - Make before break: see [`gate`].
//! - The work of one call is bounded where it can be large: a request opens a limited number of cells in each step
//!   ([`Hub::proceed`]), a commit is applied in steps ([`Hub::apply_some`]), and cells without users are closed later
//!   ([`Hub::close_unused`]).
//! - A resource that a client rejects is replaced by its last acknowledged version, or left out, for this client and its
//!   equals: see [`quarantine`].
//! - A name that cannot exist for any audience yet ([`Origin::requires`]) costs nothing but its place in a set of names.
//! - A stream stores its place in ledgers. It stores names only while they are pending.

mod apply;
mod blame;
mod cells;
mod compose;
mod content;
mod core;
pub mod decode;
mod delta;
mod divisions;
mod follow;
mod forgetting;
mod fragments;
pub mod gate;
mod goods;
mod holds;
mod hub;
mod hunt;
mod joined;
mod ledger;
mod limits;
mod moves;
mod moving;
mod nack_attribution;
mod name_set;
mod next;
mod opening;
mod origin;
mod overlay;
mod pairs;
mod parts;
mod quarantine;
mod rate;
mod relisted;
mod respond;
mod resume;
mod rope;
mod selection;
mod sending;
mod settling;
mod small_map;
mod sotw;
mod spread_map;
mod status;
mod stream;
mod subscription;
mod tally;
mod unanswered;
mod wanted;
mod watch;

pub use apply::Application;
pub use bytes::Bytes;
pub use decode::{DecodeError, Held, Request, decode_delta, decode_sotw};
pub use hub::{Garbage, Hub, Progress, Stats, StreamId, TypeStats, Variant};
pub use limits::Limits;
pub use next::{Next, Response};
pub use origin::{Changes, Origin};
pub use quarantine::Quarantined;
pub use rate::Rate;
pub use relisted::{Compared, Relisted};
pub use rope::Rope;
pub use status::{Code, Exchange, LastNack, Status, StreamStatus, WatchStatus};
pub use tally::{Listed, Nack, News, Question, Tallies, Tally};
pub use wanted::{Opened, Wanted};

/// A point in time, as the duration since a start that the caller chooses.
pub type Moment = std::time::Duration;

/// The number of commits applied to a hub. Ledgers record the epoch of the last change of each name.
pub(crate) type Epoch = u64;

/// The name of a resource.
pub(crate) type Name = std::sync::Arc<str>;
