//! The difference of two JSON values as a JSON patch (RFC 6902).

use serde_json::{Value, json};

/// The operations that turn one value into another. Lists are compared from both ends: what is in the middle is replaced,
/// added or removed by position.
pub fn difference(from: &Value, to: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(from, to, &mut String::new(), &mut operations);
    operations
}

fn compare(from: &Value, to: &Value, path: &mut String, operations: &mut Vec<Value>) {
    match (from, to) {
        (from, to) if from == to => {}
        (Value::Object(from), Value::Object(to)) => {
            for (name, value) in from {
                within(path, &escaped(name), |path| match to.get(name) {
                    Some(new) => compare(value, new, path, operations),
                    None => operations.push(json!({"op": "remove", "path": path})),
                });
            }
            for (name, value) in to.iter().filter(|(name, _)| !from.contains_key(*name)) {
                within(path, &escaped(name), |path| {
                    operations.push(json!({"op": "add", "path": path, "value": value}));
                });
            }
        }
        (Value::Array(from), Value::Array(to)) => lists(from, to, path, operations),
        (_, to) => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

fn lists(from: &[Value], to: &[Value], path: &mut String, operations: &mut Vec<Value>) {
    let shorter = from.len().min(to.len());
    let start = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let both = from.iter().rev().zip(to.iter().rev()).take(shorter - start);
    let end = both.take_while(|(from, to)| from == to).count();
    let (from, to) = (&from[start..from.len() - end], &to[start..to.len() - end]);
    for (at, (from, to)) in from.iter().zip(to).enumerate() {
        within(path, &(start + at).to_string(), |path| compare(from, to, path, operations));
    }
    // From the last to the first, so that positions stay valid.
    for at in (to.len()..from.len()).rev() {
        within(path, &(start + at).to_string(), |path| operations.push(json!({"op": "remove", "path": path})));
    }
    for (at, value) in to.iter().enumerate().skip(from.len()) {
        within(path, &(start + at).to_string(), |path| {
            operations.push(json!({"op": "add", "path": path, "value": value}));
        });
    }
}

fn within(path: &mut String, step: &str, act: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(step);
    act(path);
    path.truncate(length);
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
