//! The state of each watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Kind;
use config::schema::Definition;
use tokio::task::AbortHandle;

use crate::kubernetes::event::Raw;
use crate::kubernetes::progress::{self, Progress};
use crate::kubernetes::request::RequestError;
use crate::kubernetes::table::Table;
use crate::kubernetes::watch::Event;

/// A watched kind of the mesh.
pub(super) struct KindWatch {
    pub(super) definition: &'static Definition,
    pub(super) name: String,
    /// The version that is read; `None` if the server does not serve the kind.
    pub(super) version: Option<&'static str>,
    pub(super) epoch: u32,
    pub(super) task: Option<AbortHandle>,
    pub(super) progress: Progress,
    pub(super) table: Table,
}

#[derive(Default)]
pub(super) struct AuxiliaryWatch {
    pub(super) progress: Progress,
    /// The names found so far by the current list.
    pub(super) found: Option<BTreeSet<Arc<str>>>,
    pub(super) task: Option<AbortHandle>,
}

impl KindWatch {
    pub(super) fn new(definition: &'static Definition, kind: Kind) -> KindWatch {
        let name = match definition.group {
            "" => definition.plural.to_owned(),
            group => format!("{}.{group}", definition.plural),
        };
        KindWatch {
            definition,
            name,
            version: None,
            epoch: 0,
            task: None,
            progress: Progress::default(),
            table: Table::new(kind, definition),
        }
    }

    /// Stops its watch. Later events of it are ignored.
    pub(super) fn stop(&mut self) {
        self.epoch += 1;
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// An event of an auxiliary watch.
pub(super) enum Found {
    Applied(Raw),
    Deleted(Raw),
    /// The names of all existing objects.
    All(BTreeSet<Arc<str>>),
}

impl AuxiliaryWatch {
    pub(super) fn take(&mut self, name: &str, event: Event) -> Option<Found> {
        match event {
            Event::Listing => {
                self.found = Some(BTreeSet::new());
                None
            }
            Event::Applied(raw) => {
                if let Some(found) = &mut self.found {
                    found.insert(raw.name.clone());
                }
                Some(Found::Applied(raw))
            }
            Event::Deleted(raw) => Some(Found::Deleted(raw)),
            Event::Listed => {
                self.progress.listed(name);
                Some(Found::All(self.found.take().unwrap_or_default()))
            }
            Event::Failed(error) => {
                self.progress.fails(name, error);
                None
            }
            Event::Recovered => {
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

    pub(super) fn fails(&mut self, name: &str, error: RequestError) {
        let (synced, logged) = (self.synced, error.clone());
        if self.failed(error) {
            progress::log(name, &logged, synced);
        }
    }

    pub(super) fn goes_well(&mut self, name: &str) {
        if self.well() {
            tracing::info!(kind = name, "the Kubernetes API is available again");
        }
    }
}
