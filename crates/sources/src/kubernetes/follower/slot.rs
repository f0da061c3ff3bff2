//! What is watched, each with how far it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Kind;
use config::schema::Definition;
use tokio::task::AbortHandle;

use crate::kubernetes::event::Raw;
use crate::kubernetes::progress::{self, Progress};
use crate::kubernetes::request::Trouble;
use crate::kubernetes::table::Table;
use crate::kubernetes::watch::Event;

/// A kind of the mesh.
pub(super) struct Slot {
    pub(super) definition: &'static Definition,
    pub(super) name: String,
    /// Through which it is read; none: the server does not serve it.
    pub(super) version: Option<&'static str>,
    pub(super) epoch: u32,
    pub(super) task: Option<AbortHandle>,
    pub(super) progress: Progress,
    pub(super) table: Table,
}

/// Something else that is watched.
#[derive(Default)]
pub(super) struct Side {
    pub(super) progress: Progress,
    /// While it is listed: what was found so far.
    pub(super) found: Option<BTreeSet<Arc<str>>>,
    pub(super) task: Option<AbortHandle>,
}

impl Slot {
    pub(super) fn new(definition: &'static Definition, kind: Kind) -> Slot {
        let name = match definition.group {
            "" => definition.plural.to_owned(),
            group => format!("{}.{group}", definition.plural),
        };
        Slot {
            definition,
            name,
            version: None,
            epoch: 0,
            task: None,
            progress: Progress::default(),
            table: Table::new(kind, definition),
        }
    }

    /// Ends its watch; what still comes of it does not count.
    pub(super) fn stop(&mut self) {
        self.epoch += 1;
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What a watch beside the kinds found.
pub(super) enum Found {
    Put(Raw),
    Gone(Raw),
    /// The names of all that there are.
    All(BTreeSet<Arc<str>>),
}

impl Side {
    pub(super) fn take(&mut self, name: &str, event: Event) -> Option<Found> {
        match event {
            Event::Listing => {
                self.found = Some(BTreeSet::new());
                None
            }
            Event::Put(raw) => {
                if let Some(found) = &mut self.found {
                    found.insert(raw.name.clone());
                }
                Some(Found::Put(raw))
            }
            Event::Gone(raw) => Some(Found::Gone(raw)),
            Event::Listed => {
                self.progress.listed(name);
                Some(Found::All(self.found.take().unwrap_or_default()))
            }
            Event::Failed(trouble) => {
                self.progress.fails(name, trouble);
                None
            }
            Event::Well => {
                self.progress.goes_well(name);
                None
            }
        }
    }
}

impl Progress {
    pub(super) fn listed(&mut self, name: &str) {
        self.listing = false;
        self.synced = true;
        self.goes_well(name);
    }

    pub(super) fn fails(&mut self, name: &str, trouble: Trouble) {
        let (synced, said) = (self.synced, trouble.clone());
        if self.failed(trouble) {
            progress::log(name, &said, synced);
        }
    }

    pub(super) fn goes_well(&mut self, name: &str) {
        if self.well() {
            tracing::info!(kind = name, "the Kubernetes API answers again");
        }
    }
}
