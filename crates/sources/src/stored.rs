//! The objects of a store as a source: compared with those that were emitted before, like those of a Kubernetes API.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::schema::definitions;
use config::{ChangeSet, Kind, ParseOptions};
use serde::de::DeserializeSeed as _;

use crate::kubernetes::event::Raw;
use crate::kubernetes::slim::Keep;
use crate::kubernetes::table::{ReadContext, Table};
use crate::kubernetes::trim::Texts;

/// The objects of every kind of the mesh.
pub struct StoredObjects {
    kinds: BTreeMap<Kind, (Keep, Table)>,
    texts: Texts,
    options: ParseOptions,
    cluster: Arc<str>,
}

impl Default for StoredObjects {
    fn default() -> StoredObjects {
        let kinds = definitions().iter().filter_map(|definition| {
            let kind = definition.mesh?;
            Some((kind, (Keep::of(kind), Table::new(kind, definition))))
        });
        StoredObjects {
            kinds: kinds.collect(),
            texts: Texts::default(),
            options: ParseOptions::default().degrading(),
            cluster: Arc::default(),
        }
    }
}

impl StoredObjects {
    /// Starts a list of all objects.
    pub fn begin(&mut self) {
        self.kinds.values_mut().for_each(|(_, table)| table.begin());
    }

    /// Ends a list: deletes the objects that it did not contain.
    pub fn listed(&mut self) {
        self.kinds.values_mut().for_each(|(_, table)| table.listed());
    }

    /// Adds or updates an object. Stored objects always parse.
    pub fn upsert(&mut self, kind: Kind, json: &[u8]) {
        let Some((keep, table)) = self.kinds.get_mut(&kind) else {
            return;
        };
        let read = (&*keep).deserialize(&mut serde_json::Deserializer::from_slice(json));
        let mut context =
            ReadContext { options: &self.options, revision: None, texts: &mut self.texts, cluster: &self.cluster };
        if let Some(raw) = read.ok().and_then(Raw::of) {
            table.upsert(raw, &mut context);
        }
    }

    /// Deletes an object.
    pub fn delete(&mut self, kind: Kind, namespace: &Arc<str>, name: &Arc<str>) {
        if let Some((_, table)) = self.kinds.get_mut(&kind) {
            table.delete(namespace, name, &self.cluster);
        }
    }

    /// Returns the changes since the last call.
    pub fn take(&mut self) -> ChangeSet {
        let mut change = ChangeSet::default();
        for (_, table) in self.kinds.values_mut() {
            change.merge(table.take());
        }
        change
    }
}
