//! docs/reference/kinds.md, generated from the definitions of kinds.

use std::fmt::Write;

use super::{page, walk};
use crate::Kind;
use crate::effects::{CODE, KINDS_NOT_YET};
use crate::schema::{Check, Column, Definition, definitions};

/// The text of `docs/reference/kinds.md`.
fn text() -> String {
    let mut page = String::from(INTRODUCTION);
    for (group, title, text) in GROUPS {
        let kinds = definitions().iter().filter(|definition| belongs(definition, group));
        let rows: String = kinds.map(row).collect();
        let _ = write!(page, "\n## {title}\n\n{text}\n\n{HEAD}{rows}");
    }
    page.push_str(FIELDS);
    for kind in Kind::ALL {
        let fields = fields_not_yet(*kind);
        if fields.is_empty() || KINDS_NOT_YET.contains(kind) {
            continue;
        }
        let fields: String = fields.iter().map(|field| format!("- `{field}`\n")).collect();
        let _ = write!(page, "\n### {kind}\n\n{fields}");
    }
    page.push_str(VALIDATION);
    page
}

/// API groups with a title and an introduction.
const GROUPS: [(&str, &str, &str); 6] = [
    ("networking.istio.io", "Istio: networking", "All versions of a kind have the same fields."),
    ("security.istio.io", "Istio: security", "Read and validated; authorization is not implemented yet."),
    ("telemetry.istio.io extensions.istio.io", "Istio: telemetry and extensions", "Read and validated."),
    (
        "gateway.networking.k8s.io gateway.networking.x-k8s.io inference.networking.k8s.io",
        "Gateway API",
        "With the fields of the experimental channel, and related kinds.",
    ),
    (
        "multicluster.x-k8s.io",
        "Multicluster services",
        "See [Services and endpoints](../concepts/services-and-endpoints.md).",
    ),
    (
        "*",
        "Kubernetes",
        "Core kinds that a mesh needs. Kinds and fields that the mesh does not read are stored for the clients of the API.",
    ),
];

const INTRODUCTION: &str = "\
# Kinds

<!-- Generated from the definitions in crates/config/src/schema by `cargo xtask docs`; do not edit. -->

The kinds that `rutter serve` stores, serves and validates. `kubectl explain KIND.FIELD` describes the fields, and
`rutter crds` prints the definitions for a Kubernetes cluster.

- *Names*: plural and short names, in URL paths and on the command line. The kind itself works, too.
- *Versions*: the served versions. The first is the storage version.
- *Columns*: printer columns after the name; those in parentheses with `-o wide`. Kinds of Istio and of the Gateway API also
  have the age.
- *Effect*: whether the kind changes the configuration of proxies. Objects of kinds without effect are accepted with a
  warning.
";

const HEAD: &str = "\
| Kind | API group | Names | Versions | Namespaced | Status | Columns | Effect |
|---|---|---|---|---|---|---|---|
";

const FIELDS: &str = "
## Fields without effect

Fields that are read and validated but have no effect yet, of kinds that have an effect. An object with such a field is
accepted with a warning that names the field. Paths start at `spec`; `[]` means every item of a list.
";

const VALIDATION: &str = "
## Validation

An object is validated in three steps. Each step reports all errors that it finds. The third step runs only if the others
found none:

1. the schema of its kind: types, required fields, bounds, patterns, and keys of lists;
2. the CEL rules of the schema, unless a type is wrong or a required field is missing;
3. semantic checks: errors that Istio's validation webhook reports, such as weights that are all 0, a duplicate port, or
   an invalid regular expression.

The first two steps and their messages are those of a Kubernetes API server with the definitions of `rutter crds`, with two
differences: for mutually exclusive fields, the message names the fields and not the schema (`oneOf`); and the third step
rejects invalid durations.

`rutter validate` checks files without a server and reports line and column.

The mesh configuration (MeshConfig) is not an object of the API. It comes from a file
([configuration files](../guides/configuration-files.md)).

The Gateway API writes durations in whole numbers with the units `h`, `m`, `s` and `ms`, such as `1m30s` or `250ms`, up to
`99999h59m59s999ms`. Istio's kinds also accept fractions: `1.5s`.
";

fn belongs(definition: &Definition, group: &str) -> bool {
    let named = |definition: &Definition, groups: &str| groups.split(' ').any(|group| group == definition.group);
    match group {
        "*" => !GROUPS.iter().any(|(groups, ..)| named(definition, groups)),
        groups => named(definition, groups),
    }
}

fn row(definition: &Definition) -> String {
    let versions: Vec<&str> = definition.versions.iter().map(|served| served.version).collect();
    let group = if definition.group.is_empty() { "core".to_owned() } else { format!("`{}`", definition.group) };
    format!(
        "| {} | {group} | {} | {} | {} | {} | {} | {} |\n",
        definition.kind,
        names(definition),
        versions.join(", "),
        if definition.namespaced { "yes" } else { "no" },
        if definition.status { "yes" } else { "no" },
        columns(definition),
        effect(definition),
    )
}

fn names(definition: &Definition) -> String {
    let all = std::iter::once(&definition.plural).chain(definition.short_names);
    all.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn columns(definition: &Definition) -> String {
    let name = |column: &Column| match column.priority {
        0 => column.name.to_owned(),
        _ => format!("({})", column.name),
    };
    definition.columns.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn effect(definition: &Definition) -> &'static str {
    match definition.mesh {
        None => "kept",
        Some(kind) if KINDS_NOT_YET.contains(&kind) => "none yet",
        Some(kind) if !fields_not_yet(kind).is_empty() => "yes, but for some fields (below)",
        Some(_) => "yes",
    }
}

/// The fields of a kind that are not implemented yet, by their paths from `spec`.
fn fields_not_yet(kind: Kind) -> Vec<String> {
    let mut found = Vec::new();
    walk(&kind.content_schema(), "", &mut |schema, path| {
        if schema.checks.iter().any(|check| matches!(check, Check::Unwanted(_, CODE, _))) {
            found.push(path.trim_start_matches('.').to_owned());
        }
    });
    found
}

#[test]
fn kinds_reference_page_is_up_to_date() {
    let page = text();
    page::check("kinds.md", &page);
    for definition in definitions() {
        let rows = page.matches(&format!("| {} | ", definition.kind)).count();
        let of_the_name = definitions().iter().filter(|other| other.kind == definition.kind);
        assert_eq!(rows, of_the_name.count(), "{}", definition.kind);
    }
}
