//! Random objects of a kind, repaired until they are valid.

use config::schema::{Schema, Shape};
use config::{FieldPath, Kind, ParseOptions, Segment, read_object};
use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::value;

/// The number of repairs before another object is generated.
const MENDS: usize = 200;

/// A valid object; `number` is part of its name and its hosts.
pub(super) fn valid(dice: &mut Dice, kind: Kind, number: usize) -> Value {
    loop {
        let mut object = random(dice, kind, number);
        for _ in 0..MENDS {
            let read = read_object(&object, &ParseOptions::default());
            let Some(error) = read.diagnostics.iter().find(|diagnostic| diagnostic.is_error()) else {
                return object;
            };
            if !mend(dice, &mut object, &error.path) {
                break;
            }
        }
    }
}

fn random(dice: &mut Dice, kind: Kind, number: usize) -> Value {
    let schema = kind.content_schema();
    let spec = schema.field("spec").unwrap_or(&schema);
    let mut spec = match field(dice, spec, &mut vec!["spec".to_owned()]) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    direct(dice, kind, number, &mut spec);
    let namespace = dice.one(&["test", "test", "test", "istio-system"]);
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "metadata": {"name": format!("r{number}"), "namespace": namespace},
        "spec": spec,
    })
}

/// Makes most objects refer to existing services.
fn direct(dice: &mut Dice, kind: Kind, number: usize, spec: &mut Map<String, Value>) {
    let host = format!("svc{}.test.svc.cluster.local", number % 8);
    if dice.percent(15) {
        return;
    }
    match kind {
        Kind::VirtualService => {
            let old = spec.get("hosts").and_then(|hosts| hosts.get(0)).cloned();
            let hosts: Vec<Value> = [Some(json!(host)), old].into_iter().flatten().collect();
            spec.insert("hosts".to_owned(), json!(hosts));
            let gateways = [json!(["mesh"]), json!(["test/r2", "mesh"]), json!(["test/r2", "test/r10"])];
            spec.insert("gateways".to_owned(), gateways[dice.below(3)].clone());
            spec.remove("exportTo");
        }
        Kind::DestinationRule => {
            spec.insert("host".to_owned(), json!(host));
            spec.remove("workloadSelector");
            spec.remove("exportTo");
        }
        Kind::Gateway => {
            spec.insert("selector".to_owned(), json!({"app": "gw"}));
        }
        Kind::ServiceEntry => {
            spec.insert("hosts".to_owned(), json!([format!("ext{number}.example.com")]));
            spec.remove("exportTo");
        }
        Kind::Sidecar => {
            spec.insert("workloadSelector".to_owned(), json!({"labels": {"app": dice.one(&["shop", "six"])}}));
        }
        Kind::PeerAuthentication => {
            let mut mode = || json!({"mode": dice.one(&["DISABLE", "PERMISSIVE", "STRICT"])});
            let ports = json!({"8080": mode(), "9000": mode()});
            spec.insert("mtls".to_owned(), mode());
            spec.insert("portLevelMtls".to_owned(), ports);
            spec.insert("selector".to_owned(), json!({"matchLabels": {"app": "shop"}}));
        }
        Kind::AuthorizationPolicy => {
            spec.insert("selector".to_owned(), json!({"matchLabels": {"app": dice.one(&["shop", "gw"])}}));
            spec.remove("targetRef");
            spec.remove("targetRefs");
            if dice.percent(50) {
                spec.insert("action".to_owned(), json!(dice.one(&["ALLOW", "DENY", "AUDIT"])));
                spec.remove("provider");
            }
        }
        Kind::MeshConfig => direct_mesh(dice, spec),
        Kind::WorkloadEntry => {
            spec.insert("labels".to_owned(), json!({"app": "shop", "version": "v2"}));
        }
        _ => {}
    }
}

