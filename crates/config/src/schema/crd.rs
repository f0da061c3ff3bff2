//! CustomResourceDefinitions of kinds.

use serde_json::{Map, Value as Json, json};

use crate::schema::print::Printer;
use crate::schema::{Column, Definition, Schema, Served, Shape};

/// The CustomResourceDefinition (`apiextensions.k8s.io/v1`) of a kind, as `kubectl apply` accepts it.
pub fn crd(definition: &Definition) -> Json {
    let versions: Vec<Json> = (definition.versions.iter().enumerate())
        .map(|(position, served)| version(definition, served, position == 0))
        .collect();
    let mut names = Map::new();
    names.insert("kind".to_owned(), json!(definition.kind));
    names.insert("listKind".to_owned(), json!(definition.list_kind()));
    names.insert("plural".to_owned(), json!(definition.plural));
    names.insert("singular".to_owned(), json!(definition.singular));
    if !definition.short_names.is_empty() {
        names.insert("shortNames".to_owned(), json!(definition.short_names));
    }
    if !definition.categories.is_empty() {
        names.insert("categories".to_owned(), json!(definition.categories));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", definition.plural, definition.group),
            "labels": labels(definition),
            "annotations": annotations(definition),
        },
        "spec": {
            "group": definition.group,
            "names": names,
            "scope": if definition.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    })
}

fn labels(definition: &Definition) -> Json {
    let mut labels = json!({ "app.kubernetes.io/part-of": "rutter" });
    // The Gateway API marks direct policy attachments with this label.
    if definition.kind.ends_with("Policy") && definition.group.starts_with("gateway.networking.") {
        labels["gateway.networking.k8s.io/policy"] = json!("Direct");
    }
    labels
}

fn annotations(definition: &Definition) -> Json {
    // Deleting a CRD deletes all of its objects; uninstalling a chart must not do that.
    let mut annotations = json!({ "helm.sh/resource-policy": "keep" });
    let approval = match definition.group {
        "inference.networking.k8s.io" => "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173",
        group if group.ends_with(".k8s.io") => "https://github.com/kubernetes-sigs/gateway-api/pull/4530",
        _ => return annotations,
    };
    // API servers reject CRDs in groups of Kubernetes without this annotation.
    annotations["api-approved.kubernetes.io"] = json!(approval);
    if definition.group.starts_with("gateway.networking.") {
        annotations["gateway.networking.k8s.io/bundle-version"] = json!(GATEWAY_API);
        annotations["gateway.networking.k8s.io/channel"] = json!("experimental");
    }
    annotations
}

/// The version of the Gateway API that the schemas are from.
const GATEWAY_API: &str = "v1.6.1";

fn version(definition: &Definition, served: &Served, storage: bool) -> Json {
    let mut out = Map::new();
    out.insert("name".to_owned(), json!(served.version));
    out.insert("served".to_owned(), json!(true));
    out.insert("storage".to_owned(), json!(storage));
    if let Some(warning) = served.deprecated {
        out.insert("deprecated".to_owned(), json!(true));
        out.insert("deprecationWarning".to_owned(), json!(warning));
    }
    out.insert("schema".to_owned(), json!({ "openAPIV3Schema": structural(&definition.schema) }));
    if definition.status {
        out.insert("subresources".to_owned(), json!({ "status": {} }));
    }
    // As for core kinds, columns that only `-o wide` shows follow the age.
    let age = json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" });
    let of = |wide: bool| definition.columns.iter().filter(move |c| (c.priority > 0) == wide).map(column);
    let columns: Vec<Json> = of(false).chain([age]).chain(of(true)).collect();
    out.insert("additionalPrinterColumns".to_owned(), Json::Array(columns));
    if !definition.selectable.is_empty() {
        let fields = definition.selectable.iter().map(|path| json!({ "jsonPath": format!(".{path}") }));
        out.insert("selectableFields".to_owned(), fields.collect());
    }
    Json::Object(out)
}

/// The schema of a whole object. CRDs may declare `metadata` only as an object.
fn structural(schema: &Schema) -> Json {
    let mut out = Printer::inline(false).body(schema);
    if matches!(schema.shape, Shape::Object(_)) {
        out["properties"]["metadata"] = json!({ "type": "object" });
    }
    out
}

fn column(column: &Column) -> Json {
    let mut out = json!({
        "name": column.name,
        "type": column.kind,
        "jsonPath": column.path,
        "description": column.description,
    });
    if column.priority > 0 {
        out["priority"] = json!(column.priority);
    }
    out
}
