//! The page about the kinds, made from their definitions.

use std::fmt::Write;

use crate::Kind;
use crate::effects::{KINDS_NOT_YET, NOT_YET};
use crate::schema::{Definition, definitions};

/// The text of `docs/reference/kinds.md`.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for (group, title, text) in GROUPS {
        let kinds = definitions().iter().filter(|definition| belongs(definition, group));
        let rows: String = kinds.map(row).collect();
        let _ = write!(page, "\n## {title}\n\n{text}\n\n{HEAD}{rows}");
    }
    page.push_str(FIELDS);
    for kind in Kind::ALL {
        let mut fields = NOT_YET.iter().filter(|entry| entry.kind == *kind).peekable();
        if fields.peek().is_none() {
            continue;
        }
        let _ = write!(page, "\n### {kind}\n\n");
        for entry in fields {
            let _ = match entry.unless {
                [] => writeln!(page, "- `{}`", entry.path),
                values => writeln!(page, "- `{}`, unless it is {}", entry.path, list(values, " or ")),
            };
        }
    }
    page.push_str(REFUSALS);
    page
}

/// API groups, or the beginnings of several, with a title and what there is to say.
const GROUPS: [(&str, &str, &str); 6] = [
    (
        "networking.istio.io",
        "Istio: networking",
        "Objects of the older versions are the same objects: all versions of a kind have the same fields.",
    ),
    (
        "security.istio.io",
        "Istio: security",
        "Read and validated; authorization is not made from them yet.",
    ),
    (
        "telemetry.istio.io extensions.istio.io",
        "Istio: telemetry and extensions",
        "Read and validated.",
    ),
    (
        "gateway.networking.k8s.io gateway.networking.x-k8s.io inference.networking.k8s.io",
        "Gateway API",
        "With the fields of the experimental channel. The table has the kinds of the API and of its neighbours.",
    ),
    (
        "multicluster.x-k8s.io",
        "Services of several clusters",
        "See [Services and endpoints](../concepts/services-and-endpoints.md).",
    ),
    (
        "*",
        "Kubernetes",
        "The kinds of every Kubernetes that a mesh needs. What is not read for the mesh is kept for the clients of the API.",
    ),
];

const INTRODUCTION: &str = "\
# Kinds

<!-- Made from the definitions in crates/config/src/schema by `cargo xtask docs`; do not edit. -->

What `rutter serve` keeps, serves and validates. `rutter api-resources` lists the same, `rutter explain KIND.FIELD` has the
fields with their meaning, and `rutter crds` prints the definitions for a Kubernetes cluster.

- *Names*: in paths and on the command line, with the short names; the kind itself is a name, too.
- *Versions*: those that are served; the first is the one that objects are kept in.
- *Columns*: after the name in tables; those in parentheses with `-o wide`. The kinds of Istio and of the Gateway API have the age, too.
- *Effect*: whether proxies are given something because of it today. Whatever has none is accepted with one warning.
";

const HEAD: &str = "\
| Kind | API group | Names | Versions | Namespaced | Status | Columns | Effect |
|---|---|---|---|---|---|---|---|
";

const FIELDS: &str = "
## Fields without effect

Fields of kinds that have an effect, which are read and validated but change nothing yet. An object that has one is accepted
with a warning that names the field. The way to a field begins at `spec`; `[]` stands for every entry of a list.
";

const REFUSALS: &str = "
## What is refused

An object is judged in three steps, each of which says all that is wrong at once; what comes to the third has passed the
others:

1. by the schema of its kind: types, what must be there, bounds, patterns, and keys of lists;
2. by the rules in CEL of the schema, unless a type is wrong or something needed is missing;
3. by its meaning: what Istio's validation webhook refuses, such as weights that are all 0, a port that is there twice, or
   a regular expression that is none.

The first two are those of a Kubernetes API server that has the definitions of `rutter crds`, and so are the words. Two
differ: of fields that exclude each other the message names the fields, and not the schema (`oneOf`); and a text that is no
duration is refused by the third step.

`rutter validate` says the same of files, with line and column, without a server.

The mesh configuration (MeshConfig) is no object of the API; it comes from a file ([configuration files](../guides/configuration-files.md)).

The Gateway API writes durations in whole numbers with the units `h`, `m`, `s` and `ms`, such as `1m30s` or `250ms`, up to
`99999h59m59s999ms`. Istio's kinds take fractions, too: `1.5s`.
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
    let group = if definition.group.is_empty() {
        "core".to_owned()
    } else {
        format!("`{}`", definition.group)
    };
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
    let name = |column: &crate::schema::Column| match column.priority {
        0 => column.name.to_owned(),
        _ => format!("({})", column.name),
    };
    definition.columns.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn effect(definition: &Definition) -> &'static str {
    match definition.mesh {
        None => "kept",
        Some(Kind::KubeGateway) => "as the gateway of a network, not yet otherwise",
        Some(kind) if KINDS_NOT_YET.contains(&kind) => "none yet",
        Some(kind) if NOT_YET.iter().any(|entry| entry.kind == kind) => "yes, but for some fields (below)",
        Some(_) => "yes",
    }
}

fn list(values: &[&str], and: &str) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{}{and}{last}", rest.join(", ")),
        None => String::new(),
    }
}
