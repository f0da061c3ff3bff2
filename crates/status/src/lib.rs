//! Plans the statuses of configuration objects. Pure: time is an argument.
//!
//! ```text
//! Observed (objects) ─────┐
//! Standing (facts) ───────┤
//! ProxyActivity ──────────┼─► Planner ─► CountRequest ─► (caller counts) ─► Counts ─► Planner ─► Intent (status to write)
//! ReplicaCounts (peers) ──┘
//! ```
//!
//! [`Planner`] receives objects ([`config::Observed`]) and the activity of proxies ([`ProxyActivity`]). It requests counts for the
//! objects that are due ([`CountRequest`]), receives the number of proxies that acknowledged or rejected each ([`Counts`]),
//! and returns the statuses that differ from the stored ones ([`Intent`]).
//!
//! Invariants: an object is written at most once per [`Settings::interval`]; a flush holds at most [`Settings::batch`]
//! objects; the object that waits longest comes first. Ten thousand ACKs within a second cause one or two writes for each
//! changed object.
//!
//! Several replicas share the proxies. Each publishes its own counts ([`Planner::shares`], [`ReplicaCounts`]); the leader adds
//! those of the others ([`Planner::replica_reported`]).
//!
//! Several revisions share the objects that no label assigns to one of them. A replica may lead for these, for the objects of its
//! revision, or for both ([`Scope`]).
//!
//! Objects of the Gateway API have statuses of another form ([`KubeStatus`]): facts that the world derives
//! ([`model::standing::Standing`]), and conditions `Programmed` from the counts. Without these facts, nothing is written.
//!
//! The crate does not know how proxies are counted or where statuses are stored.

mod kube;
mod planner;
mod queue;
mod replicas;
mod status;
mod stored;
mod subject;

pub use kube::{KubeStatus, is_ours};
pub use planner::{CountRequest, Intent, Now, Planner, ProxyActivity, Report, Scope};
pub use replicas::{ReplicaCounts, Shares};
pub use status::{Condition, Counts, Nack, Proxies, SkippedPatch, Status, Truth};
pub use stored::{read_name, stored_name};
pub use subject::{has_status, own_conditions};

use std::time::Duration;

/// A point in time, as the duration since a start that the caller chooses once.
pub type Elapsed = Duration;

/// The rates at which statuses are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The minimum time between two writes of one object.
    pub interval: Duration,
    /// The minimum time between two writes of one object that change only the counts of proxies.
    pub calm: Duration,
    /// The time that a changed object waits for the first ACK or NACK before it is reported as pending.
    pub grace: Duration,
    /// The minimum time between two flushes.
    pub floor: Duration,
    /// The maximum number of objects in a flush.
    pub batch: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(1),
            calm: Duration::from_secs(10),
            grace: Duration::from_millis(200),
            floor: Duration::from_millis(50),
            batch: 100,
        }
    }
}
