//! The state of each watch.

use std::sync::Arc;

use config::Kind;
use config::schema::Definition;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::kubernetes::objects::{Item, Known};
use crate::kubernetes::progress::Progress;
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
    pub(super) known: Known,
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

impl AuxiliaryWatch {
    /// Returns the objects that were applied (with their content) or deleted, by name.
    pub(super) fn take(&mut self, name: &str, event: Event) -> Vec<(Arc<str>, Option<Value>)> {
        let mut found = Vec::new();
        for item in self.known.take(event) {
            match item {
                Item::Applied(raw) => found.push((raw.name, Some(raw.value))),
                Item::Deleted(_, name) => found.push((name, None)),
                Item::Listed => self.progress.listed(name),
                Item::Failed(error) => self.progress.failed(name, error),
                Item::Recovered => self.progress.recovered(name),
            }
        }
        found
    }
}
