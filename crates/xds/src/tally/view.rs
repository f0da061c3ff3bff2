//! A ledger prepared for counting: for each selection its streams, and those that have not acknowledged everything.

use model::xds::ResourceType;
use rustc_hash::FxHashMap;

use super::Ask;
use super::bits::{Bits, Members};
use crate::ledger::Ledger;
use crate::overlay::Overlay;
use crate::selection::Selection;
use crate::subscription::{Place, Subscription};
use crate::watch::{Rejection, Watch};
use crate::{Epoch, Name, Origin, StreamId};

/// A stream with more pending names than this counts as pending for all names.
const OWED: usize = 256;

pub(super) struct View<'h> {
    kind: ResourceType,
    parts: Vec<Part<'h>>,
    /// The number of streams in the hub.
    bound: usize,
    /// The own selections that hide the resource of a name, as indices of `hiding`.
    hidden: FxHashMap<&'h Name, Vec<usize>>,
    /// The streams of each of these selections.
    hiding: Vec<Vec<u32>>,
}

/// One selection.
struct Part<'h> {
    selection: &'h Selection,
    members: Members,
    /// Streams without a NACK that lag behind, by the epoch that they have acknowledged, ascending.
    behind: Vec<(Epoch, u32)>,
    /// Prefixes of `behind` as sets, built on demand.
    prefixes: FxHashMap<usize, Members>,
    /// Streams with a NACK.
    nacked: Vec<Nacked<'h>>,
    /// Streams that have not been sent, or not acknowledged, the current resource of a name, even if that is old.
    owed: FxHashMap<&'h Name, Vec<u32>>,
    owed_everything: Vec<u32>,
}

struct Nacked<'h> {
    place: u32,
    accepted: Epoch,
    rejection: &'h Rejection,
}

impl<'h> View<'h> {
    pub(super) fn of<O: Origin>(
        ledger: &'h Ledger<O>,
        places: &FxHashMap<StreamId, u32>,
        watch: impl Fn(StreamId) -> Option<&'h Watch>,
        subscription: impl Fn(&Watch) -> Subscription<'h, O>,
    ) -> View<'h> {
        let bound = places.len();
        let mut hidden: FxHashMap<&'h Name, Vec<usize>> = FxHashMap::default();
        let mut hiding: Vec<Vec<u32>> = Vec::new();
        let mut overlaps: FxHashMap<Place, Overlap<'h>> = FxHashMap::default();
        let mut part = |selection: &'h Selection| {
            let mut part = Part::new(selection);
            let mut members = Vec::with_capacity(selection.streams.len());
            for id in &selection.streams {
                // A stream enters a selection before its watch is stored.
                let (Some(watch), Some(place)) = (watch(*id), places.get(id)) else {
                    continue;
                };
                members.push(*place);
                part.note(*place, watch, selection);
                let Some(own) = watch.own.filter(|own| own.ledger != ledger.id) else { continue };
                let Some(overlay) = subscription(watch).overlay() else { continue };
                let overlap = overlaps.entry(own).or_insert_with(|| {
                    hiding.push(Vec::new());
                    Overlap::of(overlay, hiding.len() - 1, &mut hidden)
                });
                hiding[overlap.index].push(*place);
                part.note_uncovered(*place, watch, overlap);
            }
            part.behind.sort_unstable();
            part.members = Members::new(members, bound);
            part
        };
        let parts = ledger.selections.iter().map(|(_, selection)| part(selection)).collect();
        View { kind: ledger.kind, parts, bound, hidden, hiding }
    }

    /// Adds the streams of a query, and those that have not acknowledged it. Calls `rejected` for streams that rejected it.
    pub(super) fn add(&mut self, ask: &Ask<'_>, total: &mut Bits, pending: &mut Bits, mut rejected: impl FnMut(u32)) {
        let Some(selections) = ask.name.and_then(|name| self.hidden.get(name)) else {
            return self.add_all(ask, total, pending, rejected);
        };
        let mut hidden: Vec<u32> = selections.iter().flat_map(|index| &self.hiding[*index]).copied().collect();
        hidden.sort_unstable();
        let (mut all, mut waiting) = (Bits::new(self.bound), Bits::new(self.bound));
        self.add_all(ask, &mut all, &mut waiting, |place| {
            if hidden.binary_search(&place).is_err() {
                rejected(place);
            }
        });
        let mut excluded = Bits::new(self.bound);
        hidden.iter().for_each(|place| excluded.insert(*place));
        all.subtract(&excluded);
        waiting.subtract(&excluded);
        total.add(&all);
        pending.add(&waiting);
    }

    fn add_all(&mut self, ask: &Ask<'_>, total: &mut Bits, pending: &mut Bits, mut rejected: impl FnMut(u32)) {
        let (kind, bound) = (self.kind, self.bound);
        let covers = |part: &&mut Part<'_>| ask.name.is_none_or(|name| part.selection.covers(name));
        for part in self.parts.iter_mut().filter(covers) {
            part.members.add_to(total);
            part.add_behind(ask.due, bound, pending);
            for one in part.nacked.iter().filter(|one| one.accepted < ask.due) {
                match one.answer(ask, kind) {
                    Answer::Rejected => rejected(one.place),
                    Answer::Pending => pending.insert(one.place),
                    Answer::Accepted => {}
                }
            }
            part.add_owed(ask.name, pending, &mut rejected);
        }
    }
}

