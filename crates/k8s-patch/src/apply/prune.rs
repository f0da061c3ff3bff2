//! What an applier no longer lists.

use config::schema::Schema;
use serde_json::Value as Json;

use crate::apply::entries::{Managers, Owned};
use crate::fields::{Element, Set};
use crate::typed::{remove, to_set};

/// An object without what a manager's last configuration had, its new one has not, and nobody else owns.
///
/// `managers` has the applier's new set already. Parts of a field that is removed go with it, owned by nobody or not: they
/// are the defaults that came with it.
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
    // What says which object it is belongs to nobody, and stays when nothing else of the metadata does.
    stays.insert(&[Element::field("metadata")]);
    let present = to_set(schema, &merged, None).with_parents(schema);
    let gone = present.difference(&stays).intersection(&had);
    if gone.is_empty() {
        return merged;
    }
    remove(schema, &merged, &gone, &owned).unwrap_or(merged)
}
