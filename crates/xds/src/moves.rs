//! Moves a watch to the ledger of another audience. The client keeps equal resources and is sent the difference.

use model::xds::{Resource, ResourceType};

use crate::core::Core;
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::watch::{Gone, Pending, Watch};
use crate::{Epoch, Name, Origin};

impl<O: Origin> Core<O> {
    /// Moves a watch to the ledger of its current audience, if that has changed. While a response is outstanding, the state of
    /// the client is unknown; the move waits for the answer.
    pub(crate) fn relocate(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType) {
        let id = stream.id;
        let Some(watch) = stream.watches.get_mut(kind) else {
            return;
        };
        let audience = origin.audience(stream.token, kind);
        if self.ledgers[watch.ledger].audience == audience {
            watch.moving = false;
            return;
        }
        watch.moving = watch.inflight.is_some();
        if watch.moving {
            return;
        }
        let old = (watch.ledger, watch.selection);
        let names = self.selection(watch).names.clone();
        let ledger = self.ledger(origin, kind, audience);
        let selection = match &names {
            None => self.ledgers[ledger].select_all(&self.cells, &mut self.serial, self.epoch),
            Some(names) => self.select(origin, ledger, &names.edit(Vec::new(), &[])),
        };
        if watch.sent > 0 {
            // The client does not have rejected resources, and may still have rejected removals.
            if let Some(rejected) = watch.rejected.take() {
                watch.pending.add(rejected.pending);
            }
            let pending = self.difference(watch, names.as_ref(), ledger, selection);
            watch.pending = pending;
            watch.sent = self.epoch;
            watch.removals_sent = self.epoch;
            watch.rejection = None;
            watch.acked = self.epoch;
        }
        (watch.ledger, watch.selection, watch.joined) = (ledger, selection, self.epoch);
        self.enter(watch, id);
        self.leave(origin, old, id);
    }

    /// The changes that take a client from its place in one ledger to the content of another.
    fn difference(&self, watch: &Watch, names: Option<&NameSet>, ledger: usize, selection: usize) -> Pending {
        let (old, new) = (&self.ledgers[watch.ledger], &self.ledgers[ledger]);
        let owed_before = |name: &Name| watch.pending.owed.binary_search(name).is_ok();
        let certain = |name: &Name| old.epoch_of(name) <= watch.sent && !owed_before(name);
        let has = |name: &Name, resource: &Resource| {
            let present = old.resource(&self.cells, name).filter(|_| certain(name));
            // The client also has resources whose removal was not sent.
            let kept = || {
                let at = watch.pending.gone.binary_search_by(|gone| gone.name.cmp(name)).ok()?;
                let gone = &watch.pending.gone[at];
                gone.last.as_ref().filter(|_| gone.certain)
            };
            present.or_else(kept).is_some_and(|had| had.version() == resource.version())
        };
        let mut pending = Pending::default();
        let wanted = new.live(&self.cells, &new.selections[selection]);
        pending.owe(wanted.filter(|(name, resource)| !has(name, resource)).map(|(name, _)| name.clone()));

        let absent = |name: &Name| new.resource(&self.cells, name).is_none();
        let mut gone: Vec<Gone> = watch.pending.gone.clone();
        let before = &old.selections[watch.selection];
        gone.extend(old.live(&self.cells, before).map(|(name, resource)| Gone {
            name: name.clone(),
            last: Some(resource.clone()),
            certain: certain(name),
        }));
        gone.extend(old.removed(before, watch.removals_sent, Epoch::MAX).map(|(name, tomb)| Gone {
            name: name.clone(),
            last: Some(tomb.last.clone()),
            certain: false,
        }));
        gone.retain(|gone| absent(&gone.name));
        // Unknown names that have not been answered still need an answer.
        let unanswered = names.into_iter().flat_map(NameSet::iter);
        pending.owe(unanswered.filter(|name| absent(name) && owed_before(name)).cloned());
        pending.add_gone(gone, self.epoch);
        pending
    }
}
