//! Moves a watch to the ledgers of other audiences. The client keeps equal resources and is sent the difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::xds::{Resource, ResourceType};
use rustc_hash::FxHashMap;

use crate::core::Core;
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::subscription::{Place, Subscription};
use crate::watch::{Gone, Pending, Watch};
use crate::{Epoch, Name, Origin};

/// The maximum number of resources that are kept for a client that moves.
const KEPT: usize = 4096;
/// A move of a stream that has nothing pending: from some selections to others, by their serial numbers.
#[derive(PartialEq, Eq, Hash)]
struct Move {
    from: (u64, Option<u64>),
    to: (u64, Option<u64>),
    sent: Epoch,
    removals_sent: Epoch,
}

/// The changes of the moves that were made in the current epoch.
#[derive(Default)]
pub(crate) struct Moves {
    epoch: Epoch,
    known: FxHashMap<Move, Pending>,
}

impl Moves {
    fn known(&mut self, epoch: Epoch) -> &mut FxHashMap<Move, Pending> {
        if self.epoch != epoch {
            *self = Moves { epoch, known: FxHashMap::default() };
        }
        &mut self.known
    }
}

impl<O: Origin> Core<O> {
    /// Moves a watch to the ledgers of its current audiences, if those have changed. While a response is outstanding, the
    /// state of the client is unknown; the move waits for the answer.
    pub(crate) fn relocate(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType) {
        let lens = self.lens(stream, kind);
        let Some(watch) = stream.watches.get_mut(kind) else {
            return;
        };
        let (audience, own) = (origin.audience(stream.token, kind), origin.own_audience(stream.token, kind));
        let audience_of = |place: Place| &self.ledgers[place.ledger].audience;
        let same = self.ledgers[watch.shared.ledger].lens.ids == lens.ids;
        if same && *audience_of(watch.shared) == audience && watch.own.map(audience_of) == own.as_ref() {
            watch.moving = false;
            return;
        }
        watch.moving = watch.inflight.is_some();
        if watch.moving {
            return;
        }
        let (names, lens) = (self.names(watch), Arc::new(lens));
        let shared = self.ledger(origin, kind, audience, &lens);
        let own = own.map(|own| self.own_ledger(origin, kind, own, &lens));
        let (shared, own) = self.places(origin, (shared, own), names.as_ref());
        if watch.sent > 0 {
            // The client does not have rejected resources, and may still have rejected removals.
            if let Some(rejected) = watch.rejected.take() {
                watch.pending.add(rejected.pending);
            }
            let pending = self.move_between(watch, names.as_ref(), (shared, own));
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

    /// The changes that take a client to other ledgers. They are found once for streams that make the same move.
    fn move_between(&mut self, watch: &Watch, names: Option<&NameSet>, to: (Place, Option<Place>)) -> Pending {
        if !watch.pending.is_empty() {
            return self.difference(watch, names, to);
        }
        let serial = |place: Place| self.part(place).selection.serial;
        let from = (serial(watch.shared), watch.own.map(serial));
        let key =
            Move { from, to: (serial(to.0), to.1.map(serial)), sent: watch.sent, removals_sent: watch.removals_sent };
        if let Some(known) = self.moves.known(self.epoch).get(&key) {
            return known.clone();
        }
        let pending = self.difference(watch, names, to);
        self.moves.known(self.epoch).insert(key, pending.clone());
        pending
    }

    /// The changes that take a client from its place in some ledgers to the content of others. A ledger that stays
    /// contributes its changes since that place, and not its content.
    fn difference(&self, watch: &Watch, names: Option<&NameSet>, (shared, own): (Place, Option<Place>)) -> Pending {
        let old = self.subscription(watch);
        let new = Subscription::new(self.part(shared), own.map(|own| self.part(own)));
        let stays =
            |place: &Place| watch.places().any(|old| old == *place) && (shared == *place || own == Some(*place));
        let left: Vec<Place> = watch.places().filter(|place| !stays(place)).collect();
        let entered: Vec<Place> = std::iter::once(shared).chain(own).filter(|place| !stays(place)).collect();
        let kept: Vec<Place> = watch.places().filter(stays).collect();

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
        let absent = |name: &Name| new.resource(&self.cells, name).is_none();
        let names_of = |place: &Place| {
            let content = Subscription::of(self.part(*place)).live(&self.cells);
            content.map(|(name, _)| name).collect::<Vec<_>>()
        };
        // Shared resources that the client's own ones hid or hide.
        let hid = |subscription: Subscription<'_, O>| -> Vec<Name> {
            subscription.overlay().iter().flat_map(|overlay| overlay.rows()).cloned().collect()
        };
        let changes_own = watch.own != own;
        let mut pending = Pending::default();
        let wanted = entered.iter().flat_map(names_of).cloned().chain(if changes_own { hid(old) } else { Vec::new() });
        let wants = |name: &Name| new.resource(&self.cells, name).is_some_and(|resource| !has(name, resource));
        pending.owe(wanted.filter(wants));
        for place in &kept {
            let changed = Subscription::of(self.part(*place)).changed(&self.cells, watch.sent, Epoch::MAX);
            pending.owe(changed.into_iter().filter(|name| !watch.kind.is_listed() || !absent(name)));
        }
        if !kept.is_empty() {
            pending.owe(watch.pending.owed.iter().filter(|name| !absent(name)).cloned());
        }

        let mut gone: Vec<Gone> = watch.pending.gone.clone();
        let dropped = left.iter().flat_map(names_of).cloned().chain(if changes_own { hid(new) } else { Vec::new() });
        gone.extend(dropped.filter_map(|name| {
            let last = Some(old.resource(&self.cells, &name)?.clone());
            Some(Gone { certain: certain(&name), name, last })
        }));
        gone.extend(old.removed(&self.cells, watch.removals_sent, Epoch::MAX).map(|(name, last)| Gone {
            name: name.clone(),
            last: last.cloned(),
            certain: false,
        }));
        gone.retain(|gone| absent(&gone.name) && !new.withholds(&gone.name));
        // Unknown names that have not been answered still need an answer.
        let unanswered = names.into_iter().flat_map(NameSet::iter);
        pending.owe(unanswered.filter(|name| absent(name) && owed_before(name)).cloned());
        pending.add_gone(gone, self.epoch);
        pending
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
