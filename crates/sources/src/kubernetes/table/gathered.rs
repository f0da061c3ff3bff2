//! What is to be said of objects, of each the last.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{AnyObject, Diagnostic, ObjectKey};

use crate::Change;
use crate::kubernetes::{News, Seen};

/// What is to be said.
#[derive(Default, Debug)]
pub(crate) struct Gathered {
    /// What became of each object last: it is so, or it is gone.
    pub(super) changed: BTreeMap<ObjectKey, Option<AnyObject>>,
    /// What was last seen of each object that has a status; none: it is gone.
    pub(super) seen: BTreeMap<ObjectKey, Option<Seen>>,
    diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Gathered {
    /// Adds what came later.
    pub(crate) fn add(&mut self, later: Gathered) {
        self.changed.extend(later.changed);
        self.seen.extend(later.seen);
        self.diagnostics.extend(later.diagnostics);
    }

    /// Adds an object that is made here and not read from one of its kind.
    pub(crate) fn put(&mut self, object: AnyObject) {
        self.changed.insert(object.key(), Some(object));
    }

    /// Adds that such an object is gone.
    pub(crate) fn remove(&mut self, key: ObjectKey) {
        self.changed.insert(key, None);
    }

    /// Adds what is wrong in a text; nothing takes it back.
    pub(crate) fn say(&mut self, file: Arc<str>, diagnostics: Vec<Diagnostic>) {
        self.diagnostics.insert(file, diagnostics);
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.seen.is_empty() && self.diagnostics.is_empty()
    }

    /// As those who listen get it.
    pub(crate) fn into_news(self) -> News {
        let mut change = Change {
            diagnostics: self.diagnostics,
            ..Change::default()
        };
        for (key, object) in self.changed {
            match object {
                Some(object) => change.upserts.push(object),
                None => change.deletes.push(key),
            }
        }
        let mut news = News {
            change,
            ..News::default()
        };
        for (key, seen) in self.seen {
            match seen {
                Some(seen) => news.seen.push(seen),
                None => news.gone.push(key),
            }
        }
        news
    }
}
