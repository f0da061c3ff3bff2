//! Removal of fields that a manager no longer applies.

use config::schema::Schema;
use serde_json::Value as Json;

use crate::apply::entries::{Managers, Owned};
use crate::fields::{Element, Set};
use crate::typed::{remove, to_set};

/// Removes the fields that were in the manager's last configuration, are not in the new one, and have no other owner.
///
/// `managers` already has the new set. A removed field takes all its parts with it, because parts without owners are its
/// defaults.
pub(crate) fn prune(schema: &Schema, merged: Json, managers: &Managers, last: Option<&Owned>) -> Json {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else {
        return merged;
    };
    let schema = Some(schema);
    let mut owned = Set::default();
    for manager in managers.entries.values() {
        owned.extend(&manager.set);
    }
    let had = last.set.with_parents(schema);
    let without = remove(schema, &merged, &had, &owned).unwrap_or_default();
    let mut stays = to_set(schema, &without, None).with_parents(schema);
    stays.extend(&owned.with_parents(schema));
    // Identifying fields have no owner and stay.
    stays.insert(&[Element::field("metadata")]);
    let present = to_set(schema, &merged, None).with_parents(schema);
    let gone = present.difference(&stays).intersection(&had);
    if gone.is_empty() {
        return merged;
    }
    remove(schema, &merged, &gone, &owned).unwrap_or(merged)
}
