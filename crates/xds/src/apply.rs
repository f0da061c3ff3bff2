//! Applies commits to ledgers and wakes the streams that they concern.

use std::collections::BTreeSet;

use model::xds::{Resource, ResourceType};

use crate::cells::LedgerId;
use crate::relisted::Compared;
use crate::{Changes, Code, Epoch, Hub, Moment, Name, Origin, Status, StreamId};

/// The least number of tombstones for which all streams are examined.
const FEW_TOMBS: usize = 64;

impl<O: Origin> Hub<O> {
    /// Applies the changes of a commit. Wakes the streams that they concern.
    pub fn apply(&mut self, origin: &mut O, changes: Changes<O>, now: Moment) {
        self.apply_to_ledgers(origin, changes, Compared::default(), now);
        while self.move_some(origin, usize::MAX, now) {}
    }

    /// Applies the changes of a commit, but leaves the moves of streams to [`Hub::move_some`]. The caller may have compared
    /// the catalogues that it changes ([`Hub::relisted`]).
    pub fn apply_to_ledgers(&mut self, origin: &mut O, changes: Changes<O>, compared: Compared<O>, now: Moment) {
        if changes.is_empty() {
            return;
        }
        self.core.epoch += 1;
        let epoch = self.core.epoch;
        let mut touched: BTreeSet<LedgerId> = BTreeSet::new();
        for (cell, resource) in changes.resources {
            // The last one stays if there is none because of a panic.
            if resource.is_some() || !origin.failed(cell) {
                self.replace(cell, resource, now, &mut touched);
            }
        }
        for (cell, catalogue) in changes.catalogues {
            for ledger in self.core.catalogues.get(&cell).into_iter().flatten().copied() {
                let list = (cell, catalogue.clone(), compared.of(cell));
                let rekeyed = self.core.ledgers[ledger].on_catalogue(origin, &mut self.core.cells, list, epoch);
                for one in rekeyed {
                    let good = one.acknowledged.or_else(|| self.core.goods.get(one.before).cloned());
                    good.into_iter().for_each(|good| self.core.goods.keep(one.now, good, now));
                }
                touched.insert(ledger);
            }
        }
        if !changes.appeared.is_empty() {
            for (id, ledger) in &mut self.core.ledgers {
                ledger.on_appeared(origin, &mut self.core.cells, &changes.appeared, epoch);
                touched.insert(id);
            }
        }
        for ledger in &touched {
            self.wake_marked(*ledger, now);
        }
        let moved: Vec<StreamId> = changes.moved.into_iter().filter_map(|token| self.stream_of(token)).collect();
        self.begin_moves(moved);
        for ledger in touched {
            self.prune(ledger);
        }
        self.dismiss(compared);
    }

    /// Replaces resources, and wakes the streams that they concern. They are sent before changes that the origin has made, but that
    /// were not applied yet.
    pub fn apply_ahead(&mut self, resources: Vec<(O::Cell, Resource)>, now: Moment) {
        self.core.epoch += 1;
        let mut touched = BTreeSet::new();
        for (cell, resource) in resources {
            self.replace(cell, Some(resource), now, &mut touched);
        }
        for ledger in touched {
            self.wake_marked(ledger, now);
        }
    }

    /// Replaces the resource of a cell. Adds the ledgers that have it.
    fn replace(&mut self, cell: O::Cell, resource: Option<Resource>, now: Moment, touched: &mut BTreeSet<LedgerId>) {
        let epoch = self.core.epoch;
        let Some(replaced) = self.core.cells.replace(cell, resource.clone()) else {
            return;
        };
        let acknowledged = |(ledger, name): &(LedgerId, Name)| {
            self.core.ledgers[*ledger].acknowledged(name, replaced.old.as_ref()).cloned()
        };
        if let Some(good) = replaced.users.iter().find_map(acknowledged) {
            self.core.goods.keep(cell, good, now);
        }
        for (ledger, name) in replaced.users {
            self.core.ledgers[ledger].on_resource(&name, replaced.old.as_ref(), resource.as_ref(), epoch);
            touched.insert(ledger);
        }
    }

    pub(crate) fn wake(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.busy_since.get_or_insert(now);
            self.woken.insert(id);
        }
    }

    /// Records that a client uses the state before this change until it acknowledges the change.
    fn note_in_force(&mut self, id: StreamId, kind: ResourceType) {
        let epoch = self.core.epoch;
        let watch = self.streams.get_mut(&id).and_then(|stream| stream.watch_mut(kind));
        if let Some(watch) = watch
            && watch.is_current(self.core.subscription(watch).changed_before(epoch))
        {
            watch.acked = watch.acked.max(epoch - 1);
        }
    }

    fn wake_marked(&mut self, ledger: LedgerId, now: Moment) {
        let epoch = self.core.epoch;
        for selection in self.core.ledgers[ledger].take_marked() {
            let kind = self.core.ledgers[ledger].kind;
            let selection = &self.core.ledgers[ledger].selections[selection];
            let changed = selection.changed == epoch;
            let streams: Vec<StreamId> = selection.streams.iter().copied().collect();
            for id in streams {
                if changed {
                    self.note_in_force(id, kind);
                }
                self.wake(id, now);
            }
        }
    }

    /// Removes tombstones that every stream has been sent. A stream that is too far behind is closed: it reports its state when
    /// it reconnects.
    fn prune(&mut self, id: LedgerId) {
        let Some(ledger) = self.core.ledgers.get_mut(id) else {
            return;
        };
        if ledger.tombs.len() < ledger.prune_at.max(FEW_TOMBS) {
            return;
        }
        let streams = ledger.selections.iter().flat_map(|(_, selection)| selection.streams.iter().copied());
        let kind = ledger.kind;
        let sent: Vec<(Epoch, StreamId)> = streams
            .filter_map(|id| {
                let watch = self.streams.get(&id)?.watch(kind)?;
                let before =
                    watch.inflight.as_ref().map_or(watch.removals_sent, |inflight| inflight.removals_sent_before);
                Some((watch.removals_sent.min(before), id))
            })
            .collect();
        let earliest = sent.iter().map(|(epoch, _)| *epoch).min().unwrap_or(Epoch::MAX);
        ledger.prune(earliest);
        let limit = self.core.limits.removed_names + ledger.len();
        ledger.prune_at = limit.min(2 * ledger.tombs.len());
        if ledger.tombs.len() <= limit {
            return;
        }
        for (_, id) in sent.into_iter().filter(|(epoch, _)| *epoch == earliest) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.close_with = Some(Status::new(Code::Unavailable, "too far behind: connect again"));
                self.woken.insert(id);
            }
        }
    }
}
