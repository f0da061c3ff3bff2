//! The entries of a map under construction.

use std::collections::HashMap;
use std::sync::Arc;

use crate::yaml::node::Entry;

/// Entries of a map with unique keys, and an index of the keys.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) list: Vec<Entry>,
    /// Positions in the list. Only long lists have an index: most maps are short.
    index: HashMap<Arc<str>, usize>,
}

impl Entries {
    const SHORT: usize = 16;

    /// The entry of a key.
    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        if self.list.len() <= Entries::SHORT {
            return self.list.iter().find(|e| &*e.key == key);
        }
        self.index.get(key).map(|i| &self.list[*i])
    }

    /// Adds an entry with a new key.
    pub(super) fn push(&mut self, entry: Entry) {
        self.list.push(entry);
        if self.list.len() > Entries::SHORT {
            let known = self.index.len();
            let new = self.list.iter().enumerate().skip(known);
            self.index.extend(new.map(|(i, e)| (e.key.clone(), i)));
        }
    }
}
