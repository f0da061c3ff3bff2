//! When changes are emitted.

use std::mem;
use std::time::Duration;

use config::ChangeSet;
use tokio::time::Instant;

use super::slot::KindWatch;
use super::{Follower, TAGS};
use crate::kubernetes::Report;
use crate::kubernetes::mesh::Mesh;
use crate::kubernetes::progress::Progress;
use crate::kubernetes::revision::Revision;

/// How long changes wait for kinds that are being relisted.
const HOLD: Duration = Duration::from_secs(5);

impl Follower {
    /// Whether the initial state is complete: everything was listed or denied; or fails while most of the rest does
    /// not, so the server as a whole is available.
    fn settled(&self) -> bool {
        let served = self.slots.iter().filter(|slot| slot.version.is_some());
        let slots = served.map(|slot| &slot.progress);
        let tags = self.tags.iter().filter(|_| self.revision.is_some());
        let sides = tags.chain(self.mesh_sides.iter().map(|(_, _, side)| side));
        let all: Vec<&Progress> = slots.chain(sides.map(|side| &side.progress)).collect();
        let synced = all.iter().filter(|progress| progress.synced).count();
        let answers = synced * 2 > all.len();
        // A server that denies everything gives no information about its objects.
        let any = synced > 0 || all.is_empty();
        self.served && any && all.iter().all(|progress| progress.is_settled() || (answers && progress.is_stuck()))
    }

    /// Returns the changes that may be emitted now.
    pub(super) fn ready(&mut self) -> Option<ChangeSet> {
        let first = !self.complete;
        if first {
            if !self.settled() {
                return None;
            }
            self.complete = true;
        }
        if !first && self.holds() {
            return None;
        }
        let mut change = mem::take(&mut self.pending);
        // The changes of an incomplete list are never emitted, even after the others stopped waiting for it.
        for slot in self.slots.iter_mut().filter(|slot| !slot.progress.listing) {
            change.merge(slot.table.take());
        }
        if !first && change.is_empty() {
            return None;
        }
        self.outdated = true;
        Some(change)
    }

    /// Whether changes wait for kinds that are being relisted. They do not wait for denied kinds, which may stay
    /// denied.
    fn holds(&mut self) -> bool {
        let listing = |progress: &Progress| progress.synced && progress.listing && !progress.is_refused();
        let relisted = |slot: &KindWatch| listing(&slot.progress) && slot.version.is_some();
        if !self.slots.iter().any(relisted) {
            self.hold = None;
            return false;
        }
        let ready = |slot: &KindWatch| !slot.progress.listing && slot.table.has_changes();
        let changed = !self.pending.is_empty() || self.slots.iter().any(ready);
        if self.hold.is_none() && !changed {
            return true;
        }
        let until = *self.hold.get_or_insert_with(|| Instant::now() + HOLD);
        Instant::now() < until
    }

    /// Publishes the report if it changed.
    pub(super) fn update_report(&mut self) {
        let mut report = Report {
            synced: self.complete,
            lists: self.lists,
            objects: self.slots.iter().map(|slot| slot.table.len()).sum(),
            from_snapshot: self.recalled.1 && !self.complete,
            mesh_rejected: self.mesh.as_ref().is_some_and(Mesh::is_rejected),
            default_revision: self.revision.as_ref().and_then(|revision| revision.default().cloned()),
            revision_names: self.revision.iter().flat_map(Revision::all_names).collect(),
            ..Report::default()
        };
        if !self.served {
            self.crds_side.progress.report("CustomResourceDefinition", &mut report);
        }
        for slot in self.slots.iter().filter(|slot| slot.version.is_some()) {
            slot.progress.report(&slot.name, &mut report);
        }
        for (_, name, side) in &self.mesh_sides {
            side.progress.report(name, &mut report);
        }
        if self.revision.is_some() {
            for (side, (name, ..)) in self.tags.iter().zip(TAGS) {
                side.progress.report(name, &mut report);
            }
        }
        self.report.send_if_modified(|before| {
            let differs = *before != report;
            *before = report;
            differs
        });
    }
}