/// The names of a shared ledger that concern an own one.
struct Overlap<'h> {
    /// The own selection in [`View::hiding`].
    index: usize,
    /// Rows hid them until these epochs.
    uncovered: Vec<(&'h Name, Epoch)>,
}

impl<'h> Overlap<'h> {
    /// Adds the names that the own selection with this index hides to `hidden`.
    fn of<O: Origin>(
        overlay: Overlay<'h, O>,
        index: usize,
        hidden: &mut FxHashMap<&'h Name, Vec<usize>>,
    ) -> Overlap<'h> {
        let (shared, own) = (overlay.shared.ledger, overlay.own.ledger);
        let uncovered = own.tombs.iter().filter(|(name, _)| !own.contains(name));
        for name in overlay.own.decided().filter(|name| shared.contains(name)) {
            hidden.entry(name).or_default().push(index);
        }
        Overlap {
            index,
            uncovered: uncovered.filter(|(name, _)| shared.contains(name)).map(|(name, t)| (name, t.epoch)).collect(),
        }
    }
}

enum Answer {
    Accepted,
    Rejected,
    Pending,
}

impl Nacked<'_> {
    /// The answer of a client with a NACK for a resource that it has not acknowledged.
    fn answer(&self, ask: &Ask<'_>, kind: ResourceType) -> Answer {
        if ask.due > self.rejection.upto {
            return Answer::Pending;
        }
        match ask.name {
            Some(name) if !self.rejection.concerns(name) => {
                if kind.partial_nack {
                    Answer::Accepted
                } else {
                    Answer::Pending
                }
            }
            _ => Answer::Rejected,
        }
    }
}

impl<'h> Part<'h> {
    fn new(selection: &'h Selection) -> Part<'h> {
        Part {
            selection,
            members: Members::Few(Vec::new()),
            behind: Vec::new(),
            prefixes: FxHashMap::default(),
            nacked: Vec::new(),
            owed: FxHashMap::default(),
            owed_everything: Vec::new(),
        }
    }

    /// Records the resources that a stream has not acknowledged.
    fn note(&mut self, place: u32, watch: &'h Watch, selection: &Selection) {
        let accepted = watch.in_force(selection.changed);
        match &watch.rejection {
            Some(rejection) if accepted < Epoch::MAX => {
                self.nacked.push(Nacked { place, accepted, rejection });
            }
            _ if accepted < Epoch::MAX => self.behind.push((accepted, place)),
            _ => {}
        }
        if accepted == 0 {
            // It has acknowledged nothing.
            return;
        }
        let sent = watch.inflight.iter().flat_map(|inflight| &inflight.pending.owed);
        let owed = sent.chain(&watch.pending.owed);
        if owed.clone().nth(OWED).is_some() {
            self.owed_everything.push(place);
            return;
        }
        for name in owed {
            self.owed.entry(name).or_default().push(place);
        }
        for name in watch.rejection.iter().flat_map(|rejection| &rejection.owed) {
            self.owed.entry(name).or_default().push(place);
        }
    }

    /// Records the shared resources that appeared instead of own ones and that a stream has not acknowledged.
    fn note_uncovered(&mut self, place: u32, watch: &Watch, overlap: &Overlap<'h>) {
        for (name, epoch) in &overlap.uncovered {
            if watch.in_force(*epoch) < *epoch {
                self.owed.entry(name).or_default().push(place);
            }
        }
    }

    fn add_behind(&mut self, due: Epoch, bound: usize, pending: &mut Bits) {
        let late = self.behind.partition_point(|(accepted, _)| *accepted < due);
        if late == 0 {
            return;
        }
        let behind = &self.behind;
        let set = self
            .prefixes
            .entry(late)
            .or_insert_with(|| Members::new(behind[..late].iter().map(|(_, place)| *place).collect(), bound));
        set.add_to(pending);
    }

    fn add_owed(&self, name: Option<&Name>, pending: &mut Bits, rejected: &mut impl FnMut(u32)) {
        self.owed_everything.iter().for_each(|place| pending.insert(*place));
        // A client that moved here has acknowledged what it had before, so that its acknowledgements say nothing about these.
        let owed = match name {
            Some(name) => self.owed.get_key_value(name).into_iter().collect(),
            None => self.owed.iter().collect::<Vec<_>>(),
        };
        for (name, places) in owed {
            for place in places {
                let nacked = self.nacked.iter().find(|one| one.place == *place);
                match nacked.map(|one| one.rejection) {
                    Some(rejection) if rejection.owed.contains(name) && rejection.concerns(name) => rejected(*place),
                    _ => pending.insert(*place),
                }
            }
        }
    }
}
