//! The resources that a watch subscribes to, in one or two ledgers.
//!
//! A ledger of an audience has the resources that its proxies share. A proxy may also have resources of its own (inbound
//! listeners and clusters, endpoints on its node, virtual hosts of its namespace), in a second ledger that it shares only with
//! its equals. Epochs count for all ledgers, so that a stream has one place in both. A row of the own ledger replaces or hides the
//! shared resource of its name ([`overlay`](crate::overlay)). Of a named type, the rows are the names that the own audience
//! resolves. The shared selection may have these names, too, if they are few: so clients whose own names differ share a selection.

use model::xds::Resource;

use crate::cells::{Cells, LedgerId};
use crate::ledger::{Failure, Ledger};
use crate::overlay::Overlay;
use crate::pairs::pairs;
use crate::selection::{Selection, SelectionId};
use crate::{Epoch, Name, Origin};

/// A selection of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) ledger: LedgerId,
    pub(crate) selection: SelectionId,
}

/// The epochs of the last changes of a subscription.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    /// The last addition or change.
    pub(crate) changed: Epoch,
    /// The last removal. Listed types only.
    pub(crate) removed: Epoch,
}

/// A ledger and the selected part of it.
pub(crate) struct Part<'a, O: Origin> {
    pub(crate) ledger: &'a Ledger<O>,
    pub(crate) selection: &'a Selection,
}

impl<O: Origin> Clone for Part<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Origin> Copy for Part<'_, O> {}

impl<'a, O: Origin> Part<'a, O> {
    /// Whether this part, if it is the own one, and not the shared one determines the resource of a name.
    pub(crate) fn decides(self, name: &str) -> bool {
        match self.ledger.kind.is_listed() {
            true => self.ledger.contains(name),
            false => self.selection.covers(name),
        }
    }

    /// The names that it decides.
    pub(crate) fn decided(self) -> Box<dyn Iterator<Item = &'a Name> + 'a> {
        match self.ledger.kind.is_listed() {
            true => Box::new(self.ledger.names().filter(move |name| self.selection.covers(name))),
            false => Box::new(self.selection.named()),
        }
    }
}

/// The resources that a watch subscribes to.
pub(crate) struct Subscription<'a, O: Origin> {
    shared: Part<'a, O>,
    own: Option<Part<'a, O>>,
}

impl<O: Origin> Clone for Subscription<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Origin> Copy for Subscription<'_, O> {}

