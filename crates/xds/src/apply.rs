//! Applies commits to ledgers and wakes the streams that they concern.
//!
//! A commit can change resources of thousands of ledgers, so that it is applied in steps. All its changes are of the epoch
//! after the current one, which begins with the last step. Between two steps, a stream is served as before the commit as
//! long as nothing that it subscribes to has changed. From then on, it is sent nothing until the last step.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::vec;

use model::xds::{Resource, ResourceType};
use rustc_hash::FxHashSet;

use crate::cells::LedgerId;
use crate::ledger::Row;
use crate::relisted::Compared;
use crate::{Changes, Code, Epoch, Hub, Moment, Name, Origin, Status, StreamId};

/// The least number of tombstones for which all streams are examined.
const FEW_TOMBS: usize = 64;

/// A commit that is applied in steps. Between them, the hub must only be used for what needs no origin.
pub struct Application<O: Origin> {
    epoch: Epoch,
    resources: vec::IntoIter<(O::Cell, Option<Resource>)>,
    /// The changed catalogues, once for each ledger that has it.
    catalogues: vec::IntoIter<(LedgerId, O::Cell, O::Catalogue)>,
    relisting: Option<Relisting<O::Key>>,
    appeared: FxHashSet<Name>,
    /// The ledgers that may have names of what appeared.
    unexamined: Range<LedgerId>,
    moved: Vec<O::Token>,
    compared: Compared<O>,
    /// The ledgers whose streams are not found yet.
    touched: BTreeSet<LedgerId>,
    /// The streams to be woken in the end.
    woken: BTreeSet<StreamId>,
}

/// The change of a ledger's catalogue.
struct Relisting<K> {
    ledger: LedgerId,
    /// The rows that differ.
    rows: Arc<[Row<K>]>,
    /// The number of rows that have been changed.
    changed: usize,
}

impl<O: Origin> Hub<O> {
    /// Applies the changes of a commit. Wakes the streams that they concern.
    pub fn apply(&mut self, origin: &mut O, changes: Changes<O>, now: Moment) {
        if let Some(application) = self.application(changes, Compared::default()) {
            self.apply_some(origin, application, || true, now);
        }
        while self.move_some(origin, usize::MAX, now) {}
    }

    /// The changes of a commit, of which nothing is applied yet; `None` if there are none. The caller may have compared the
    /// catalogues that it changes ([`Hub::relisted`]).
    pub fn application(&self, changes: Changes<O>, compared: Compared<O>) -> Option<Application<O>> {
        if changes.is_empty() {
            return None;
        }
        let of = |cell: &O::Cell| self.core.catalogues.get(cell).into_iter().flatten().copied();
        let catalogues = changes.catalogues.iter();
        let catalogues: Vec<_> = catalogues
            .flat_map(|(cell, catalogue)| of(cell).map(move |ledger| (ledger, *cell, catalogue.clone())))
            .collect();
        let unexamined = if changes.appeared.is_empty() { 0 } else { self.core.ledgers.capacity() };
        Some(Application {
            epoch: self.core.epoch + 1,
            resources: changes.resources.into_iter(),
            catalogues: catalogues.into_iter(),
            relisting: None,
            appeared: changes.appeared,
            unexamined: 0..unexamined,
            moved: changes.moved,
            compared,
            touched: BTreeSet::new(),
            woken: BTreeSet::new(),
        })
    }

    /// Applies changes as long as `goes_on` is true, at least one. Returns what is left. After the last one, it wakes the
    /// streams that they concern, and leaves moves to [`Hub::move_some`].
    pub fn apply_some(
        &mut self,
        origin: &mut O,
        mut application: Application<O>,
        goes_on: impl Fn() -> bool,
        now: Moment,
    ) -> Option<Application<O>> {
        while self.apply_one(origin, &mut application, now) {
            if !goes_on() {
                return Some(application);
            }
        }
        let Application { epoch, moved, compared, mut woken, .. } = application;
        self.core.epoch = epoch;
        self.woken.append(&mut woken);
        let moved: Vec<StreamId> = moved.into_iter().filter_map(|token| self.stream_of(token)).collect();
        self.begin_moves(moved);
        self.dismiss(compared);
        None
    }

