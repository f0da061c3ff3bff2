//! The source of resources.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType};
use rustc_hash::FxHashSet;

use crate::{Name, Status};

/// The source of resources. One thread makes all calls.
///
/// Opening a catalogue or a resource subscribes to it: every commit's [`Changes`] report its changes until it is closed.
/// Opening the same one twice returns the same cell, which must be closed twice.
pub trait Origin {
    /// A connected proxy.
    type Token: Copy + Eq + Hash + Debug;
    /// An open catalogue or resource.
    type Cell: Copy + Eq + Hash + Debug;
    /// The facts that proxies must share to receive equal resources of one type.
    type Audience: Clone + Eq + Hash + Debug;
    /// The key of a resource.
    type Key: Clone + PartialEq + Debug;
    /// The list of the resources of a wildcard type or of a collection; cheap to clone.
    type Catalogue: Clone;

    /// Adds proxies. Returns a result for each, in order. Their audiences are available when this returns. An error is the
    /// status that ends the stream of a proxy that is not served.
    fn connect(&mut self, proxies: &[Arc<Proxy>]) -> Vec<Result<Self::Token, Status>>;

    /// Removes proxies.
    fn disconnect(&mut self, tokens: &[Self::Token]);

    /// The audience of a proxy for a type.
    fn audience(&self, token: Self::Token, kind: ResourceType) -> Self::Audience;

    /// The audience of the proxy's own resources, which it is sent in addition to those of [`Origin::audience`]. `None` if it
    /// has none. Of a type with catalogues, its catalogues have precedence: their rows replace those of the other one with
    /// the same names, or hide them ([`Origin::hides`]). Of a named type, it has the names that it resolves, and the other
    /// one all others.
    fn own_audience(&self, _token: Self::Token, _kind: ResourceType) -> Option<Self::Audience> {
        None
    }

    /// Opens the catalogue of an audience: of a wildcard type (with an empty `collection`), or of a collection, with full
    /// names. `None`: the audience has no catalogue and never will.
    fn open_catalogue(
        &mut self,
        kind: ResourceType,
        audience: &Self::Audience,
        collection: &Name,
    ) -> Option<(Self::Cell, Self::Catalogue)>;

    /// The rows of a catalogue, ascending by name; no name occurs twice.
    fn rows(catalogue: &Self::Catalogue) -> &[(Name, Self::Key)];

    /// Whether a row has no resource: it hides the resource of its name in the catalogue of [`Origin::audience`]. Only
    /// catalogues of own audiences have such rows.
    fn hides(_key: &Self::Key) -> bool {
        false
    }

    /// The key of a name for an audience. It is valid as long as the audience exists: a name that may exist later has a key
    /// whose resource is absent now. `None`: the name can never exist.
    fn resolve(&self, kind: ResourceType, audience: &Self::Audience, name: &Name) -> Option<Self::Key>;

    /// The part of a name without which it cannot exist for any audience, such as a hostname. It is called for each name of a
    /// subscription, so that it must be cheap.
    fn requires<'n>(&self, _kind: ResourceType, _name: &'n str) -> Option<&'n str> {
        None
    }

    /// The parts ([`Origin::requires`]) of which each name that this own audience of a named type resolves requires one, unless it
    /// requires nothing. `None`: they are not known.
    fn own_required(&self, _kind: ResourceType, _audience: &Self::Audience) -> Option<Arc<BTreeSet<Name>>> {
        None
    }

    /// Whether something that a name requires is there. Otherwise the name is not opened until [`Changes::appeared`] has it.
    fn has(&self, _required: &str) -> bool {
        true
    }

    /// Whether a name may exist now: what it requires holds.
    fn may_exist(&self, kind: ResourceType, name: &str) -> bool {
        self.requires(kind, name).is_none_or(|required| self.has(required))
    }

    /// Opens a resource.
    fn open(&mut self, key: &Self::Key) -> (Self::Cell, Option<Resource>);

    /// Opens many resources, like [`Origin::open`], deriving them together.
    fn open_all(&mut self, keys: &[&Self::Key]) -> Vec<(Self::Cell, Option<Resource>)> {
        keys.iter().map(|key| self.open(key)).collect()
    }

    /// Whether what an open cell holds could not be derived, or only a part of it, because of a bug. Its absent resource is then
    /// neither sent nor removed, and its catalogue removes nothing.
    fn failed(&self, _cell: Self::Cell) -> bool {
        false
    }

    /// Closes a cell. Call it once for each time that the cell was opened.
    fn close(&mut self, cell: Self::Cell);
}

/// The changes of open catalogues and resources by a commit.
pub struct Changes<O: Origin + ?Sized> {
    /// Changed resources; `None`: removed.
    pub resources: Vec<(O::Cell, Option<Resource>)>,
    /// Changed catalogues.
    pub catalogues: Vec<(O::Cell, O::Catalogue)>,
    /// Proxies of which an audience changed.
    pub moved: Vec<O::Token>,
    /// New values of [`Origin::requires`]: names that require them may exist now.
    pub appeared: FxHashSet<Name>,
}

impl<O: Origin + ?Sized> Changes<O> {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.catalogues.is_empty() && self.moved.is_empty() && self.appeared.is_empty()
    }

    /// Adds the changes of the next commit.
    pub fn append(&mut self, next: Self) {
        self.resources.extend(next.resources);
        self.catalogues.extend(next.catalogues);
        self.moved.extend(next.moved);
        self.appeared.extend(next.appeared);
    }
}

impl<O: Origin + ?Sized> Default for Changes<O> {
    fn default() -> Changes<O> {
        Changes { resources: Vec::new(), catalogues: Vec::new(), moved: Vec::new(), appeared: FxHashSet::default() }
    }
}
