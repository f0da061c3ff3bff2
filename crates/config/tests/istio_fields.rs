//! The fields of Istio's kinds are those of its published CRDs.
//!
//! `istio_fields.txt` has the names of all fields, by message. For a new version of Istio, replace it with the names in the
//! new CRDs: the test then names the fields that are new or gone.

use std::collections::{BTreeMap, BTreeSet};

use config::schema::{Schema, Shape, definitions};

const PUBLISHED: &str = include_str!("istio_fields.txt");

/// Fields that are declared although the CRDs lack them, with the reason.
const ADDITIONAL: &[(&str, &str, &str)] = &[];

/// The names of the fields of each message, by the path of the message.
type Messages = BTreeMap<String, BTreeSet<String>>;

fn published() -> Messages {
    let lines = PUBLISHED.lines().filter(|line| !line.starts_with('#'));
    let message = |line: &str| {
        let (path, names) = line.split_once(": ").expect("a message");
        (path.to_owned(), names.split(' ').map(str::to_owned).collect())
    };
    lines.map(message).collect()
}

fn walk(schema: &Schema, path: String, out: &mut Messages) {
    match &schema.shape {
        Shape::Object(fields) if !fields.fields.is_empty() => {
            for (name, field) in &fields.fields {
                walk(field, format!("{path}.{name}"), out);
            }
            let names = fields.fields.iter().map(|(name, _)| *name);
            let spellings = fields.spellings.iter().map(|(spelling, _)| *spelling);
            out.insert(path, names.chain(spellings).map(str::to_owned).collect());
        }
        Shape::Map(inner, _) => walk(inner, path + "{}", out),
        Shape::List(inner, ..) => walk(inner, path + "[]", out),
        _ => {}
    }
}

fn declared() -> Messages {
    let mut out = Messages::new();
    for definition in definitions().iter().filter(|d| d.group.ends_with("istio.io") && d.mesh.is_some()) {
        if let Some(spec) = definition.schema.field("spec") {
            walk(spec, definition.kind.to_owned(), &mut out);
        }
    }
    out
}

#[test]
fn declarations_have_the_fields_of_the_published_crds() {
    let (published, declared) = (published(), declared());
    let kinds: BTreeSet<&str> = published.keys().filter_map(|path| path.split(['.', '[', '{']).next()).collect();
    assert!(kinds.len() >= 13, "{kinds:?}");
    let mut news = Vec::new();
    for (path, names) in &published {
        let own = declared.get(path).cloned().unwrap_or_default();
        news.extend(names.difference(&own).map(|name| format!("not declared: {path}.{name}")));
    }
    let of_kind = |path: &&String| path.split(['.', '[', '{']).next().is_some_and(|kind| kinds.contains(kind));
    for (path, names) in declared.iter().filter(|(path, _)| of_kind(path)) {
        let known = published.get(path).cloned().unwrap_or_default();
        let extra = names.difference(&known);
        let extra = extra.filter(|name| !ADDITIONAL.iter().any(|(at, field, _)| at == path && field == name));
        news.extend(extra.map(|name| format!("not published: {path}.{name}")));
    }
    assert!(news.is_empty(), "{} differences:\n{}", news.len(), news.join("\n"));
}
