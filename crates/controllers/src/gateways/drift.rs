//! Whether an object is still what was written.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

/// The label of pods that Istio before 1.24 used in the selector of a Deployment.
const OLD_LABEL: &str = "istio.io/gateway-name";

/// An observed object.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seen {
    /// A hash of the object, without its status.
    content: u64,
    /// The selector of a Deployment that an earlier version made, and the value of its label. Selectors cannot be changed.
    selector: Option<(Value, Value)>,
}

impl Seen {
    pub(super) fn of(object: &Value) -> Seen {
        let mut content = DefaultHasher::new();
        for (name, value) in object.as_object().into_iter().flatten().filter(|(name, _)| *name != "status") {
            let metadata = value.as_object().filter(|_| name == "metadata");
            match metadata {
                Some(fields) => {
                    let kept = fields.iter().filter(|(name, _)| !changes_always(name));
                    kept.for_each(|(name, value)| (name, value.to_string()).hash(&mut content));
                }
                None => (name, value.to_string()).hash(&mut content),
            }
        }
        let selector = &object["spec"]["selector"];
        let is_old = selector["matchLabels"].get(OLD_LABEL).is_some();
        let label = || object["spec"]["template"]["metadata"]["labels"][OLD_LABEL].clone();
        Seen { content: content.finish(), selector: is_old.then(|| (selector.clone(), label())) }
    }

    /// Keeps the selector of an existing Deployment, and the label that it needs.
    pub(super) fn keep_selector(&self, deployment: &mut Value) {
        let Some((selector, label)) = &self.selector else { return };
        if let Some(spec) = deployment.get_mut("spec").filter(|spec| spec.is_object()) {
            spec["selector"] = selector.clone();
            if spec["template"]["metadata"]["labels"].is_object() {
                spec["template"]["metadata"]["labels"][OLD_LABEL] = label.clone();
            }
        }
    }
}

fn changes_always(metadata: &str) -> bool {
    matches!(metadata, "resourceVersion" | "managedFields" | "generation")
}

/// Whether an object has all wanted fields with their values. Further fields may be defaults, or belong to others. The API leaves out
/// values such as `""` and `false`. Two forms of one quantity differ, which costs a write without effect.
pub(super) fn covers(object: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Null => object.is_null(),
        Value::Object(fields) => {
            let has = |(name, wanted): (&String, &Value)| covers(object.get(name).unwrap_or(&Value::Null), wanted);
            (object.is_object() || fields.is_empty()) && fields.iter().all(has)
        }
        // Lists have merge keys: an item is the same wherever it is.
        Value::Array(items) => {
            let found = object.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().all(|wanted| found.iter().any(|item| covers(item, wanted)))
        }
        scalar => object == scalar || (object.is_null() && is_zero(scalar)),
    }
}

fn is_zero(scalar: &Value) -> bool {
    match scalar {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_may_have_more_than_what_is_wanted() {
        let wanted = json!({"a": {"b": [{"name": "x", "value": ""}], "c": {}}, "gone": null});
        for (object, reached) in [
            (json!({"a": {"b": [{"name": "y"}, {"name": "x", "port": 1}], "d": 2}}), true),
            (json!({"a": {"b": [{"name": "x", "value": "1"}]}}), false),
            (json!({"a": {"b": [{"name": "x"}]}, "gone": 1}), false),
            (json!({"a": {"b": []}}), false),
            (json!({"a": "text"}), false),
            (json!({}), false),
        ] {
            assert_eq!(covers(&object, &wanted), reached, "{object}");
        }
    }

    #[test]
    fn status_and_versions_are_no_content() {
        let object = |version: &str, ready: u8, image: &str| {
            json!({
                "metadata": {"name": "a", "resourceVersion": version, "managedFields": [version], "generation": ready},
                "spec": {"image": image},
                "status": {"ready": ready},
            })
        };
        assert_eq!(Seen::of(&object("1", 1, "a")), Seen::of(&object("2", 2, "a")));
        assert_ne!(Seen::of(&object("1", 1, "a")), Seen::of(&object("1", 1, "b")));
    }
}
