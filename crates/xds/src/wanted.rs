//! What the caller opens for a request, on a thread of its choice.

use crate::core::{Core, LedgerKey};
use crate::hub::Unfinished;
use crate::opening::{Asked, Opening, Source, cost};
use crate::{Hub, Name, Origin, StreamId};

/// So many names are opened at once, because it takes longer to begin beside.
const FEW: usize = 16;

/// A catalogue.
pub(crate) struct List<O: Origin> {
    pub(crate) ledger: LedgerKey<O>,
    pub(crate) collection: Name,
}

/// The result of [`Origin::open_catalogue`], and whether it could not be derived completely ([`Origin::failed`]).
pub(crate) type OpenedList<O> = Option<(<O as Origin>::Cell, <O as Origin>::Catalogue, bool)>;

impl<O: Origin> List<O> {
    pub(crate) fn open(&self, origin: &mut O) -> OpenedList<O> {
        let LedgerKey { kind, audience, .. } = &self.ledger;
        let (cell, catalogue) = origin.open_catalogue(*kind, audience, &self.collection)?;
        Some((cell, catalogue, origin.failed(cell)))
    }
}

/// What a request waits for and takes long to derive.
pub struct Wanted<O: Origin>(Parts<List<O>, O::Key>);

/// What was opened.
pub struct Opened<O: Origin>(Parts<(List<O>, OpenedList<O>), O::Cell>);

enum Parts<L, C> {
    List(L),
    Cells(Vec<C>),
}

impl<O: Origin> Wanted<O> {
    /// Opens it. Pass the result to [`Hub::opened`].
    pub fn open(self, origin: &mut O) -> Opened<O> {
        Opened(match self.0 {
            Parts::List(list) => {
                let opened = list.open(origin);
                Parts::List((list, opened))
            }
            Parts::Cells(keys) => {
                let keys: Vec<&O::Key> = keys.iter().collect();
                Parts::Cells(origin.open_all(&keys).into_iter().map(|(cell, _)| cell).collect())
            }
        })
    }
}

impl<O: Origin> Hub<O> {
    /// Takes what the next step of a stream's request would open, if that may take long: a catalogue, some of its rows, or
    /// some names. Without this call, [`Hub::proceed`] opens it.
    pub fn wanted(&mut self, origin: &O, id: StreamId) -> Option<Wanted<O>> {
        let (opening, request) = self.unfinished.get_mut(&id)?.opens()?;
        self.core.wanted(origin, opening, Asked::Request(request))
    }

    /// Continues a request with what the caller has opened for it.
    pub fn opened(&mut self, id: StreamId, opened: Opened<O>) {
        let opening = self.unfinished.get_mut(&id).and_then(Unfinished::opens).map(|(opening, _)| opening);
        self.core.opened(opening, opened);
    }
}

impl<O: Origin> Core<O> {
    /// Takes what the next step of an opening would open, if that may take long.
    pub(crate) fn wanted(&mut self, origin: &O, opening: &mut Opening<O>, asked: Asked<'_>) -> Option<Wanted<O>> {
        self.join(opening, asked);
        if let Some(Source::List(list)) = opening.sources.pop_if(|source| matches!(source, Source::List(_))) {
            return Some(Wanted(Parts::List(list)));
        }
        let mut left = self.limits.opened_together;
        let keys = match opening.sources.last()? {
            Source::Rows(ledger, collection) => self.ledgers[*ledger].next_keys(collection, left),
            Source::Names(names) if cost(opening.kind) == 1 => {
                let keys = self.next_keys(origin, names, asked, left).1;
                if keys.len() > FEW { keys } else { Vec::new() }
            }
            _ => self.take_keys(origin, (opening, asked), &mut left),
        };
        (!keys.is_empty()).then_some(Wanted(Parts::Cells(keys)))
    }

    /// Continues an opening with what was opened for it; `None`: it has ended meanwhile.
    pub(crate) fn opened(&mut self, opening: Option<&mut Opening<O>>, opened: Opened<O>) {
        match (opening, opened.0) {
            (Some(opening), Parts::List((list, opened))) => {
                opening.is_served = true;
                self.add_opened(opening, list, opened);
            }
            (Some(opening), Parts::Cells(cells)) => {
                // The next step adds them to their ledger.
                let is_added = cost(opening.kind) == 1 || matches!(opening.sources.last(), Some(Source::Rows(..)));
                opening.is_served = !is_added;
                opening.kept.cells.extend(cells);
            }
            (None, Parts::List((_, opened))) => {
                self.cells.close_all(opened.map(|(cell, ..)| cell).into_iter().collect());
            }
            (None, Parts::Cells(cells)) => self.cells.close_all(cells),
        }
    }
}
