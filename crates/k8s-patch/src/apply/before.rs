//! Objects that were configured before server-side apply came.

use serde_json::Value as Json;

use crate::apply::Writer;
use crate::apply::entries::Managers;
use crate::apply::update::update;
use crate::apply::{ignored, without_managers};
use crate::fields::Set;
use crate::typed::{compare, to_set};

/// Where `kubectl apply` without `--server-side` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager that owns what was there before the first apply.
const BEFORE: &str = "before-first-apply";
/// The one program whose applies continue its own annotation.
const KUBECTL: &str = "kubectl";

/// The managers of an object that has none: one that owns all of it.
pub(crate) fn first_managers(live: &Json, by: &Writer<'_>) -> Managers {
    let mut managers = Managers::default();
    let by = Writer { manager: BEFORE, ..*by };
    update(&mut managers, &ignored::blank(&by), live, &by);
    managers
}

/// The fields that `kubectl` may take without force: those that it applied itself in the old way, and that still have the
/// value it gave them.
pub(crate) fn allowed(live: &Json, by: &Writer<'_>) -> Set {
    let applied = (by.manager == KUBECTL)
        .then(|| live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str())
        .flatten()
        .and_then(|text| serde_json::from_str::<Json>(text).ok())
        .filter(Json::is_object);
    let Some(applied) = applied else {
        return Set::default();
    };
    let schema = Some(&*by.definition.schema);
    let comparison = compare(schema, &without_managers(live), &applied);
    to_set(schema, &applied, None).difference(&comparison.written())
}

/// Keeps the annotation up to date where there is one, so that `kubectl` may go back to the old way.
pub(crate) fn note_applied(object: &mut Json, config: &Json, by: &Writer<'_>) {
    if by.manager != KUBECTL {
        return;
    }
    let annotation = object
        .get_mut("metadata")
        .and_then(|meta| meta.get_mut("annotations"))
        .and_then(|annotations| annotations.get_mut(LAST_APPLIED));
    let Some(annotation) = annotation else {
        return;
    };
    let mut applied = without_managers(config);
    if let Some(annotations) = applied
        .get_mut("metadata")
        .and_then(|meta| meta.get_mut("annotations"))
        .and_then(Json::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = format!("{applied}\n").into();
}
