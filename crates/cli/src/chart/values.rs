//! Merging of values, as in Helm.

use serde_json::{Map, Value as Json};

/// Values whose fields are defined by the user.
const FREE: &[&str] = &["meshConfig", "resources", "global.defaultResources", "global.meshNetworks"];

/// Merges values into others: maps are merged, other values are replaced, null removes a value.
pub(crate) fn merge(base: &mut Json, over: &Json) {
    let Some(over) = over.as_object() else { return };
    if !base.is_object() {
        *base = Json::Object(Map::new());
    }
    let Some(base) = base.as_object_mut() else { return };
    for (key, value) in over {
        match value {
            Json::Null => drop(base.remove(key)),
            Json::Object(_) if base.get(key).is_some_and(Json::is_object) => {
                if let Some(under) = base.get_mut(key) {
                    merge(under, value);
                }
            }
            value => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

/// The paths of values that the chart does not use.
pub(crate) fn unknown(known: &Json, given: &Json) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown(known, given, "", &mut found);
    found
}

fn collect_unknown(known: &Json, given: &Json, path: &str, found: &mut Vec<String>) {
    let (Some(known), Some(given)) = (known.as_object(), given.as_object()) else {
        return;
    };
    // An empty default map accepts any fields.
    if FREE.contains(&path) || (known.is_empty() && !path.is_empty()) {
        return;
    }
    for (key, value) in given {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match known.get(key) {
            Some(known) => collect_unknown(known, value, &path, found),
            None => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_merge_and_null_removes() {
        let mut base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": {"f": 1}});
        merge(&mut base, &json!({"a": {"c": [3], "x": {}}, "d": null, "e": 5, "new": {"y": null}}));
        assert_eq!(base, json!({"a": {"b": 1, "c": [3], "x": {}}, "e": 5, "new": {"y": null}}));
    }

    #[test]
    fn unknown_values_are_reported() {
        let known = json!({"a": {"b": 1}, "free": {}, "meshConfig": {"x": 1}, "list": []});
        let given = json!({"a": {"b": 2, "z": 1}, "free": {"any": 1}, "meshConfig": {"y": 1}, "other": 1, "list": [1]});
        assert_eq!(unknown(&known, &given), ["a.z", "other"]);
    }
}
