//! The namespaces of a cluster, filtered by `discoverySelectors`.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::StringMap;
use config::mesh::LabelSelector;
use serde_json::Value;

use crate::{id, labels, put};

/// The observed namespaces.
#[derive(Default)]
pub(crate) struct Namespaces {
    /// `discoverySelectors` of the mesh configuration.
    selectors: Vec<LabelSelector>,
    /// The labels of each namespace, and whether it is not being deleted.
    known: BTreeMap<Arc<str>, (StringMap, bool)>,
}

impl Namespaces {
    /// Handles an added, changed or deleted namespace.
    pub(crate) fn see(&mut self, object: &Value, there: bool) {
        let name = id(object).1;
        let stays = object["metadata"].get("deletionTimestamp").is_none();
        put(&mut self.known, name, there.then(|| (labels(object), stays)));
    }

    pub(crate) fn select_by(&mut self, selectors: &[LabelSelector]) {
        self.selectors = selectors.to_vec();
    }

    /// Whether a namespace exists, is not being deleted, and is selected.
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|(labels, stays)| {
            *stays && (self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.matches(labels)))
        })
    }

    /// The labels of a namespace, if it exists.
    pub(crate) fn labels(&self, name: &str) -> Option<&StringMap> {
        self.known.get(name).map(|(labels, _)| labels)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.keys()
    }
}
