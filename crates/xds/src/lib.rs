//! The aggregated discovery protocol as a pure machine: subscriptions, nonces, ordering.
//!
//! [`Hub`] holds what is served (ledgers, one for each type and audience, fed by an [`Origin`]) and every stream's place
//! in it. Requests and commits go in, responses come out; nothing here touches a socket, a thread or a clock: the time is
//! an argument.
//!
//! - A resource is encoded once by its origin. A response is a rope of those bytes, composed once for each pair of states
//!   that a ledger went through and shared by all streams that go from the one to the other.
//! - A stream has at most one unacknowledged response per type; what changes meanwhile merges into the next one.
//! - Make before break: see [`gate`].
//! - What a stream costs is cursors into ledgers. Lists of names exist only while they are owed to the client.
//!
//! This crate knows nothing of services, routes or policy: to it, resources are names, versions and bytes.

mod apply;
mod awaited;
mod cells;
mod compose;
mod content;
mod core;
pub mod decode;
mod delta;
mod follow;
pub mod gate;
mod hub;
mod ledger;
mod limits;
mod moves;
mod nack_attribution;
mod name_set;
mod next;
mod node;
mod origin;
mod rate;
mod respond;
mod selection;
mod sending;
mod sotw;
mod status;
mod stream;
mod tally;
mod unanswered;
mod watch;
mod wire;

pub use bytes::Bytes;
pub use compose::Rope;
pub use decode::{DecodeError, Request, decode_delta, decode_sotw};
pub use hub::{Hub, Stats, StreamId, Variant};
pub use limits::Limits;
pub use next::{Next, Response};
pub use node::{NodeError, decode_node, parse_node};
pub use origin::{Changes, Origin};
pub use status::{Code, Exchange, Refusal, Status, StreamStatus, WatchStatus};
pub use tally::{News, Objection, Question, Tally};

/// A point in time: how long it is after some start that the caller chose once.
pub type Moment = std::time::Duration;

/// Counts what was applied to a hub; ledgers note in which epoch each of their names changed last.
pub(crate) type Epoch = u64;

/// A resource's name; shared by everybody who mentions it.
pub(crate) type Name = std::sync::Arc<str>;
