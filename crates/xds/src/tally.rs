//! How many clients run what was derived from something: the answers that clients gave, counted for cells.
//!
//! A stream's place in a ledger says what it has accepted, so a count needs no memory of its own. Streams that accepted
//! everything are not looked at singly: each selection's members are a set of bits, from which those that lag behind or
//! refused are taken out. A question costs a pass over such sets for each ledger that its cells are in, not for each
//! stream.

mod bits;
mod view;

use std::sync::Arc;

use model::xds::ResourceType;
use rustc_hash::FxHashMap;

use crate::cells::LedgerId;
use crate::ledger::Ledger;
use crate::watch::Watch;
use crate::{Epoch, Hub, Name, Origin, StreamId};
use bits::Bits;
use view::View;

/// What happened that may have changed a [`Tally`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// A client accepted a response.
    pub answered: bool,
    /// A client refused a response.
    pub refused: bool,
    /// Clients came, went, or see something else.
    pub members: bool,
}

/// Asks how many clients run what was derived from one thing.
#[derive(Clone, Debug)]
pub struct Question<C> {
    /// Resources that were derived from it. A client that gets any of them counts.
    pub resources: Vec<C>,
    /// Catalogues of which every client counts.
    pub catalogues: Vec<C>,
    /// Catalogues of which clients count if something in it changed in the epoch `since`.
    pub maybe: Vec<C>,
    /// The epoch ([`Hub::epoch`]) in which the thing itself changed last. What changed later, changed for other reasons,
    /// and is not waited for.
    pub since: Epoch,
}

/// How many clients run something. A client that refuses one part of it and has not answered for another refuses it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Those that get any of it.
    pub total: usize,
    /// Those that have accepted all of it that they get.
    pub running: usize,
    /// Those that refused a part of it, and have not accepted it since.
    pub refused: usize,
    /// Those that have not answered yet.
    pub pending: usize,
    /// One of the refusals: that of the first client by name.
    pub objection: Option<Objection>,
}

/// A client's refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Objection {
    /// Who.
    pub proxy: Arc<str>,
    /// Of which type.
    pub kind: ResourceType,
    /// Of which resources: those that its words name, or the one that was asked for.
    pub resources: Vec<Arc<str>>,
    /// Its words.
    pub message: Arc<str>,
}

impl<O: Origin> Hub<O> {
    /// Counts changes that were applied; for [`Question::since`].
    pub fn epoch(&self) -> u64 {
        self.core.epoch
    }

    /// What happened since this was asked last.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.core.news)
    }

    /// Answers questions. Many at once cost less than each by itself.
    pub fn tally(&self, questions: &[Question<O::Cell>]) -> Vec<Tally> {
        let mut ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let places = ids.iter().zip(0..).map(|(id, place)| (*id, place)).collect();
        let mut count = Count {
            hub: self,
            places,
            views: FxHashMap::default(),
            total: Bits::new(ids.len()),
            pending: Bits::new(ids.len()),
            refused: Bits::new(ids.len()),
            objection: None,
            ids,
        };
        questions.iter().map(|question| count.answer(question)).collect()
    }
}

/// A part of a question: a name of a ledger, or all of them, from an epoch on.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) name: Option<&'a Name>,
    /// What changed in this epoch or before must run.
    pub(crate) due: Epoch,
}

/// Questions being answered, one after the other.
struct Count<'h, O: Origin> {
    hub: &'h Hub<O>,
    ids: Vec<StreamId>,
    places: FxHashMap<StreamId, u32>,
    views: FxHashMap<LedgerId, View<'h>>,
    /// Of the question at hand.
    total: Bits,
    pending: Bits,
    refused: Bits,
    objection: Option<Refuser>,
}

/// The stream whose objection is shown.
struct Refuser {
    proxy: Arc<str>,
    stream: StreamId,
    kind: ResourceType,
    asked: Option<Name>,
}

impl<'h, O: Origin> Count<'h, O> {
    fn answer(&mut self, question: &Question<O::Cell>) -> Tally {
        self.total.clear();
        self.pending.clear();
        self.refused.clear();
        self.objection = None;
        let hub = self.hub;
        for cell in &question.resources {
            for (ledger, name) in hub.core.cells.users(*cell) {
                let due = hub.core.ledgers[*ledger].epoch_of(name).min(question.since);
                self.ask(*ledger, Ask { name: Some(name), due });
            }
        }
        for (cell, certain) in tagged(&question.catalogues, true).chain(tagged(&question.maybe, false)) {
            let Some(id) = hub.core.catalogues.get(cell).copied() else {
                continue;
            };
            let mut changed = hub.core.ledgers[id].changed_in(question.since).peekable();
            if certain && changed.peek().is_none() {
                // Its own change was long ago or made no difference here: whoever has accepted anything runs it.
                self.ask(id, Ask { name: None, due: 1 });
            }
            for name in changed {
                let due = question.since;
                self.ask(id, Ask { name: Some(name), due });
            }
        }
        self.pending.subtract(&self.refused);
        let (total, pending, refused) = (self.total.count(), self.pending.count(), self.refused.count());
        Tally {
            total,
            running: total - pending - refused,
            refused,
            pending,
            objection: self.objection.take().and_then(|refuser| self.words_of(refuser)),
        }
    }

    fn ask(&mut self, id: LedgerId, ask: Ask<'h>) {
        let hub = self.hub;
        let places = &self.places;
        let ledger: &Ledger<O> = &hub.core.ledgers[id];
        let view = self
            .views
            .entry(id)
            .or_insert_with(|| View::of(ledger, places, |id| hub.watch(id, ledger.kind)));
        view.add(&ask, &mut self.total, &mut self.pending, |place| {
            self.refused.insert(place);
            let stream = self.ids[place as usize];
            let Some(proxy) = hub.streams.get(&stream).map(|stream| &stream.proxy.id) else {
                return;
            };
            let first = self.objection.as_ref().is_none_or(|first| {
                // Of one proxy's objections, the one of the type that is sent first.
                (proxy, ledger.kind) < (&first.proxy, first.kind)
            });
            if first {
                self.objection = Some(Refuser {
                    proxy: proxy.clone(),
                    stream,
                    kind: ledger.kind,
                    asked: ask.name.cloned(),
                });
            }
        });
    }

    fn words_of(&self, refuser: Refuser) -> Option<Objection> {
        let watch = self.hub.watch(refuser.stream, refuser.kind)?;
        let named = watch.complaint.as_ref().map(|complaint| complaint.names.clone());
        let resources = match named {
            Some(named) if !named.is_empty() => named,
            _ => refuser.asked.into_iter().collect(),
        };
        Some(Objection {
            proxy: refuser.proxy,
            kind: refuser.kind,
            resources,
            message: watch.error.as_ref()?.message.clone(),
        })
    }
}

impl<O: Origin> Hub<O> {
    fn watch(&self, id: StreamId, kind: ResourceType) -> Option<&Watch> {
        self.streams.get(&id)?.watch(kind)
    }
}

fn tagged<C>(cells: &[C], certain: bool) -> impl Iterator<Item = (&C, bool)> {
    cells.iter().map(move |cell| (cell, certain))
}
