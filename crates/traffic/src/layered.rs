//! Layered rows: a base that most clients share, in which a client replaces and adds few hosts.
//!
//! Route tables and clusters of clients with unrestricted visibility are derived like this: the base once for all clients,
//! each client's row from the base and its own hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use names::Hostname;

/// The hosts of the shared base, in any order.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Base(pub(crate) Vec<(Hostname, Differs)>);

/// The clients that may have another row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Differs {
    /// Any client, depending on labels.
    ForAll,
    /// Clients of these namespaces.
    For(BTreeSet<Arc<str>>),
}

impl Differs {
    fn concerns(&self, namespace: &str) -> bool {
        match self {
            Differs::ForAll => true,
            Differs::For(names) => !names.is_empty() && names.contains(namespace),
        }
    }
}

/// The hosts that a client has itself.
pub(crate) struct Overlay<'a> {
    /// Whether the client replaces each row of the base.
    pub(crate) replaced: Vec<bool>,
    /// Further hosts, which are not in the base.
    pub(crate) added: BTreeSet<&'a Hostname>,
}

impl Base {
    /// The overlay of a client in this namespace, which has the `private` hosts itself.
    pub(crate) fn overlay<'a>(&self, namespace: &str, private: impl IntoIterator<Item = &'a Hostname>) -> Overlay<'a> {
        let mut added: BTreeSet<&Hostname> = private.into_iter().collect();
        let mut replaced = Vec::with_capacity(self.0.len());
        for (host, differs) in &self.0 {
            let is_private = !added.is_empty() && added.remove(host);
            replaced.push(is_private || differs.concerns(namespace));
        }
        Overlay { replaced, added }
    }
}
