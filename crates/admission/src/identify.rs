//! Checks that an object matches its request.

use serde_json::{Map, Value as Json};

use crate::{Rejection, Review};

/// Checks that an object matches kind, version, name and namespace of the request, and adds missing ones.
pub(crate) fn identify(review: &Review<'_>, object: Json) -> Result<Json, Rejection> {
    let definition = review.definition;
    let (kind, version) = (definition.kind, review.version);
    let refuse = |text: String| Err(Rejection::BadRequest(text));
    let Json::Object(mut fields) = object else {
        return refuse(format!("the object provided is unrecognized (must be of type {kind}): it is not an object"));
    };
    let wanted = definition.api_version_of(version);
    match fields.get("apiVersion") {
        None | Some(Json::Null) => {}
        Some(sent) if *sent == wanted.as_str() => {}
        Some(Json::String(sent)) => {
            let text =
                format!("the API version in the data ({sent}) does not match the expected API version ({wanted})");
            return refuse(text);
        }
        Some(_) => return refuse("apiVersion must be a string".into()),
    }
    match fields.get("kind") {
        None | Some(Json::Null) => {}
        Some(sent) if sent == kind => {}
        Some(Json::String(sent)) => {
            return refuse(format!("{sent} in version {version:?} cannot be handled as a {kind}: kind must be {kind}"));
        }
        Some(_) => return refuse("kind must be a string".into()),
    }
    fields.insert("apiVersion".into(), wanted.into());
    fields.insert("kind".into(), kind.into());
    let meta = fields.entry("metadata").or_insert(Json::Null);
    if meta.is_null() {
        *meta = Json::Object(Map::new());
    }
    if let Some(meta) = meta.as_object_mut() {
        same_name(review, meta)?;
    }
    Ok(Json::Object(fields))
}

fn same_name(review: &Review<'_>, meta: &mut Map<String, Json>) -> Result<(), Rejection> {
    let given = |meta: &Map<String, Json>, name: &str| {
        meta.get(name).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    if let Some(name) = review.name {
        match given(meta, "name") {
            Some(sent) if sent != name => {
                let text = format!("the name of the object ({sent}) does not match the name on the URL ({name})");
                return Err(Rejection::BadRequest(text));
            }
            Some(_) => {}
            None => {
                meta.insert("name".into(), name.into());
            }
        }
    }
    let namespace = review.namespace.filter(|_| review.definition.namespaced).unwrap_or_default();
    match given(meta, "namespace") {
        Some(sent) if sent != namespace => {
            let text = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Rejection::BadRequest(text.into()));
        }
        Some(_) => {}
        None if namespace.is_empty() => {
            meta.remove("namespace");
        }
        None => {
            meta.insert("namespace".into(), namespace.into());
        }
    }
    Ok(())
}
