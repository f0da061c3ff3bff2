//! Ownership after writes other than applies.

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::apply::entries::{Id, Managers, Operation, Owned};
use crate::apply::{Writer, ignored, managers_of, set_managers, without_managers};
use crate::typed::compare;

/// Updates the managers of an object that is created (`live` is none), updated or patched: the writer owns the changed
/// fields with the operation `Update`, and other managers lose them.
///
/// A valid list sent by the client replaces the stored one. A list with one empty entry (`[{}]`) removes all managers,
/// after which writes are not tracked until an apply. An empty, missing or invalid list is ignored. Timestamps stay if
/// nothing changes.
pub fn track(live: Option<&Json>, new: &mut Json, by: &Writer<'_>) {
    let managers = starting(live, new, by);
    set_managers(new, None);
    let Some(mut managers) = managers else {
        return;
    };
    if managers.entries.is_empty() && live.is_some() {
        return;
    }
    let before = live.map_or_else(|| ignored::blank(by), without_managers);
    update(&mut managers, &before, new, by);
    managers.cap();
    let unchanged = live
        .filter(|_| same(&before, new))
        .and_then(managers_of)
        .filter(|list| Managers::decode(list).is_some_and(|stored| stored.same_but_times(&managers)));
    let list = match unchanged {
        Some(list) => Some(list.clone()),
        None => managers.encode(),
    };
    set_managers(new, list);
}

/// Gives the changed fields to the writer and removes them from all others.
pub(crate) fn update(managers: &mut Managers, before: &Json, after: &Json, by: &Writer<'_>) {
    let schema: &Schema = &by.definition.schema;
    let mut comparison = compare(Some(schema), before, after);
    for set in [&mut comparison.added, &mut comparison.removed, &mut comparison.modified] {
        ignored::reset(set, by);
    }
    if !managers.entries.is_empty() {
        managers.take(&comparison.touched(), None);
    }
    let mut set = ignored::strip(&comparison.written());
    if set.is_empty() {
        return;
    }
    let id = Id::of(by, Operation::Update);
    if let Some(owned) = managers.entries.get(&id) {
        set.extend(&owned.set);
    }
    let owned = Owned { set, version: by.api_version(), time: Some(by.now) };
    managers.entries.insert(id, owned);
}

/// The managers before this write; none if the client removes them.
fn starting(live: Option<&Json>, new: &Json, by: &Writer<'_>) -> Option<Managers> {
    let stored = || live.and_then(managers_of).and_then(Managers::decode).unwrap_or_default();
    if by.subresource.is_some() {
        return Some(stored());
    }
    let Some(sent) = managers_of(new) else {
        return Some(stored());
    };
    let reset = sent
        .as_array()
        .is_some_and(|list| matches!(list.as_slice(), [only] if only.as_object().is_some_and(Map::is_empty)));
    if reset {
        return None;
    }
    match Managers::decode(sent) {
        Some(managers) if !managers.entries.is_empty() => Some(managers),
        _ => Some(stored()),
    }
}

/// Whether two states are equal except for managers and versions.
pub(crate) fn same(before: &Json, after: &Json) -> bool {
    !differ(before, after, &["managedFields", "resourceVersion"])
}

/// Whether two states differ in more than the API version and some metadata. Copies nothing.
pub fn differ(before: &Json, after: &Json, metadata: &[&str]) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return before != after;
    };
    differ_but(before, after, &["apiVersion", "metadata"])
        || match (before.get("metadata"), after.get("metadata")) {
            (Some(Json::Object(before)), Some(Json::Object(after))) => differ_but(before, after, metadata),
            (before, after) => before != after,
        }
}

/// Whether two objects differ in other fields than these.
fn differ_but(before: &Map<String, Json>, after: &Map<String, Json>, except: &[&str]) -> bool {
    let counts = |(name, _): &(&String, &Json)| !except.contains(&name.as_str());
    !before.iter().filter(counts).eq(after.iter().filter(counts))
}
