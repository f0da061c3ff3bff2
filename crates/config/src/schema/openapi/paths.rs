//! Paths and operations of a kind.

use serde_json::{Map, Value as Json, json};

use crate::schema::Definition;
use crate::schema::openapi::{META, has_strategic_patches};

/// Adds the paths of a kind.
pub(super) fn add(definition: &Definition, version: &str, component: &str, paths: &mut Map<String, Json>) {
    let kind = Kind { definition, version, component };
    let root = match definition.group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let plural = definition.plural;
    let collection = if definition.namespaced {
        paths.insert(format!("{root}/{plural}"), json!({ "get": kind.list("ForAllNamespaces"), "parameters": [] }));
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    paths.insert(collection.clone(), kind.collection());
    paths.insert(format!("{collection}/{{name}}"), kind.item());
    if definition.status {
        paths.insert(format!("{collection}/{{name}}/status"), kind.status());
    }
}

struct Kind<'a> {
    definition: &'a Definition,
    version: &'a str,
    component: &'a str,
}

impl Kind<'_> {
    fn collection(&self) -> Json {
        let mut out = json!({
            "get": self.list(""),
            "post": self.operation("create", "post", "", &["dryRun", "fieldManager", "fieldValidation"], Some(JSON)),
            "parameters": self.path_parameters(false),
        });
        // Namespaces cannot be deleted as a collection.
        if self.definition.plural != "namespaces" {
            let mut delete = self.operation("delete", "deletecollection", "Collection", LIST, None);
            delete["requestBody"] = delete_options();
            delete["responses"]["200"]["content"]["application/json"]["schema"] = reference(&format!("{META}.Status"));
            out["delete"] = delete;
        }
        out
    }

    fn item(&self) -> Json {
        let mut delete =
            self.operation("delete", "delete", "", &["dryRun", "gracePeriodSeconds", "propagationPolicy"], None);
        delete["requestBody"] = delete_options();
        json!({
            "get": self.operation("read", "get", "", &[], None),
            "put": self.operation("replace", "put", "", &["dryRun", "fieldManager", "fieldValidation"], Some(JSON)),
            "patch": self.patch(""),
            "delete": delete,
            "parameters": self.path_parameters(true),
        })
    }

    fn status(&self) -> Json {
        json!({
            "get": self.operation("read", "get", "Status", &[], None),
            "put": self.operation("replace", "put", "Status", &["dryRun", "fieldManager", "fieldValidation"], Some(JSON)),
            "patch": self.patch("Status"),
            "parameters": self.path_parameters(true),
        })
    }

    fn list(&self, suffix: &str) -> Json {
        let mut out = self.operation("list", "list", suffix, LIST, None);
        let schema = reference(&format!("{}List", self.component));
        for media in [JSON, "application/json;stream=watch"] {
            out["responses"]["200"]["content"][media] = json!({ "schema": schema });
        }
        out
    }

    fn patch(&self, suffix: &str) -> Json {
        let parameters = &["dryRun", "fieldManager", "fieldValidation", "force"];
        let mut out = self.operation("patch", "patch", suffix, parameters, None);
        let schema = reference(&format!("{META}.Patch"));
        let mut content = Map::new();
        for media in ["apply-patch+yaml", "json-patch+json", "merge-patch+json"] {
            content.insert(format!("application/{media}"), json!({ "schema": schema }));
        }
        if has_strategic_patches(self.definition) {
            content.insert("application/strategic-merge-patch+json".to_owned(), json!({ "schema": schema }));
        }
        out["requestBody"] = json!({ "required": true, "content": content });
        out
    }

    /// One operation. `body` is the media type of the request body, if it has one.
    fn operation(&self, verb: &str, action: &str, suffix: &str, parameters: &[&str], body: Option<&str>) -> Json {
        let definition = self.definition;
        let schema = reference(self.component);
        let parameters: Vec<Json> = parameters.iter().copied().map(query).collect();
        let scope = if definition.namespaced { "Namespaced" } else { "" };
        let mut out = json!({
            "operationId": format!("{verb}{}{scope}{}{suffix}", self.operation_prefix(), definition.kind),
            "description": format!("{verb} objects of the kind {}", definition.kind),
            "parameters": parameters,
            "responses": {
                "200": { "description": "OK", "content": { (JSON): { "schema": schema } } },
                "401": { "description": "Unauthorized" },
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": definition.group,
                "version": self.version,
                "kind": definition.kind,
            },
        });
        if let Some(media) = body {
            out["requestBody"] = json!({ "required": true, "content": { (media): { "schema": schema } } });
        }
        out
    }

    /// The group and version in camel case: `NetworkingIstioIoV1`.
    fn operation_prefix(&self) -> String {
        let group = match self.definition.group {
            "" => "core",
            group => group,
        };
        let parts = group.split(['.', '-']).chain([self.version]);
        parts
            .map(|part| {
                let (first, rest) = part.split_at(part.len().min(1));
                format!("{}{rest}", first.to_ascii_uppercase())
            })
            .collect()
    }

    fn path_parameters(&self, named: bool) -> Json {
        let parameter = |name: &str, what: &str| {
            json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": what,
                "schema": { "type": "string", "uniqueItems": true },
            })
        };
        let mut out = Vec::new();
        if self.definition.namespaced {
            out.push(parameter("namespace", "The namespace of the objects"));
        }
        if named {
            out.push(parameter("name", "The name of the object"));
        }
        out.push(query("pretty"));
        Json::Array(out)
    }
}

const JSON: &str = "application/json";

/// Query parameters of lists and of deletions of collections.
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

fn query(name: &str) -> Json {
    let (of_type, what) = match name {
        "dryRun" => ("string", "`All`: validate the request without persisting changes"),
        "fieldManager" => ("string", "The name of the field manager; required for server-side apply"),
        "fieldValidation" => ("string", "Handling of unknown and duplicate fields: `Ignore`, `Warn` or `Strict`"),
        "force" => ("boolean", "Take over fields of other managers; only for server-side apply"),
        "gracePeriodSeconds" => ("integer", "Seconds before the object is deleted"),
        "propagationPolicy" => ("string", "Handling of dependents: `Orphan`, `Background` or `Foreground`"),
        "allowWatchBookmarks" => ("boolean", "Whether a watch sends bookmarks"),
        "continue" => ("string", "The token to continue a list"),
        "fieldSelector" => ("string", "Restricts the list to objects with these fields"),
        "labelSelector" => ("string", "Restricts the list to objects with these labels"),
        "limit" => ("integer", "The maximum number of objects in a response"),
        "resourceVersion" => ("string", "The requested resource version"),
        "resourceVersionMatch" => ("string", "How the resource version is applied: `Exact` or `NotOlderThan`"),
        "sendInitialEvents" => ("boolean", "Whether a watch starts with the existing objects"),
        "timeoutSeconds" => ("integer", "The timeout of the request"),
        "watch" => ("boolean", "Watch for changes instead of listing"),
        _ => ("string", "If true, the response is pretty-printed"),
    };
    json!({
        "name": name,
        "in": "query",
        "description": what,
        "schema": { "type": of_type, "uniqueItems": true },
    })
}

fn delete_options() -> Json {
    json!({ "content": { (JSON): { "schema": reference(&format!("{META}.DeleteOptions")) } } })
}

fn reference(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
