//! Merges two mesh configurations by field.

use serde_json::{Map, Value};

/// The alternatives of `defaultConfig.tracing`. A different alternative replaces the other.
const TRACERS: [&str; 6] = ["zipkin", "lightstep", "datadog", "stackdriver", "openCensusAgent", "opentelemetry"];

/// Merges `over` onto `base`. Fields of `over` take precedence.
pub(super) fn merged(base: Value, over: Value) -> Value {
    let (mut base, over) = (fields(base), fields(over));
    for (name, value) in over.into_iter().filter(|(_, value)| !value.is_null()) {
        let before = base.remove(&name).unwrap_or(Value::Null);
        let value = match name.as_str() {
            "defaultConfig" => {
                let (mut before, value) = (before, value);
                let chooses = TRACERS.iter().any(|tracer| value["tracing"].get(tracer).is_some());
                if chooses && let Some(tracing) = before.get_mut("tracing").and_then(Value::as_object_mut) {
                    tracing.retain(|field, _| !TRACERS.contains(&field.as_str()));
                }
                deep(before, value)
            }
            "defaultProviders" => Value::Object(fields(before).into_iter().chain(fields(value)).collect()),
            "extensionProviders" => by_name(before, value),
            "trustDomainAliases" => union(before, value),
            _ => value,
        };
        base.insert(name, value);
    }
    Value::Object(base)
}

/// The fields of an object by their JSON names. A text may use the protobuf names, too.
fn fields(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else {
        return Map::new();
    };
    fields.into_iter().map(|(name, value)| (camel(&name), value)).collect()
}

fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        match letter {
            '_' => raise = true,
            letter if std::mem::take(&mut raise) => out.extend(letter.to_uppercase()),
            letter => out.push(letter),
        }
    }
    out
}

fn deep(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            let mut joined = base;
            for (name, value) in over {
                let before = joined.remove(&name).unwrap_or(Value::Null);
                joined.insert(name, deep(before, value));
            }
            Value::Object(joined)
        }
        (base, Value::Null) => base,
        (_, over) => over,
    }
}

fn by_name(base: Value, over: Value) -> Value {
    let (Value::Array(base), Value::Array(mut over)) = (base, over.clone()) else {
        return over;
    };
    let kept: Vec<Value> =
        base.into_iter().filter(|one| !over.iter().any(|other| other["name"] == one["name"])).collect();
    over.extend(kept);
    Value::Array(over)
}

fn union(base: Value, over: Value) -> Value {
    let (Value::Array(mut base), Value::Array(over)) = (base, over.clone()) else {
        return over;
    };
    base.extend(over);
    base.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
    base.dedup();
    Value::Array(base)
}
