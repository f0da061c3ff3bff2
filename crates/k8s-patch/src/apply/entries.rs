//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use config::Timestamp;
use serde_json::{Value as Json, json};

use crate::apply::Writer;
use crate::fields::{self, Set};

/// Maximum number of `Update` managers; older ones are merged.
const MAX_UPDATERS: usize = 10;
/// Maximum number of entries in a client's list.
const MAX_ENTRIES: usize = 1000;
/// The manager name of merged entries.
const ANCIENT: &str = "ancient-changes";

/// The operation by which a manager owns fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// The key of an entry. The version is empty for `Apply`, because a manager applies in one version at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Id {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) version: String,
    pub(crate) subresource: String,
}

impl Id {
    /// The entry of a write.
    pub(crate) fn of(by: &Writer<'_>, operation: Operation) -> Id {
        Id {
            manager: by.manager.to_owned(),
            operation,
            version: if operation == Operation::Apply { String::new() } else { by.api_version() },
            subresource: by.subresource.unwrap_or_default().to_owned(),
        }
    }

    /// The form in messages: `"kubectl" with subresource "status" using v1`.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.version));
        }
        text
    }
}

/// The fields of a manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owned {
    pub(crate) set: Set,
    pub(crate) version: String,
    pub(crate) time: Option<Timestamp>,
}

/// All managers of an object.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Managers {
    pub(crate) entries: BTreeMap<Id, Owned>,
}

impl Managers {
    /// Parses `metadata.managedFields`; none if an entry is invalid.
    pub(crate) fn decode(list: &Json) -> Option<Managers> {
        let list = list.as_array().filter(|list| list.len() <= MAX_ENTRIES)?;
        let mut managers = Managers::default();
        for entry in list {
            let (id, owned) = decode_entry(entry)?;
            managers.entries.insert(id, owned);
        }
        Some(managers)
    }

    /// Formats `metadata.managedFields`: `Apply` entries first, then by time and name. None if there are no owners.
    pub(crate) fn encode(&self) -> Option<Json> {
        let mut sorted: Vec<(&Id, &Owned)> = self.entries.iter().collect();
        sorted.sort_by_key(|(id, owned)| {
            let seconds = owned.time.map_or(i64::MIN, Timestamp::unix_seconds);
            (id.operation, seconds, &id.manager, &owned.version, &id.subresource)
        });
        let list: Vec<Json> = sorted.into_iter().map(|(id, owned)| encode_entry(id, owned)).collect();
        (!list.is_empty()).then_some(Json::Array(list))
    }

    /// Whether the ownership is equal, regardless of timestamps.
    pub(crate) fn same_but_times(&self, other: &Managers) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|((id, mine), (other_id, theirs))| {
                id == other_id && mine.set == theirs.set && mine.version == theirs.version
            })
    }

    /// Removes fields from all managers but one; removes managers without fields.
    pub(crate) fn take(&mut self, gone: &Set, but: Option<&Id>) {
        for (id, owned) in &mut self.entries {
            if Some(id) != but {
                owned.set = owned.set.difference(gone);
            }
        }
        self.entries.retain(|_, owned| !owned.set.is_empty());
    }

    /// Merges the oldest `Update` entries of a version, which limits the length of the list.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Id> =
            self.entries.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let Some(excess) = updaters.len().checked_sub(MAX_UPDATERS).filter(|excess| *excess > 0) else {
            return;
        };
        updaters.sort_by_key(|id| {
            let time = self.entries[id].time.map_or(i64::MIN, Timestamp::unix_seconds);
            (time, id.manager.clone())
        });
        // One more than the excess, because the merged entry takes one place.
        for id in updaters.into_iter().take(excess + 1) {
            let Some(owned) = self.entries.remove(&id) else {
                continue;
            };
            let bucket = Id {
                manager: ANCIENT.to_owned(),
                operation: Operation::Update,
                version: owned.version.clone(),
                subresource: String::new(),
            };
            match self.entries.get_mut(&bucket) {
                Some(joined) => {
                    joined.set.extend(&owned.set);
                    joined.time = joined.time.max(owned.time);
                }
                None => {
                    self.entries.insert(bucket, owned);
                }
            }
        }
    }
}

fn decode_entry(entry: &Json) -> Option<(Id, Owned)> {
    let text = |name: &str| entry.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let (version, time) = (text("apiVersion"), text("time"));
    if version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let id = Id {
        manager: text("manager"),
        operation,
        version: if operation == Operation::Apply { String::new() } else { version.clone() },
        subresource: text("subresource"),
    };
    let set = match entry.get("fieldsV1") {
        None | Some(Json::Null) => Set::default(),
        Some(fields) => fields::decode(fields)?,
    };
    Some((id, Owned { set, version, time: Timestamp::parse(&time) }))
}

fn encode_entry(id: &Id, owned: &Owned) -> Json {
    let operation = match id.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = json!({
        "manager": id.manager,
        "operation": operation,
        "apiVersion": owned.version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields::encode(&owned.set),
    });
    if let Some(time) = owned.time {
        entry["time"] = time.to_string().into();
    }
    if !id.subresource.is_empty() {
        entry["subresource"] = id.subresource.as_str().into();
    }
    entry
}