impl<'a, O: Origin> Subscription<'a, O> {
    pub(crate) fn new(shared: Part<'a, O>, own: Option<Part<'a, O>>) -> Subscription<'a, O> {
        Subscription { shared, own }
    }

    /// The subscription without the other ledger.
    pub(crate) fn of(part: Part<'a, O>) -> Subscription<'a, O> {
        Subscription { shared: part, own: None }
    }

    /// The ledgers with the selected parts, the shared one first.
    pub(crate) fn parts(self) -> impl Iterator<Item = Part<'a, O>> + Clone {
        std::iter::once(self.shared).chain(self.own)
    }

    /// The ledger of the audience, with the selected part.
    pub(crate) fn shared(self) -> Part<'a, O> {
        self.shared
    }

    /// The ledger of the proxy's own resources, with the selected part.
    pub(crate) fn own(self) -> Option<Part<'a, O>> {
        self.own
    }

    /// Whether the own ledger determines the resource of this name.
    pub(crate) fn is_own(self, name: &str) -> bool {
        self.own.is_some_and(|own| own.decides(name))
    }

    /// The ledgers that may have the resource of this name. Of a named type, other streams may subscribe to it in the other
    /// ledger.
    fn parts_with(self, name: &str) -> impl Iterator<Item = Part<'a, O>> {
        let divided = self.own.is_some();
        let parts = self.own.into_iter().chain(Some(self.shared).filter(|_| !self.is_own(name)));
        parts.filter(move |part| !divided || part.selection.covers(name))
    }

    /// The two ledgers, if the rows of the own one may hide shared resources.
    pub(crate) fn overlay(self) -> Option<Overlay<'a, O>> {
        let own = self.own.filter(|own| own.ledger.kind.is_listed() || own.selection.may_hide)?;
        Some(Overlay { shared: self.shared, own })
    }

    pub(crate) fn latest(self) -> Latest {
        let latest = |epoch: fn(&Selection) -> Epoch| self.parts().map(|part| epoch(part.selection)).max();
        Latest {
            changed: latest(|selection| selection.changed).unwrap_or_default(),
            removed: latest(|selection| selection.removed).unwrap_or_default(),
        }
    }

    /// The epoch of the last addition or change before `epoch`, in which there was one.
    pub(crate) fn changed_before(self, epoch: Epoch) -> Epoch {
        let before = |one: &Selection| if one.changed == epoch { one.changed_before } else { one.changed };
        self.parts().map(|part| before(part.selection)).max().unwrap_or_default()
    }

    /// The serial of the shared selection.
    pub(crate) fn serial(self) -> u64 {
        self.shared.selection.serial
    }

    /// Whether the resource of this name is selected.
    pub(crate) fn covers(self, name: &str) -> bool {
        self.parts().any(|part| part.selection.covers(name))
    }

    /// Whether the client named this resource.
    pub(crate) fn names_one(self, name: &str) -> bool {
        self.parts().any(|part| part.selection.names_one(name))
    }

    /// Whether there is a list of its resources.
    pub(crate) fn is_listed(self) -> bool {
        self.shared.ledger.kind.is_listed()
    }

    /// The resource of this name.
    pub(crate) fn resource<'c>(self, cells: &'c Cells<O::Cell>, name: &str) -> Option<&'c Resource>
    where
        'a: 'c,
    {
        self.parts_with(name).find_map(|part| part.ledger.resource(cells, name))
    }

    /// Whether the resource of this name is neither sent nor removed.
    pub(crate) fn withholds(self, name: &str) -> bool {
        self.parts_with(name).any(|part| part.ledger.withholds(name))
    }

    /// See [`Ledger::epoch_of`].
    pub(crate) fn epoch_of(self, name: &str) -> Epoch {
        let last = self.parts_with(name).map(|part| part.ledger.epoch_of(name)).max().unwrap_or_default();
        let uncovered = self.overlay().map_or(0, |overlay| overlay.uncovered_in(name));
        last.max(uncovered)
    }

    /// The ledger's copy of a name, to share its memory.
    pub(crate) fn name(self, name: &str) -> Option<&'a Name> {
        self.parts().find_map(|part| part.ledger.name(name))
    }

    /// The worst failure of its lists.
    pub(crate) fn failure(self) -> Option<Failure> {
        self.parts().filter_map(|part| part.ledger.failure(part.selection)).max()
    }

    /// Whether a resource is missing because it could not be derived.
    pub(crate) fn lacks_any(self) -> bool {
        self.parts().any(|part| part.ledger.lacks_any())
    }

    /// A digest of the content: see [`Ledger::digest`]. It does not depend on which ledger has which resource.
    pub(crate) fn digest(self, cells: &Cells<O::Cell>) -> u64 {
        let digest = self.parts().map(|part| part.ledger.digest(part.selection)).fold(0, u64::wrapping_add);
        let hidden = self.overlay().map_or(0, |overlay| overlay.hidden_digest(cells));
        digest.wrapping_sub(hidden)
    }

    /// The version of the content.
    pub(crate) fn version(self, cells: &Cells<O::Cell>) -> String {
        format!("{:016x}", self.digest(cells))
    }

    /// The names and resources, ascending.
    pub(crate) fn live(self, cells: &'a Cells<O::Cell>) -> Box<dyn Iterator<Item = (&'a Name, &'a Resource)> + 'a> {
        self.live_from(cells, "")
    }

    /// The same, from a name on.
    pub(crate) fn live_from(
        self,
        cells: &'a Cells<O::Cell>,
        from: &'a str,
    ) -> Box<dyn Iterator<Item = (&'a Name, &'a Resource)> + 'a> {
        let shared = self.shared.ledger.live_from(cells, self.shared.selection, from);
        match self.own {
            None => Box::new(shared),
            Some(own) => {
                let hides = self.overlay().is_some() && own.ledger.len() > 0;
                let shared = shared.filter(move |(name, _)| !hides || !own.decides(name));
                let both = pairs(shared, own.ledger.live_from(cells, own.selection, from));
                Box::new(both.filter_map(|(name, shared, own)| Some((name, shared.or(own)?))))
            }
        }
    }

    /// The names, ascending, with their resources: those that are subscribed to, of a listed type those with a resource.
    pub(crate) fn all(self, cells: &Cells<O::Cell>) -> Vec<(Name, Option<Resource>)> {
        let (listed, named) = (self.shared.ledger.kind.is_listed(), self.shared.selection.names.as_ref());
        if named.is_none() || listed && !self.shared.ledger.by_name() {
            let live = self.live(cells);
            return live.map(|(name, resource)| (name.clone(), Some(resource.clone()))).collect();
        }
        let mut all: Vec<(Name, Option<Resource>)> = Vec::new();
        // The first one of a name counts.
        for part in self.own.into_iter().chain([self.shared]) {
            all.extend(part.ledger.named(cells, part.selection).map(|(name, found)| (name.clone(), found.cloned())));
        }
        if self.own.is_some() {
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
            all.dedup_by(|(one, _), (other, _)| one == other);
        }
        all
    }

    /// See [`Ledger::changed`].
    pub(crate) fn changed(self, cells: &Cells<O::Cell>, from: Epoch, upto: Epoch) -> Vec<Name> {
        match (self.overlay(), self.own) {
            (Some(overlay), _) => sorted(overlay.changes(cells, from, upto).cloned().collect()),
            (None, None) => self.shared.ledger.changed(self.shared.selection, from, upto),
            (None, Some(_)) => {
                let changes = self.parts().flat_map(|part| part.ledger.changes(part.selection, from, upto));
                sorted(changes.cloned().collect())
            }
        }
    }

    /// Whether a resource was added or changed after `from` and not after `upto`.
    pub(crate) fn has_changed(self, cells: &Cells<O::Cell>, from: Epoch, upto: Epoch) -> bool {
        match self.overlay() {
            Some(overlay) => overlay.changes(cells, from, upto).next().is_some(),
            None => self.parts().any(|part| part.ledger.changes(part.selection, from, upto).next().is_some()),
        }
    }

    /// Names that were removed after `from` and not after `upto`, and the last resource of each, if it is known. In no
    /// order; a name may occur more than once.
    pub(crate) fn removed<'c>(
        self,
        cells: &'c Cells<O::Cell>,
        from: Epoch,
        upto: Epoch,
    ) -> Box<dyn Iterator<Item = (&'a Name, Option<&'c Resource>)> + 'c>
    where
        'a: 'c,
    {
        match self.overlay() {
            Some(overlay) => Box::new(overlay.removed(cells, from, upto)),
            None => Box::new(self.parts().flat_map(move |part| {
                let removed = part.ledger.removed(part.selection, from, upto);
                removed.filter(move |(_, tomb)| tomb.concerns(from)).map(|(name, tomb)| (name, tomb.last.as_ref()))
            })),
        }
    }

    /// The names in these collections.
    pub(crate) fn in_collections(self, cells: &Cells<O::Cell>, collections: &[Name]) -> Vec<Name> {
        let names = self.parts().flat_map(|part| part.ledger.in_collections(collections));
        sorted(names.filter(|name| self.resource(cells, name).is_some()).collect())
    }
}

fn sorted(mut names: Vec<Name>) -> Vec<Name> {
    names.sort_unstable();
    names.dedup();
    names
}
