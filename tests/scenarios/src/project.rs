//! Projections: the values at a path of a JSON value.

use serde_json::{Map, Value};

/// The values at each path, by path; the whole value if there are no paths.
///
/// A path consists of field names separated by dots; `[]` after a name means every element of the list. A path through
/// lists gives a list of values.
pub fn project(value: &Value, paths: &[String]) -> Value {
    if paths.is_empty() {
        return value.clone();
    }
    let mut out = Map::new();
    for path in paths {
        let mut found = Vec::new();
        collect(value, &path.split('.').collect::<Vec<_>>(), &mut found);
        let many = path.contains("[]");
        let shown = if many { Value::Array(found) } else { found.pop().unwrap_or(Value::Null) };
        out.insert(path.clone(), shown);
    }
    if out.len() == 1 { out.into_iter().next().map(|(_, v)| v).unwrap_or(Value::Null) } else { Value::Object(out) }
}

fn collect(value: &Value, path: &[&str], found: &mut Vec<Value>) {
    let Some((first, rest)) = path.split_first() else {
        found.push(value.clone());
        return;
    };
    let (name, each) = match first.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (*first, false),
    };
    let Some(inner) = value.get(name) else { return };
    match inner {
        Value::Array(items) if each => items.iter().for_each(|item| collect(item, rest, found)),
        _ => collect(inner, rest, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_traverse_lists() {
        let value = json!({"a": [{"b": 1}, {"b": 2}, {"c": 3}], "d": {"e": "x"}});
        assert_eq!(project(&value, &["a[].b".into()]), json!([1, 2]));
        assert_eq!(project(&value, &["d.e".into()]), json!("x"));
        assert_eq!(project(&value, &["a[].b".into(), "d.e".into()]), json!({"a[].b": [1, 2], "d.e": "x"}));
        assert_eq!(project(&value, &["none".into()]), Value::Null);
    }
}
