//! Values over values, as Helm lays them.

use serde_json::{Map, Value as Json};

/// Values whose fields are not the chart's but the user's.
const FREE: &[&str] = &[
    "meshConfig",
    "resources",
    "global.defaultResources",
    "global.meshNetworks",
];

/// Lays values over others: maps are merged, all else is replaced, and null takes a value away.
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

/// The values that the chart does not know, so that nothing comes of them.
pub(crate) fn unknown(known: &Json, given: &Json) -> Vec<String> {
    let mut found = Vec::new();
    seek(known, given, "", &mut found);
    found
}

fn seek(known: &Json, given: &Json, path: &str, found: &mut Vec<String>) {
    let (Some(known), Some(given)) = (known.as_object(), given.as_object()) else {
        return;
    };
    // An empty map among the defaults is there to be filled.
    if FREE.contains(&path) || (known.is_empty() && !path.is_empty()) {
        return;
    }
    for (key, value) in given {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        match known.get(key) {
            Some(known) => seek(known, value, &path, found),
            None => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_merge_and_null_takes_away() {
        let mut base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": {"f": 1}});
        merge(
            &mut base,
            &json!({"a": {"c": [3], "x": {}}, "d": null, "e": 5, "new": {"y": null}}),
        );
        assert_eq!(
            base,
            json!({"a": {"b": 1, "c": [3], "x": {}}, "e": 5, "new": {"y": null}})
        );
    }

    #[test]
    fn what_the_chart_does_not_know_is_named() {
        let known = json!({"a": {"b": 1}, "free": {}, "meshConfig": {"x": 1}, "list": []});
        let given = json!({"a": {"b": 2, "z": 1}, "free": {"any": 1}, "meshConfig": {"y": 1}, "other": 1, "list": [1]});
        assert_eq!(unknown(&known, &given), ["a.z", "other"]);
    }
}
