//! The content of selections.

use std::ops::Bound;

use model::xds::Resource;

use super::{Entry, Ledger, select};
use crate::cells::Cells;
use crate::name_set::NameSet;
use crate::pairs::pairs;
use crate::selection::Selection;
use crate::subscription::Part;
use crate::{Name, Origin};

impl<O: Origin> Ledger<O> {
    /// The names and resources of a selection, ascending.
    pub(crate) fn live<'a>(
        &'a self,
        cells: &'a Cells<O::Cell>,
        selection: &'a Selection,
    ) -> impl Iterator<Item = (&'a Name, &'a Resource)> + 'a {
        self.live_from(cells, selection, "")
    }

    /// The same, from a name on.
    pub(crate) fn live_from<'a>(
        &'a self,
        cells: &'a Cells<O::Cell>,
        selection: &'a Selection,
        from: &'a str,
    ) -> impl Iterator<Item = (&'a Name, &'a Resource)> + 'a {
        self.rows_from(selection, from).filter_map(|(name, entry)| Some((name, self.shown(cells, name, entry)?)))
    }

    /// The names of a selection of names, ascending, and their resources.
    pub(crate) fn named<'a>(
        &'a self,
        cells: &'a Cells<O::Cell>,
        selection: &'a Selection,
    ) -> impl Iterator<Item = (&'a Name, Option<&'a Resource>)> + 'a {
        self.found_from(selection, "")
            .map(|(name, entry)| (name, entry.and_then(|entry| self.shown(cells, name, entry))))
    }

    /// The names of a selection of names, ascending, from one on, with their entries.
    fn found_from<'a>(
        &'a self,
        selection: &'a Selection,
        from: &str,
    ) -> impl Iterator<Item = (&'a Name, Option<&'a Entry<O::Cell>>)> + 'a {
        let names = selection.names.as_ref().map_or(&[][..], NameSet::as_slice);
        let names = &names[names.partition_point(|name| **name < *from)..];
        select::found(&self.entries, names.iter()).map(|(name, row)| (name, row.map(|(_, entry)| entry)))
    }

    /// The entries of a selection, ascending.
    fn rows<'a>(&'a self, selection: &'a Selection) -> Box<dyn Iterator<Item = (&'a Name, &'a Entry<O::Cell>)> + 'a> {
        self.rows_from(selection, "")
    }

    /// The entries of a selection, ascending, from a name on.
    fn rows_from<'a>(
        &'a self,
        selection: &'a Selection,
        from: &'a str,
    ) -> Box<dyn Iterator<Item = (&'a Name, &'a Entry<O::Cell>)> + 'a> {
        match &selection.names {
            // Names that other streams subscribe to are not a catalogue.
            None if self.by_name() => Box::new(std::iter::empty()),
            None => Box::new(self.entries.range::<str, _>((Bound::Included(from), Bound::Unbounded))),
            Some(names) if self.kind.is_collected() => {
                Box::new(names.iter().flat_map(move |collection| self.members_from(collection, from)))
            }
            Some(_) => Box::new(self.found_from(selection, from).filter_map(|(name, entry)| Some((name, entry?)))),
        }
    }
}

/// The names whose resources are not the same in two selections, ascending. A name with one cell in both is not looked at.
pub(crate) fn differing<O: Origin>(cells: &Cells<O::Cell>, old: Part<'_, O>, new: Part<'_, O>) -> Vec<Name> {
    let shows_cell = |part: Part<'_, O>, name: &Name| !part.ledger.substituted.contains_key(name);
    let version = |part: Part<'_, O>, name: &str, entry: Option<&Entry<O::Cell>>| {
        part.ledger.shown(cells, name, entry?).map(Resource::version)
    };
    let is_same = |name: &Name, one: Option<&Entry<O::Cell>>, other: Option<&Entry<O::Cell>>| match (one, other) {
        (Some(one), Some(other)) if one.cell == other.cell && shows_cell(old, name) && shows_cell(new, name) => true,
        _ => version(old, name, one) == version(new, name, other),
    };
    let rows = pairs(old.ledger.rows(old.selection), new.ledger.rows(new.selection));
    rows.filter(|(name, one, other)| !is_same(name, *one, *other)).map(|(name, ..)| name.clone()).collect()
}
