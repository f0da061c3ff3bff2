//! When something is said, and what.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::slot::Slot;
use super::{Follower, TAGS};
use crate::kubernetes::mesh::Mesh;
use crate::kubernetes::progress::Progress;
use crate::kubernetes::{News, Report};

/// How long changes wait for kinds that are being listed anew.
const HOLD: Duration = Duration::from_secs(5);

impl Follower {
    /// Whether nobody needs to be waited for: everything was listed, or is refused; or it fails where most of the rest does
    /// not, so that it is not the server that fails.
    fn settled(&self) -> bool {
        let served = self.slots.iter().filter(|slot| slot.version.is_some());
        let slots = served.map(|slot| &slot.progress);
        let tags = self.tags.iter().filter(|_| self.revision.is_some());
        let sides = tags.chain(self.mesh_sides.iter().map(|(_, _, side)| side));
        let all: Vec<&Progress> = slots.chain(sides.map(|side| &side.progress)).collect();
        let synced = all.iter().filter(|progress| progress.synced).count();
        let answers = synced * 2 > all.len();
        // Of a server that refuses everything nobody knows what it has.
        let any = synced > 0 || all.is_empty();
        self.served
            && any
            && all
                .iter()
                .all(|progress| progress.is_settled() || (answers && progress.is_stuck()))
    }

    /// What may be said now.
    pub(super) fn ready(&mut self) -> Option<News> {
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
        let mut gathered = mem::take(&mut self.pending);
        // A list that is under way is nobody's, even where it is not waited for any more.
        for slot in self.slots.iter_mut().filter(|slot| !slot.progress.listing) {
            gathered.add(slot.table.take());
        }
        if !first && gathered.is_empty() {
            return None;
        }
        self.outdated = true;
        Some(gathered.into_news())
    }

    /// Whether changes wait for kinds that were known and are being listed anew; not for those that we may not read, of which
    /// nobody knows for how long.
    fn holds(&mut self) -> bool {
        let listing = |progress: &Progress| progress.synced && progress.listing && !progress.is_refused();
        let relisted = |slot: &Slot| listing(&slot.progress) && slot.version.is_some();
        if !self.slots.iter().any(relisted) {
            self.hold = None;
            return false;
        }
        let ready = |slot: &Slot| !slot.progress.listing && slot.table.has_news();
        let news = !self.pending.is_empty() || self.slots.iter().any(ready);
        if self.hold.is_none() && !news {
            return true;
        }
        let until = *self.hold.get_or_insert_with(|| Instant::now() + HOLD);
        Instant::now() < until
    }

    /// Makes the report.
    pub(super) fn tell(&mut self) {
        let mut report = Report {
            synced: self.complete,
            lists: self.lists,
            objects: self.slots.iter().map(|slot| slot.table.len()).sum(),
            from_snapshot: self.recalled.1 && !self.complete,
            mesh_rejected: self.mesh.as_ref().is_some_and(Mesh::is_rejected),
            default_revision: self.revision.as_ref().and_then(|revision| revision.default().cloned()),
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
