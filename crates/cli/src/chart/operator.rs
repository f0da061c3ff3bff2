//! Values in the forms of `istioctl install`: IstioOperator files, and values below `values` and `pilot`.

use serde_json::{Map, Value as Json, json};

use super::values::merge;

/// Values of istiod's chart in the place where its users write them. Everything else is kept, so that it is reported as
/// unknown.
pub(crate) fn adopted(given: Json) -> Json {
    let is_operator = given["kind"] == "IstioOperator";
    let mut given = if is_operator { given["spec"].clone() } else { given };
    let Some(fields) = given.as_object_mut() else { return json!({}) };
    // In an IstioOperator, these name the images of the whole mesh.
    for name in ["hub", "tag"].into_iter().filter(|_| is_operator) {
        if let Some(value) = fields.remove(name) {
            raise(fields, json!({"global": {name: value}}));
        }
    }
    for wrapper in ["values", "pilot"] {
        if let Some(inner @ Json::Object(_)) = fields.remove(wrapper) {
            raise(fields, inner);
        }
    }
    if let Some(plugin @ Json::Object(_)) = fields.remove("istio_cni") {
        raise(fields, json!({"cni": plugin}));
    }
    if let Some(enabled) =
        fields.get_mut("global").and_then(|global| global.as_object_mut()?.remove("enableReaderRBAC"))
    {
        raise(fields, json!({"global": {"reader": {"enabled": enabled}}}));
    }
    given
}

/// Merges values into the outermost ones.
fn raise(fields: &mut Map<String, Json>, inner: Json) {
    let mut whole = Json::Object(std::mem::take(fields));
    merge(&mut whole, &inner);
    if let Json::Object(merged) = whole {
        *fields = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_istioctl_are_values() {
        for (given, expected) in [
            (json!({"pilot": {"env": {"A": "b"}, "replicaCount": 2}}), json!({"env": {"A": "b"}, "replicaCount": 2})),
            (
                json!({"values": {"global": {"hub": "h"}, "pilot": {"cni": {"enabled": true}}}}),
                json!({"global": {"hub": "h"}, "cni": {"enabled": true}}),
            ),
            (
                json!({"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "spec": {
                    "profile": "demo", "hub": "h", "tag": "t", "meshConfig": {"a": 1}, "values": {"global": {"network": "n"}}}}),
                json!({"profile": "demo", "meshConfig": {"a": 1}, "global": {"hub": "h", "tag": "t", "network": "n"}}),
            ),
            (json!({"hub": "h", "istio_cni": {"enabled": true}}), json!({"hub": "h", "cni": {"enabled": true}})),
            (json!({"global": {"enableReaderRBAC": false}}), json!({"global": {"reader": {"enabled": false}}})),
            (json!(null), json!({})),
        ] {
            assert_eq!(adopted(given.clone()), expected, "{given}");
        }
    }
}
