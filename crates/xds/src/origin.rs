//! Where resources come from: the derived world, as far as serving can see it.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType};

use crate::Name;

/// The derived world, seen from serving. One thread makes all calls.
///
/// Catalogues and resources are subscribed to by opening them: from then on until they are closed, every commit's
/// [`Changes`] tell of them. Opening the same thing twice gives the same cell, which must be closed twice.
pub trait Origin {
    /// A connected proxy.
    type Token: Copy + Eq + Hash + Debug;
    /// Something that is open. Catalogues and resources share one space of cells.
    type Cell: Copy + Eq + Hash + Debug;
    /// What proxies must share to receive equal bytes of one type.
    type Audience: Clone + Eq + Hash + Debug;
    /// What one resource is derived from.
    type Key: Clone + PartialEq + Debug;
    /// The list of what an audience gets of a wildcard type or of a collection; cheap to clone.
    type Catalogue: Clone;

    /// Adds a proxy. Its audiences are known when this returns.
    ///
    /// # Errors
    /// Why this proxy is not served; the client reads it.
    fn connect(&mut self, proxy: &Arc<Proxy>) -> Result<Self::Token, String>;

    /// Forgets a proxy.
    fn disconnect(&mut self, token: Self::Token);

    /// What the proxy must share with another one to get the same resources of this type.
    fn audience(&self, token: Self::Token, kind: ResourceType) -> Self::Audience;

    /// A client has collections of single endpoints of these names from an earlier stream, and does not say what it has of
    /// them, so that it could not be told what of it has gone. Makes the proxy's audiences ones in which collections have
    /// other names, if theirs are among these. Whether that was needed.
    fn renew_collections(&mut self, token: Self::Token, had: &[Name]) -> bool;

    /// Opens the list of what an audience gets of a listed type: of a wildcard type all, with an empty `collection`; else
    /// what is in the collection, with the full names. `None`: nothing, and that will not change.
    fn open_catalogue(
        &mut self,
        kind: ResourceType,
        audience: &Self::Audience,
        collection: &Name,
    ) -> Option<(Self::Cell, Self::Catalogue)>;

    /// The rows of a catalogue, ascending by name; no name occurs twice.
    fn rows(catalogue: &Self::Catalogue) -> &[(Name, Self::Key)];

    /// What a name of a named type means for an audience. The answer holds as long as the audience exists: a name that
    /// may come to life later has a key whose resource is absent now. `None`: this can never be a name.
    fn resolve(&self, kind: ResourceType, audience: &Self::Audience, name: &Name) -> Option<Self::Key>;

    /// Opens a resource.
    fn open(&mut self, key: &Self::Key) -> (Self::Cell, Option<Resource>);

    /// Opens many resources, as [`Origin::open`] does one by one: what has to be derived for them may be derived together.
    fn open_all(&mut self, keys: &[&Self::Key]) -> Vec<(Self::Cell, Option<Resource>)> {
        keys.iter().map(|key| self.open(key)).collect()
    }

    /// Closes what was opened, once for each opening.
    fn close(&mut self, cell: Self::Cell);
}

/// What a commit changed of what is open.
pub struct Changes<O: Origin + ?Sized> {
    /// Resources that differ now; `None`: it is gone.
    pub resources: Vec<(O::Cell, Option<Resource>)>,
    /// Catalogues that differ now.
    pub catalogues: Vec<(O::Cell, O::Catalogue)>,
    /// Proxies of which an audience differs now.
    pub moved: Vec<O::Token>,
}

impl<O: Origin + ?Sized> Changes<O> {
    /// Whether nobody needs to be told.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.catalogues.is_empty() && self.moved.is_empty()
    }
}

impl<O: Origin + ?Sized> Default for Changes<O> {
    fn default() -> Changes<O> {
        Changes {
            resources: Vec::new(),
            catalogues: Vec::new(),
            moved: Vec::new(),
        }
    }
}
