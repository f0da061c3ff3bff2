//! Prepares the move of a stream to other audiences: opens what it will be served there, a few cells at a time, as before a
//! large request. The move itself is one step, so that the state of a stream does not depend on the steps.

use crate::core::{Core, LedgerKey};
use crate::holds::Kept;
use crate::name_set::NameSet;
use crate::opening::{Asked, Opening};
use crate::stream::Stream;
use crate::wanted::{Opened, Wanted};
use crate::watch::Watch;
use crate::{Hub, Moment, Origin, StreamId};

/// The cells that a stream which moves needs at its new audiences.
pub(crate) struct Preparation<O: Origin> {
    stream: StreamId,
    /// The resources that are not open yet, by type, with the names that the stream is subscribed to. `None`: its audiences have changed
    /// again.
    openings: Option<Vec<(Opening<O>, NameSet)>>,
    /// Open until the stream has moved.
    kept: Kept<O::Cell>,
}

impl<O: Origin> Preparation<O> {
    /// All that is open.
    fn into_kept(mut self) -> Kept<O::Cell> {
        self.outdate();
        self.kept
    }

    /// Plans again in the next step. What is open stays open.
    fn outdate(&mut self) {
        let openings = self.openings.take().into_iter().flatten();
        openings.for_each(|(opening, _)| self.kept.append(opening.kept));
    }

    fn current(&mut self) -> Option<&mut (Opening<O>, NameSet)> {
        self.openings.as_mut()?.last_mut()
    }
}

impl<O: Origin> Hub<O> {
    /// Does up to `count` parts of the moves of streams whose audiences changed: opens some of what the next one needs or, if
    /// that is open, moves it to its ledgers. Until then it is sent nothing. Returns whether streams remain.
    pub fn move_some(&mut self, origin: &mut O, count: usize, now: Moment) -> bool {
        for _ in 0..count {
            let Some(id) = self.moving.first().copied() else { break };
            if self.is_prepared(origin, id) {
                self.move_at_once(origin, id, now);
            }
        }
        self.has_moving()
    }

    /// The stream that [`Hub::move_some`] moves next.
    pub fn next_moving(&self) -> Option<StreamId> {
        self.moving.first().copied()
    }

    /// Whether streams are to be moved to other ledgers.
    pub fn has_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Whether a stream is to be moved. Until then, a request of its client moves it in one step.
    pub fn is_moving(&self, id: StreamId) -> bool {
        self.moving.contains(&id)
    }

    /// Takes what the next part of a move would open, if that takes long, like [`Hub::wanted`].
    pub fn wanted_to_move(&mut self, origin: &O) -> Option<Wanted<O>> {
        let (opening, names) = self.preparation.as_mut()?.current()?;
        self.core.wanted(origin, opening, Asked::Set(names))
    }

    /// Continues a move with what the caller has opened for it.
    pub fn opened_to_move(&mut self, opened: Opened<O>) {
        let current = self.preparation.as_mut().and_then(Preparation::current);
        self.core.opened(current.map(|(opening, _)| opening), opened);
    }

    /// Moves a stream to the ledgers of its audiences, if these have changed.
    pub(crate) fn move_at_once(&mut self, origin: &mut O, id: StreamId, now: Moment) {
        if self.moving.remove(&id)
            && let Some(stream) = self.streams.get_mut(&id)
        {
            for kind in self.core.types.clone().iter() {
                self.core.relocate(origin, stream, kind);
            }
            self.wake(id, now);
        }
        if let Some(preparation) = self.preparation.take_if(|preparation| preparation.stream == id) {
            self.held.entry(id).or_default().append(preparation.into_kept());
        }
        self.release_held(id);
    }

    /// Closes what was opened for a stream's move, when all its types have moved. Those with an outstanding response move after
    /// its answer.
    pub(crate) fn release_held(&mut self, id: StreamId) {
        let waits = |stream: &Stream<O::Token>| stream.watches.iter().any(|watch| watch.moving);
        if !self.streams.get(&id).is_some_and(|stream| waits(stream))
            && let Some(kept) = self.held.remove(&id)
        {
            self.core.release(kept);
        }
    }

