//! What the caller opens for a request, on a thread of its choice.

use model::xds::ResourceType;

use crate::opening::Source;
use crate::{Hub, Name, Origin, StreamId};

/// A catalogue.
pub(crate) struct List<O: Origin> {
    pub(crate) kind: ResourceType,
    pub(crate) audience: O::Audience,
    pub(crate) collection: Name,
}

/// The result of [`Origin::open_catalogue`].
pub(crate) type OpenedList<O> = Option<(<O as Origin>::Cell, <O as Origin>::Catalogue)>;

impl<O: Origin> List<O> {
    pub(crate) fn open(&self, origin: &mut O) -> OpenedList<O> {
        origin.open_catalogue(self.kind, &self.audience, &self.collection)
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
    /// Takes what the next step of a stream's request would open, if that takes long: a catalogue, or resources that consist of
    /// many others. Without this call, [`Hub::proceed`] opens it.
    pub fn wanted(&mut self, origin: &O, id: StreamId) -> Option<Wanted<O>> {
        let (opening, request) = self.openings.get_mut(&id)?;
        while opening.sources.pop_if(|source| self.core.is_opened(opening.kind, source, request)).is_some() {}
        if let Some(Source::List(list)) = opening.sources.pop_if(|source| matches!(source, Source::List(_))) {
            return Some(Wanted(Parts::List(list)));
        }
        if opening.sources.last()?.cost(opening.kind) == 1 {
            return None;
        }
        let mut left = self.core.limits.opened_together;
        let keys = self.core.take_keys(origin, (opening, request), &mut left);
        (!keys.is_empty()).then_some(Wanted(Parts::Cells(keys)))
    }

    /// Continues a request with what the caller has opened for it.
    pub fn opened(&mut self, id: StreamId, opened: Opened<O>) {
        match (self.openings.get_mut(&id), opened.0) {
            (Some((opening, _)), Parts::List((list, opened))) => opening.add_opened(list, opened),
            (Some((opening, _)), Parts::Cells(cells)) => opening.cells.extend(cells),
            // The stream has ended.
            (None, Parts::List((_, opened))) => {
                self.core.cells.close_all(opened.map(|(cell, _)| cell).into_iter().collect());
            }
            (None, Parts::Cells(cells)) => self.core.cells.close_all(cells),
        }
    }
}
