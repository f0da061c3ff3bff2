//! What became of each configuration object, and which statuses are due to be written: pure, time is an argument.
//!
//! [`Planner`] is told which objects there are ([`Subject`]), what proxies answer ([`News`]) and, for the objects that it
//! asks about ([`Ask`]), how many proxies run them ([`Counts`]). Out come [`Intent`]s: statuses that differ from what is
//! written. Whatever happens, an object is written at most once per [`Settings::interval`], a flush holds at most
//! [`Settings::batch`] objects, and who waits longest comes first. So ten thousand proxies that answer within a second
//! are one or two writes for each object that changed.
//!
//! Where several replicas have the proxies among them, each tells what it counts ([`Planner::shares`], [`Share`]), and the
//! one that leads is told of it ([`Planner::told`]).
//!
//! It knows nothing of how proxies are counted and of where statuses are kept.

mod peers;
mod planner;
mod queue;
mod shards;
mod status;
mod subject;

pub use peers::Share;
pub use planner::{Ask, Intent, News, Now, Planner, Report};
pub use shards::{SHARDS, Shards, read_shard};
pub use status::{Condition, Counts, Proxies, Refusal, Status, Truth, Unmade};
pub use subject::{Subject, has_status};

use std::time::Duration;

/// A point in time: how long it is after some start that the caller chose once.
pub type Moment = Duration;

/// How often what is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The least time between two writes of one object.
    pub interval: Duration,
    /// The least time between two writes that say only that other proxies, or more of them, run what ran before.
    pub calm: Duration,
    /// How long a changed object waits for the first answers before it is written that there are none.
    pub grace: Duration,
    /// The least time between two flushes.
    pub floor: Duration,
    /// Objects in a flush at most.
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