    /// Drops what was opened for the move of a stream that has ended.
    pub(crate) fn forget_move(&mut self, id: StreamId) {
        self.moving.remove(&id);
        let preparation = self.preparation.take_if(|preparation| preparation.stream == id);
        let kept = preparation.map(Preparation::into_kept).into_iter().chain(self.held.remove(&id));
        kept.for_each(|kept| self.core.release(kept));
    }

    /// Records that the audiences of these streams have changed.
    pub(crate) fn begin_moves(&mut self, ids: Vec<StreamId>) {
        if let Some(preparation) = self.preparation.as_mut().filter(|one| ids.contains(&one.stream)) {
            preparation.outdate();
        }
        self.moving.extend(ids);
    }

    /// Begins the moves that are due because lenses changed.
    pub(crate) fn begin_waiting_moves(&mut self) {
        if !self.core.waiting_moves.is_empty() {
            let moving = std::mem::take(&mut self.core.waiting_moves);
            self.begin_moves(moving);
        }
    }

    /// Does a part of the preparation of a move. Returns whether nothing is left.
    fn is_prepared(&mut self, origin: &mut O, id: StreamId) -> bool {
        if self.preparation.as_ref().is_some_and(|preparation| preparation.stream != id)
            && let Some(other) = self.preparation.take()
        {
            self.core.release(other.into_kept());
        }
        let Some(stream) = self.streams.get(&id) else { return true };
        let empty = || Preparation { stream: id, openings: None, kept: Kept::default() };
        let preparation = self.preparation.get_or_insert_with(empty);
        let Some(openings) = &mut preparation.openings else {
            let planned = self.core.plan_move(origin, stream);
            let is_prepared = planned.is_empty();
            preparation.openings = Some(planned);
            // The caller may open the first catalogue on another thread.
            return is_prepared;
        };
        if let Some((opening, names)) = openings.last_mut()
            && self.core.open_some(origin, opening, Asked::Set(names))
        {
            preparation.kept.append(std::mem::take(&mut opening.kept));
            openings.pop();
        }
        openings.is_empty()
    }
}

impl<O: Origin> Core<O> {
    /// The cells that a stream needs at its new audiences, by type.
    fn plan_move(&mut self, origin: &mut O, stream: &Stream<O::Token>) -> Vec<(Opening<O>, NameSet)> {
        let mut openings = Vec::new();
        for watch in stream.watches.iter() {
            let kind = watch.kind;
            let (shared, own) = self.keys(origin, stream, kind);
            let is_in_place = |core: &Core<O>, key: &LedgerKey<O>| {
                core.known(key).is_some_and(|id| watch.places().any(|place| place.ledger == id))
            };
            let moves = !is_in_place(self, &shared) || own.as_ref().is_some_and(|own| !is_in_place(self, own));
            if !moves || self.is_served(watch, (&shared, own.as_ref())) {
                continue;
            }
            let (mut opening, names) = (Opening::new(kind), self.names(watch).unwrap_or_default());
            let mut of_own = 0;
            for ledger in own.into_iter().chain([shared]) {
                let is_own = ledger.own;
                if is_in_place(self, &ledger) || is_own && self.has_few_names(origin, &ledger, Asked::Set(&names), None)
                {
                    continue;
                }
                match kind.is_collected() {
                    true => names.iter().for_each(|name| self.add_list(&mut opening, &ledger, name)),
                    false => self.add_names(&mut opening, Asked::Set(&names), ledger),
                }
                if is_own {
                    of_own = opening.sources.len();
                }
            }
            self.open_own_lists(origin, &mut opening, of_own);
            if !opening.sources.is_empty() || !opening.kept.is_empty() {
                openings.push((opening, names));
            }
        }
        openings
    }

    /// Whether another stream has the names of a watch in the ledgers of these audiences. Lists are few and not looked at.
    fn is_served(&self, watch: &Watch, (shared, own): (&LedgerKey<O>, Option<&LedgerKey<O>>)) -> bool {
        let Some(identity) = self.identity(watch).filter(|_| !watch.kind.is_collected()) else { return false };
        match own {
            None => self.known(shared).is_some_and(|id| self.ledgers[id].selected(identity).is_some()),
            Some(_) => self.is_divided((shared, own), std::iter::once(identity)),
        }
    }
}