    /// Applies the next change, or examines the next ledger. Returns whether there was one.
    fn apply_one(&mut self, origin: &mut O, application: &mut Application<O>, now: Moment) -> bool {
        let at = (application.epoch, now);
        if let Some((cell, resource)) = application.resources.next() {
            // The last one stays if there is none because of a panic.
            if resource.is_some() || !origin.failed(cell) {
                self.replace(cell, resource, at, &mut application.touched);
            }
        } else if self.relist_one(origin, application, now) {
            // It has changed a row.
        } else if let Some(id) = application.unexamined.next() {
            if let Some(ledger) = self.core.ledgers.get_mut(id) {
                ledger.on_appeared(origin, &mut self.core.cells, &application.appeared, at.0);
                if ledger.has_marked() {
                    application.touched.insert(id);
                }
            }
        } else if let Some(ledger) = application.touched.pop_first() {
            self.find_marked(ledger, at, &mut application.woken);
            self.prune(ledger);
        } else {
            return false;
        }
        true
    }

    /// Changes the next row of a catalogue. Returns whether there was one.
    fn relist_one(&mut self, origin: &mut O, application: &mut Application<O>, now: Moment) -> bool {
        loop {
            if let Some(relisting) = &mut application.relisting
                && let Some(row) = relisting.rows.get(relisting.changed)
            {
                relisting.changed += 1;
                application.touched.insert(relisting.ledger);
                let ledger = &mut self.core.ledgers[relisting.ledger];
                if let Some(one) = ledger.relist(origin, &mut self.core.cells, row, application.epoch) {
                    let good = one.acknowledged.or_else(|| self.core.goods.get(one.before).cloned());
                    good.into_iter().for_each(|good| self.core.goods.keep(one.now, good, now));
                }
                return true;
            }
            let Some((ledger, cell, catalogue)) = application.catalogues.next() else { return false };
            let compared = application.compared.of(cell);
            let rows = self.core.ledgers[ledger].on_catalogue(origin, (cell, catalogue, compared));
            application.relisting = Some(Relisting { ledger, rows, changed: 0 });
        }
    }

    /// Replaces resources, and wakes the streams that they concern. They are sent before changes that the origin has made, but that
    /// were not applied yet.
    pub fn apply_ahead(&mut self, resources: Vec<(O::Cell, Resource)>, now: Moment) {
        self.core.epoch += 1;
        let (at, mut touched, mut woken) = ((self.core.epoch, now), BTreeSet::new(), BTreeSet::new());
        for (cell, resource) in resources {
            self.replace(cell, Some(resource), at, &mut touched);
        }
        touched.into_iter().for_each(|ledger| self.find_marked(ledger, at, &mut woken));
        self.woken.append(&mut woken);
    }

    /// Replaces the resource of a cell. Adds the ledgers that have it.
    fn replace(
        &mut self,
        cell: O::Cell,
        resource: Option<Resource>,
        (epoch, now): (Epoch, Moment),
        touched: &mut BTreeSet<LedgerId>,
    ) {
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

    /// Wakes a stream: it may have something to do.
    pub fn wake(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.busy_since.get_or_insert(now);
            self.woken.insert(id);
        }
    }

    /// Records that a client uses the state before a change until it acknowledges the change.
    fn note_in_force(&mut self, id: StreamId, kind: ResourceType, epoch: Epoch) {
        let watch = self.streams.get_mut(&id).and_then(|stream| stream.watch_mut(kind));
        if let Some(watch) = watch
            && watch.is_current(self.core.subscription(watch).changed_before(epoch))
        {
            watch.acked = watch.acked.max(epoch - 1);
        }
    }

    /// Adds the streams that subscribe to what has changed in a ledger.
    fn find_marked(&mut self, ledger: LedgerId, (epoch, now): (Epoch, Moment), woken: &mut BTreeSet<StreamId>) {
        for selection in self.core.ledgers[ledger].take_marked() {
            let kind = self.core.ledgers[ledger].kind;
            let selection = &self.core.ledgers[ledger].selections[selection];
            let changed = selection.changed == epoch;
            let streams: Vec<StreamId> = selection.streams.iter().copied().collect();
            for id in streams {
                if changed {
                    self.note_in_force(id, kind, epoch);
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.busy_since.get_or_insert(now);
                    woken.insert(id);
                }
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