/// Makes providers refer to existing services, and selects them.
fn direct_mesh(dice: &mut Dice, spec: &mut Map<String, Value>) {
    spec.remove("rootNamespace");
    let Some(Value::Array(providers)) = spec.get_mut("extensionProviders") else {
        return;
    };
    let mut names = Vec::new();
    for (number, provider) in providers.iter_mut().filter_map(Value::as_object_mut).enumerate() {
        let name = format!("provider-{number}");
        provider.insert("name".to_owned(), json!(name));
        names.push(name);
        for settings in provider.values_mut().filter_map(Value::as_object_mut) {
            if settings.contains_key("service") {
                let host = format!("svc{}.test.svc.cluster.local", dice.below(8));
                settings.insert("service".to_owned(), json!(host));
                settings.insert("port".to_owned(), json!([80, 9000][dice.below(2)]));
            }
        }
    }
    let asked = json!({"tracing": names, "accessLogging": names, "metrics": names});
    spec.insert("defaultProviders".to_owned(), asked);
}

/// A random value for a schema; `path` contains the names of the fields that lead to it.
fn field(dice: &mut Dice, schema: &Schema, path: &mut Vec<String>) -> Value {
    match &schema.shape {
        Shape::Object(fields) => {
            let mut object = Map::new();
            let wanted: usize = if path.len() < 4 { 45 } else { 30 };
            let chosen: Vec<_> = fields.exclusive.iter().map(|group| group[dice.below(group.len())]).collect();
            for (name, inner) in &fields.fields {
                let group = fields.exclusive.iter().position(|group| group.contains(name));
                let required = fields.required.contains(name);
                let wanted = match group {
                    Some(group) if chosen[group] == *name => 80,
                    Some(_) => 0,
                    None => wanted.saturating_add_signed(value::taste(name)),
                };
                if required || dice.percent(wanted) {
                    path.push((*name).to_owned());
                    object.insert((*name).to_owned(), field(dice, inner, path));
                    path.pop();
                }
            }
            Value::Object(object)
        }
        Shape::Map(inner, _) => {
            let count = dice.below(4);
            let entries = (0..count).map(|_| {
                let key = value::key(dice, path);
                (key, field(dice, inner, path))
            });
            Value::Object(entries.collect())
        }
        Shape::List(inner, ..) => {
            let count = [0, 1, 1, 2, 2, 3][dice.below(6)];
            (0..count).map(|_| field(dice, inner, path)).collect()
        }
        Shape::Text { values, .. } if !values.is_empty() => json!(dice.one(values)),
        Shape::Text { .. } => json!(value::text(dice, path)),
        Shape::Integer { .. } => json!(value::integer(dice, path)),
        Shape::Number { .. } => json!(value::number(dice)),
        Shape::Boolean => json!(dice.percent(60)),
        Shape::IntOrText => json!(value::integer(dice, path)),
        Shape::Any => json!({}),
    }
}

/// Removes the value at a path, a part of it, or its parent. Returns false if nothing can be removed.
fn mend(dice: &mut Dice, object: &mut Value, path: &FieldPath) -> bool {
    let mut segments = path.segments().to_vec();
    loop {
        if segments.len() < 2 {
            return false;
        }
        let Some(last) = segments.pop() else { return false };
        let Some(around) = find(object, &segments) else {
            continue;
        };
        match (around, last) {
            (Value::Object(fields), Segment::Field(name) | Segment::Key(name)) => {
                let Some(found) = fields.get_mut(&*name) else {
                    continue;
                };
                // One of the fields may cause the error of an object.
                if let Value::Object(inner) = found
                    && inner.len() > 1
                {
                    let victim = inner.keys().nth(dice.below(inner.len())).cloned().unwrap_or_default();
                    inner.remove(&victim);
                } else {
                    fields.remove(&*name);
                }
                return true;
            }
            (Value::Array(items), Segment::Index(index)) if index < items.len() => {
                match &mut items[index] {
                    Value::Object(inner) if inner.len() > 1 => {
                        let victim = inner.keys().nth(dice.below(inner.len())).cloned().unwrap_or_default();
                        inner.remove(&victim);
                    }
                    _ => {
                        items.remove(index);
                    }
                }
                return true;
            }
            _ => {}
        }
    }
}

fn find<'v>(value: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Field(name) | Segment::Key(name) => value.get_mut(&**name),
        Segment::Index(index) => value.get_mut(*index),
    })
}
