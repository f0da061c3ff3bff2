//! The resources of a ledger as its lens shows them.

use model::xds::Resource;

use super::{Entry, Ledger};
use crate::cells::Cells;
use crate::quarantine::Substituted;
use crate::{Name, Origin};

impl<O: Origin> Ledger<O> {
    /// The resources that the lens changes.
    pub(crate) fn substituted(&self) -> impl Iterator<Item = (&Name, &Substituted)> {
        self.substituted.iter()
    }

    /// The change of a resource by the lens.
    pub(crate) fn substitution_of(&self, name: &str) -> Option<&Substituted> {
        self.substituted.get(name)
    }

    /// Whether an entry of the lens changes a resource.
    pub(crate) fn substitutes_by(&self, id: u64) -> bool {
        self.lens.ids.contains(&id) && self.substituted.values().any(|one| one.by.contains(&id))
    }

    /// Whether a resource is neither sent nor removed.
    pub(crate) fn withholds(&self, name: &str) -> bool {
        self.substituted.get(name).is_some_and(|one| one.resource.is_none())
    }

    /// Whether the lens replaces a resource as a whole.
    pub(crate) fn replaces_any(&self) -> bool {
        self.substituted.values().any(|one| one.whole)
    }

    /// The current resource of this name, if a client has acknowledged it; `plain` is the one without the lens.
    pub(crate) fn acknowledged<'a>(&'a self, name: &str, plain: Option<&'a Resource>) -> Option<&'a Resource> {
        let shown = || match self.substitution_of(name) {
            Some(one) => one.resource.as_ref(),
            None => plain,
        };
        (self.acked > 0 && self.acked >= self.epoch_of(name)).then(shown).flatten()
    }

    /// Whether a client has acknowledged the current resource of this name.
    pub(crate) fn is_acknowledged(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| self.acked >= entry.epoch)
    }

    /// The cell of a name.
    pub(crate) fn cell_of(&self, name: &str) -> Option<O::Cell> {
        self.entries.get(name)?.cell
    }

    /// The resource of an entry.
    pub(super) fn shown<'c>(
        &'c self,
        cells: &'c Cells<O::Cell>,
        name: &str,
        entry: &Entry<O::Cell>,
    ) -> Option<&'c Resource> {
        if !self.substituted.is_empty()
            && let Some(one) = self.substituted.get(name)
        {
            return one.resource.as_ref();
        }
        cells.get(entry.cell?)
    }

    /// Whether a resource is missing because it could not be derived.
    pub(crate) fn lacks_any(&self) -> bool {
        self.substituted.values().any(|one| one.by.is_empty() && one.resource.is_none())
    }

    /// Makes a name whose resource could not be derived show the one `before`, or nothing. Returns whether that is so.
    pub(super) fn withhold_failed(
        &mut self,
        origin: &O,
        name: &Name,
        (cell, resource): &(O::Cell, Option<Resource>),
        before: Option<&Resource>,
    ) -> bool {
        let failed = resource.is_none() && origin.failed(*cell);
        if failed {
            let shown = Substituted { resource: before.cloned(), whole: true, by: Vec::new() };
            self.substituted.insert(name.clone(), shown);
        }
        failed
    }

    /// Records the first resource of a name, and returns what the lens shows.
    pub(super) fn first_shown(&mut self, name: &Name, resource: Option<Resource>) -> Option<Resource> {
        match self.substitute(name, resource.as_ref(), None) {
            Some(shown) => Some(shown),
            None if self.withholds(name) => None,
            None => resource,
        }
    }

    /// Records whether the lens changes a resource; returns the other resource, if so. A resource that is not to be sent does
    /// not replace what the ledger showed before.
    pub(super) fn substitute(
        &mut self,
        name: &Name,
        resource: Option<&Resource>,
        before: Option<&Resource>,
    ) -> Option<Resource> {
        let mut found = self.lens.view(self.kind, resource?)?;
        found.resource = found.resource.or_else(|| before.cloned());
        let shown = found.resource.clone();
        self.substituted.insert(name.clone(), found);
        shown
    }
}
