//! Helpers for the tests of admission.
#![allow(dead_code)]

use admission::{Admitted, Decoded, FieldValidation, Operation, Rejection, Review, Subresource};
use config::schema::{Definition, find};
use serde_json::{Map, Value as Json};

/// The kind of `GROUP/PLURAL`.
pub(crate) fn kind(of: &str) -> &'static Definition {
    let (group, plural) = of.split_once('/').unwrap();
    find(group, plural).unwrap_or_else(|| panic!("{of}"))
}

/// A request about the object `x`, in the namespace `n` where it needs one.
pub(crate) fn review(definition: &Definition, operation: Operation) -> Review<'_> {
    Review {
        definition,
        version: definition.versions[0].version,
        operation,
        subresource: Subresource::None,
        field_validation: FieldValidation::Warn,
        namespace: definition.namespaced.then_some("n"),
        name: Some("x"),
    }
}

/// A whole object of what a test says about it.
pub(crate) fn whole(definition: &Definition, sent: &Json) -> Json {
    let mut object = sent.as_object().unwrap().clone();
    object.entry("apiVersion").or_insert_with(|| definition.api_version().into());
    object.entry("kind").or_insert_with(|| definition.kind.into());
    let meta = object.entry("metadata").or_insert_with(|| Json::Object(Map::new()));
    if let Some(meta) = meta.as_object_mut() {
        meta.entry("name").or_insert_with(|| "x".into());
        if definition.namespaced {
            meta.entry("namespace").or_insert_with(|| "n".into());
        }
    }
    Json::Object(object)
}

/// Admits an object as new.
pub(crate) fn create(definition: &Definition, object: Json) -> Result<Admitted, Rejection> {
    admission::admit(&review(definition, Operation::Create), Decoded::from(object), None)
}

/// Whether everything in `part` is in `whole`; lists as long as they are in `part`.
pub(crate) fn contains(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part)))
        }
        (Json::Array(whole), Json::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        _ => whole == part,
    }
}

/// The documents of a YAML file.
pub(crate) fn cases(text: &str) -> Vec<Json> {
    let read = config::parse_yaml_json(text.as_bytes(), "", &config::Limits::default());
    assert!(read.errors.is_empty(), "{:?}", read.errors);
    assert!(read.documents.iter().all(|document| document.duplicates.is_empty()), "a key is there twice");
    read.documents.into_iter().map(|document| document.value).collect()
}
