//! ConfigMaps and Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::rules::Path;
use serde_json::{Map, Value as Json};

use crate::cause::Causes;
use crate::core::{at, default, immutable, inner, text};
use crate::names;

/// Maximum total size of all values of an object, in bytes.
const MAX_DATA: u64 = 1024 * 1024;

/// Moves `stringData`, which is write-only, into `data`.
pub(super) fn fill_secret(object: &mut Map<String, Json>) {
    default(object, "type", || "Opaque".into());
    let plain = match object.remove("stringData") {
        Some(Json::Object(plain)) => plain,
        Some(other) => {
            // The schema reports the wrong type.
            object.insert("stringData".into(), other);
            return;
        }
        None => return,
    };
    let Some(data) = inner(object, "data").filter(|_| !plain.is_empty()) else {
        return;
    };
    for (key, value) in plain {
        let value = match value {
            Json::String(text) => Json::String(STANDARD.encode(text)),
            other => other,
        };
        data.insert(key, value);
    }
}

pub(super) fn check_config_map(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let mut bytes = keys(object, "data", causes, |value| value.as_str().map_or(0, str::len));
    bytes += keys(object, "binaryData", causes, decoded_length);
    let binary = at(object, &["binaryData"]).and_then(Json::as_object);
    for key in at(object, &["data"]).and_then(Json::as_object).into_iter().flatten().map(|(key, _)| key) {
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            let text = format!("duplicate of key present in data: {key}");
            causes.invalid(&Path::Root.field("binaryData").key(key), &key.as_str().into(), &text);
        }
    }
    // Only the total size is limited, so the error has no field.
    too_long(bytes, &Path::Field(&Path::Root, ""), causes);
    frozen(object, old, &["data", "binaryData"], causes);
}

pub(super) fn check_secret(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let bytes = keys(object, "data", causes, decoded_length);
    too_long(bytes, &Path::Root.field("data"), causes);
    let needed: &[&str] = match text(object, &["type"]) {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in needed {
        if at(object, &["data", key]).is_none() {
            causes.required(&Path::Root.field("data").key(key), "");
        }
    }
    if text(object, &["type"]) == "kubernetes.io/service-account-token"
        && at(object, &["metadata", "annotations", "kubernetes.io/service-account.name"]).is_none()
    {
        let meta = Path::Root.field("metadata");
        causes.required(&meta.field("annotations").key("kubernetes.io/service-account.name"), "");
    }
    if let Some(old) = old {
        immutable(object, old, &["type"], causes);
    }
    frozen(object, old, &["data"], causes);
}

/// Validates the keys of a map; returns the size of its values.
fn keys(object: &Json, name: &str, causes: &mut Causes, length: fn(&Json) -> usize) -> u64 {
    let mut bytes = 0;
    for (key, value) in at(object, &[name]).and_then(Json::as_object).into_iter().flatten() {
        if let Some(why) = names::config_key(key) {
            causes.invalid(&Path::Root.field(name).key(key), &key.as_str().into(), &why);
        }
        bytes += u64::try_from(length(value)).unwrap_or(u64::MAX / 4);
    }
    bytes
}

fn decoded_length(value: &Json) -> usize {
    value.as_str().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4)
}

fn too_long(bytes: u64, path: &Path<'_>, causes: &mut Causes) {
    if bytes > MAX_DATA {
        causes.too_long(path, MAX_DATA);
    }
}

/// An immutable object cannot change and stays immutable.
fn frozen(object: &Json, old: Option<&Json>, names: &[&str], causes: &mut Causes) {
    let Some(old) = old.filter(|old| at(old, &["immutable"]) == Some(&Json::Bool(true))) else {
        return;
    };
    let text = "field is immutable when `immutable` is set";
    if at(object, &["immutable"]) != Some(&Json::Bool(true)) {
        causes.forbidden(&Path::Root.field("immutable"), text);
    }
    for name in names {
        if at(object, &[name]) != at(old, &[name]) {
            causes.forbidden(&Path::Root.field(name), text);
        }
    }
}
