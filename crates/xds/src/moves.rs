//! Moves a watch to the ledgers of other audiences. The client keeps equal resources and is sent the difference.
//!
//! The difference of two shared selections is found once for all streams that move between them. For each stream, only the
//! names in its own ledgers, and those that it was not sent yet, are compared in addition.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::xds::{Resource, ResourceType};
use rustc_hash::FxHashMap;

use crate::core::Core;
use crate::ledger::differing;
use crate::stream::Stream;
use crate::subscription::{Place, Subscription};
use crate::watch::{Gone, Pending, Watch};
use crate::{Epoch, Name, Origin};

/// The maximum number of resources that are kept for a client that moves.
const KEPT: usize = 4096;
/// The maximum number of known moves. All are dropped when there would be more.
const KNOWN: usize = 256;

/// A move between shared selections, by their serial numbers, of a stream that was sent the updates up to an epoch.
#[derive(PartialEq, Eq, Hash)]
struct Move {
    from: u64,
    to: u64,
    sent: Epoch,
}

/// The changes of the moves that were made in the current epoch.
#[derive(Default)]
pub(crate) struct Moves {
    epoch: Epoch,
    known: FxHashMap<Move, Arc<Pending>>,
}

impl Moves {
    fn known(&mut self, epoch: Epoch) -> &mut FxHashMap<Move, Arc<Pending>> {
        if self.epoch != epoch || self.known.len() > KNOWN {
            *self = Moves { epoch, known: FxHashMap::default() };
        }
        &mut self.known
    }
}

impl<O: Origin> Core<O> {
    /// Moves a watch to the ledgers of its current audiences, if those have changed. While a response is outstanding, the
    /// state of the client is unknown; the move waits for the answer.
    pub(crate) fn relocate(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType) {
        let (shared, own) = self.keys(origin, stream, kind);
        let Some(watch) = stream.watches.get_mut(kind) else {
            return;
        };
        let same = self.ledgers[watch.shared.ledger].lens.ids == shared.lens.ids;
        if self.known(&shared) == Some(watch.shared.ledger)
            && own.as_ref().map(|own| self.known(own)) == watch.own.map(|own| Some(own.ledger))
        {
            watch.moving = false;
            return;
        }
        watch.moving = watch.inflight.is_some();
        if watch.moving {
            return;
        }
        let names = self.names(watch);
        let (shared, own) = (self.ledger(origin, &shared), own.map(|own| self.ledger(origin, &own)));
        let (shared, own) = self.places(origin, (shared, own), names.as_ref());
        if watch.sent > 0 {
            // The client does not have rejected resources, and may still have rejected removals.
            if let Some(rejected) = watch.rejected.take() {
                watch.pending.add(rejected.pending);
            }
            let pending = self.difference(watch, (shared, own));
            self.note_before(watch, &pending, same);
            watch.pending = pending;
            watch.sent = self.epoch;
            watch.removals_sent = self.epoch;
            watch.rejection = None;
            watch.acked = self.epoch;
        } else if watch.rejected.take().is_some() {
            watch.must_answer = true;
        }
        watch.joined = self.epoch;
        self.switch(stream, kind, (shared, own));
        self.note_in_place(stream, kind);
    }

    /// The same, unless the stream is to have a long list through another lens: then its move is prepared first
    /// ([`Hub::move_some`](crate::Hub::move_some)).
    pub(crate) fn relocate_or_wait(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType) {
        let is_long = |place: Place| self.ledgers[place.ledger].len() > self.limits.opened_at_once;
        let watch = stream.watch(kind).filter(|watch| watch.places().any(is_long));
        let is_changed = |watch: &Watch| self.ledgers[watch.shared.ledger].lens.ids != self.lens(stream, kind).ids;
        match watch.is_some_and(is_changed) {
            true => self.waiting_moves.push(stream.id),
            false => self.relocate(origin, stream, kind),
        }
    }

    /// The changes that take a client from its place in some ledgers to the content of others.
    fn difference(&mut self, watch: &Watch, (shared, own): (Place, Option<Place>)) -> Pending {
        let common = self.shared_difference(watch.shared, shared, watch.sent);
        let apart = self.names_apart(watch, own);
        let old = self.subscription(watch);
        let new = Subscription::new(self.part(shared), own.map(|own| self.part(own)));

        let (mut owed, mut gone) = self.judge((old, new), &apart, &watch.pending, watch.sent);
        gone.splice(..0, watch.pending.gone.iter().cloned());
        if old.latest().removed > watch.removals_sent {
            let removed = old.removed(&self.cells, watch.removals_sent, Epoch::MAX);
            gone.extend(removed.map(|(name, last)| Gone { name: name.clone(), last: last.cloned(), certain: false }));
        }
        gone.retain(|gone| new.resource(&self.cells, &gone.name).is_none() && !new.withholds(&gone.name));
        let is_common = |name: &Name| apart.binary_search(name).is_err() && !new.is_own(name);
        owed.extend(common.owed.iter().filter(|name| is_common(name)).cloned());
        gone.extend(common.gone.iter().filter(|gone| is_common(&gone.name)).cloned());
        let mut pending = Pending::default();
        pending.owe(owed);
        pending.add_gone(gone, self.epoch);
        pending
    }

