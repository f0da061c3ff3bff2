//! Where resources come from: directories of files, a Kubernetes API, another control plane; and several of them joined.
//! The addresses of names that they mention come from the system's resolver.
//!
//! A source turns what it finds into [`Change`]s: objects that are new or different, keys of objects that are gone, and
//! what is wrong. It knows nothing of what is derived from them.

pub mod aggregate;
pub mod clusters;
mod directory;
pub mod files;
pub mod kubernetes;
pub mod names;
mod pending;
mod reader;
pub mod selection;
pub mod xds;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{AnyObject, Diagnostic, ObjectKey};

/// What changed in a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Objects that are new or differ from before.
    pub upserts: Vec<AnyObject>,
    /// Objects that are gone.
    pub deletes: Vec<ObjectKey>,
    /// All that is to be said, by file, of the files in which that changed; an empty list takes back what was said.
    pub diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Change {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.deletes.is_empty() && self.diagnostics.is_empty()
    }
}
