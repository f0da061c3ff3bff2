//! Server-side apply.

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::apply::entries::{Id, Managers, Operation, Owned};
use crate::apply::prune::prune;
use crate::apply::update::same;
use crate::apply::{Writer, before, ignored, managers_of, set_managers, without_managers};
use crate::error::{Conflict, Conflicts, Error};
use crate::fields::{Set, display_path};
use crate::limits::measure;
use crate::typed::{Comparison, compare, overlay, to_set};

/// Maximum nesting of a configuration.
const MAX_DEPTH: usize = 100;

/// Applies a configuration and updates the managers. `live` is the stored object, if any. Returns the stored object if
/// nothing changes.
///
/// The manager owns exactly the fields of the configuration. Fields that it no longer applies are removed unless they
/// have other owners. `force` takes over fields of other managers instead of failing.
///
/// # Errors
/// The configuration is malformed, or other managers own fields that it would change.
pub fn apply(live: Option<&Json>, config: &Json, by: &Writer<'_>, force: bool) -> Result<Json, Error> {
    let schema: &Schema = &by.definition.schema;
    check(config)?;
    let blank;
    let stored = match live {
        Some(live) => live,
        None => {
            blank = ignored::blank(by);
            &blank
        }
    };
    let current = without_managers(stored);
    let mut errors = Vec::new();
    let mut set = to_set(Some(schema), config, Some(&mut errors));
    if !errors.is_empty() {
        return Err(untyped(config, by, &errors.join(", ")));
    }
    ignored::reset(&mut set, by);
    let listed = managers_of(stored).and_then(Managers::decode).unwrap_or_default();
    let mut managers = listed.clone();
    if managers.entries.is_empty() && live.is_some() {
        managers = before::first_managers(&current, by);
    }
    let merged = overlay(Some(schema), &current, config);
    let id = Id::of(by, Operation::Apply);
    let owned = Owned { set: ignored::strip(&set), version: by.api_version(), time: Some(by.now) };
    let last = managers.entries.insert(id.clone(), owned);
    let mut object = prune(schema, merged, &managers, last.as_ref());
    take_over(&mut managers, &id, &current, &object, by, force)?;
    if live.is_some() && same(&current, &object) && managers.same_but_times(&listed) {
        return Ok(stored.clone());
    }
    if live.is_some() {
        before::note_applied(&mut object, config, by);
    }
    managers.cap();
    set_managers(&mut object, managers.encode());
    Ok(object)
}

fn check(config: &Json) -> Result<(), Error> {
    if !config.is_object() {
        return Err(Error::Malformed("error decoding patch: expected an object".into()));
    }
    if measure(config, MAX_DEPTH).is_none() {
        return Err(Error::TooLarge(format!("the configuration is nested deeper than {MAX_DEPTH} levels")));
    }
    if managers_of(config).is_some() {
        return Err(Error::Malformed("metadata.managedFields must be nil".into()));
    }
    if config.get("metadata").is_some_and(|meta| !meta.is_object()) {
        return Err(Error::Malformed("metadata must be an object".into()));
    }
    Ok(())
}

/// The error for a configuration that does not match its schema or has ambiguous list items.
pub(super) fn untyped(config: &Json, by: &Writer<'_>, why: &str) -> Error {
    let empty = Map::new();
    let meta = config.get("metadata").and_then(Json::as_object).unwrap_or(&empty);
    let text = |name: &str| meta.get(name).and_then(Json::as_str).unwrap_or_default();
    let version = by.api_version();
    // The core group has no name, but the slash is written.
    let version = if version.contains('/') { version } else { format!("/{version}") };
    Error::Untyped(format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {}",
        text("namespace"),
        text("name"),
        version,
        by.definition.kind,
        why
    ))
}

/// Removes changed fields from their other owners, or fails with conflicts.
fn take_over(
    managers: &mut Managers,
    me: &Id,
    current: &Json,
    object: &Json,
    by: &Writer<'_>,
    force: bool,
) -> Result<(), Error> {
    let Comparison { mut added, mut removed, mut modified } = compare(Some(&by.definition.schema), current, object);
    for set in [&mut added, &mut removed, &mut modified] {
        ignored::reset(set, by);
    }
    added.extend(&modified);
    if !force {
        let conflicts = conflicts(managers, me, &added.difference(&before::allowed(current, by)));
        if !conflicts.is_empty() {
            return Err(Error::Conflict(Conflicts { conflicts }));
        }
    }
    added.extend(&removed);
    managers.take(&added, Some(me));
    Ok(())
}

fn conflicts(managers: &Managers, me: &Id, written: &Set) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (id, owned) in managers.entries.iter().filter(|(id, _)| *id != me) {
        owned.set.intersection(written).each(&mut Vec::new(), &mut |path| {
            found.push(Conflict { manager: id.describe(), path: display_path(path) });
        });
    }
    found
}