    /// The changes between two shared selections, for a stream that was sent the updates up to an epoch, as if it had nothing
    /// else. Without removals before the move.
    fn shared_difference(&mut self, from: Place, to: Place, sent: Epoch) -> Arc<Pending> {
        let serial = |place: Place| self.part(place).selection.serial;
        let key = Move { from: serial(from), to: serial(to), sent };
        let epoch = self.epoch;
        if let Some(known) = self.moves.known(epoch).get(&key) {
            return known.clone();
        }
        let [old, new] = [from, to].map(|place| Subscription::of(self.part(place)));
        let mut names = old.changed(&self.cells, sent, Epoch::MAX);
        if from != to {
            names.extend(differing(&self.cells, self.part(from), self.part(to)));
            names.sort_unstable();
            names.dedup();
        }
        let (owed, gone) = self.judge((old, new), &names, &Pending::default(), sent);
        let mut pending = Pending::default();
        pending.owe(owed);
        pending.add_gone(gone, epoch);
        let pending = Arc::new(pending);
        self.moves.known(epoch).insert(key, pending.clone());
        pending
    }

    /// The names, ascending, for which it matters what a stream has in its own ledgers or what it was not sent yet.
    fn names_apart(&self, watch: &Watch, own: Option<Place>) -> Vec<Name> {
        let mut names = watch.pending.owed.clone();
        names.extend(watch.pending.gone.iter().map(|gone| gone.name.clone()));
        let has_changed = |place: &Place| {
            let latest = Subscription::of(self.part(*place)).latest();
            latest.changed > watch.sent || latest.removed > watch.removals_sent
        };
        let places = [watch.own, own];
        let places = if watch.own == own { &places[1..] } else { &places[..] };
        for place in places.iter().flatten().filter(|place| watch.own != own || has_changed(place)) {
            let part = self.part(*place);
            let rows = part.ledger.names().chain(part.ledger.tombs.keys());
            let rows = rows.filter(|name| watch.kind.is_listed() && part.selection.covers(name));
            names.extend(rows.chain(part.selection.named()).cloned());
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Compares what a client has of these names with what it is to have. It was sent the updates of `old` up to an epoch,
    /// except for `before`. Returns names whose resources it lacks, and those that it is to lose.
    fn judge(
        &self,
        (old, new): (Subscription<'_, O>, Subscription<'_, O>),
        names: &[Name],
        before: &Pending,
        sent: Epoch,
    ) -> (Vec<Name>, Vec<Gone>) {
        let (mut owed, mut gone) = (Vec::new(), Vec::new());
        for name in names {
            let unanswered = before.owed.binary_search(name).is_ok();
            let certain = !unanswered && old.epoch_of(name) <= sent;
            let had = old.resource(&self.cells, name);
            // The client also has resources whose removal was not sent.
            let kept = || {
                let gone = &before.gone[before.gone.binary_search_by(|gone| gone.name.cmp(name)).ok()?];
                gone.last.as_ref().filter(|_| gone.certain)
            };
            if let Some(resource) = new.resource(&self.cells, name) {
                let has = had.filter(|_| certain).or_else(kept);
                if has.is_none_or(|has| has.version() != resource.version()) {
                    owed.push(name.clone());
                }
                continue;
            }
            // A name that is subscribed to is answered even if it has no resource.
            if unanswered && new.names_one(name) || had.is_none() && !certain && !new.is_listed() {
                owed.push(name.clone());
            }
            if let Some(last) = had.filter(|_| !new.withholds(name)) {
                gone.push(Gone { name: name.clone(), last: Some(last.clone()), certain });
            }
        }
        (owed, gone)
    }

    /// Records in the ledgers of a watch that its client has all that they contain, if that is so.
    pub(crate) fn note_in_place(&mut self, stream: &Stream<O::Token>, kind: ResourceType) {
        let Some(watch) = stream.watch(kind) else { return };
        if watch.sent > 0 && watch.inflight.is_none() && watch.pending.owed.is_empty() && watch.rejected.is_none() {
            for Place { ledger, .. } in watch.places() {
                self.ledgers[ledger].acked = self.ledgers[ledger].acked.max(watch.acked);
            }
        }
    }

    /// Keeps the resources that a client has and that a move to another audience changes.
    fn note_before(&self, watch: &mut Watch, pending: &Pending, to_another_audience: bool) {
        if !to_another_audience || self.limits.quarantine.is_none() {
            return;
        }
        let (old, sent) = (self.subscription(watch), watch.sent);
        let certain = |name: &&Name| old.epoch_of(name) <= sent && watch.pending.owed.binary_search(name).is_err();
        let had = |name: &Name| Some((name.clone(), old.resource(&self.cells, name)?.clone()));
        let had = pending.owed.iter().take(KEPT).filter(certain).filter_map(had);
        let mut before = had.collect::<BTreeMap<Name, Resource>>();
        // A move back and forth: what the client had first is what it has.
        before.append(&mut watch.before);
        watch.before = before;
    }
}
