//! Migration of objects from client-side apply.

use serde_json::Value as Json;

use crate::apply::Writer;
use crate::apply::entries::Managers;
use crate::apply::update::update;
use crate::apply::{ignored, without_managers};
use crate::fields::Set;
use crate::typed::{compare, to_set};

/// The annotation of `kubectl apply` without `--server-side`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of the fields that existed before the first apply.
const BEFORE: &str = "before-first-apply";
/// The manager that continues the annotation of client-side apply.
const KUBECTL: &str = "kubectl";

/// The managers of an object without managers: one manager that owns all fields.
pub(crate) fn first_managers(live: &Json, by: &Writer<'_>) -> Managers {
    let mut managers = Managers::default();
    let by = Writer { manager: BEFORE, ..*by };
    update(&mut managers, &ignored::blank(&by), live, &by);
    managers
}

/// The fields that `kubectl` may take over without force: those that it applied client-side and that still have the
/// applied value.
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

/// Updates the annotation if it exists, so that `kubectl` can return to client-side apply.
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
    if let Some(annotations) =
        applied.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")).and_then(Json::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = format!("{applied}\n").into();
}
