//! Checks the field tables in docs/reference/fields.md: they list every field and no others, and their effects and tests
//! are correct.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use config::schema::{Schema, Shape};
use config::{Kind, effects};

/// Kinds outside `networking.istio.io` that have a table.
const OTHER_KINDS: [Kind; 3] = [Kind::MeshConfig, Kind::MeshNetworks, Kind::PeerAuthentication];

/// A row: path, effect, version and tests.
struct Row {
    kind: Kind,
    /// Prefix of the table's paths, relative to `spec`.
    below: &'static str,
    line: usize,
    cells: [String; 4],
}

impl Row {
    fn path(&self) -> String {
        format!("{}{}", self.below, self.cells[0].trim_matches('`'))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rows of the section `Fields`.
fn rows(page: &str) -> Vec<Row> {
    let (mut rows, mut table, mut inside) = (Vec::new(), None, false);
    for (line, text) in page.lines().enumerate() {
        if let Some(heading) = text.strip_prefix("## ") {
            inside = heading == "Fields";
        } else if let Some(heading) = text.strip_prefix("### ").filter(|_| inside) {
            table = Some(match heading {
                "ProxyConfig of the mesh" => (Kind::MeshConfig, "defaultConfig."),
                name => (*Kind::ALL.iter().find(|kind| kind.name() == name).expect(name), ""),
            });
        } else if inside && text.starts_with("| `") {
            let cells: Vec<String> = text.trim_matches('|').split(" | ").map(|c| c.trim().to_owned()).collect();
            let (kind, below) = table.expect("a table has a heading");
            let cells = cells.try_into().unwrap_or_else(|_| panic!("line {}: {text}", line + 1));
            rows.push(Row { kind, below, line, cells });
        }
    }
    rows
}

fn spec(kind: Kind) -> Schema {
    let content = kind.content_schema();
    content.field("spec").map_or_else(|| (*content).clone(), |spec| (**spec).clone())
}

/// Schema of the field at a path.
fn at(schema: &Schema, path: &str) -> Option<Schema> {
    path.split('.').try_fold(schema.clone(), |schema, step| {
        let name = step.trim_end_matches("[]");
        let Shape::Object(fields) = &schema.shape else {
            return None;
        };
        let found = fields.get(name)?;
        match (step.ends_with("[]"), &found.shape) {
            (true, Shape::List(items, ..)) => Some((**items).clone()),
            (false, Shape::List(..)) | (true, _) => None,
            (false, _) => Some((**found).clone()),
        }
    })
}

/// Paths of all fields whose values are not objects with fields.
fn leaves(schema: &Schema, path: &str, out: &mut BTreeSet<String>) {
    let join = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    match &schema.shape {
        Shape::Object(fields) if !fields.fields.is_empty() => {
            for (name, inner) in &fields.fields {
                leaves(inner, &join(name), out);
            }
        }
        Shape::List(items, ..) => leaves(items, &format!("{path}[]"), out),
        _ => {
            out.insert(path.to_owned());
        }
    }
}

/// Whether `path` is `above` or a path within it.
fn is_in(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/reference/fields.md")).expect("docs/reference/fields.md")
}

#[test]
fn tables_list_every_field_and_no_others() {
    let page = page();
    let rows = rows(&page);
    let mut wrong = Vec::new();
    for row in &rows {
        if at(&spec(row.kind), &row.path()).is_none() {
            wrong.push(format!("line {}: {} has no field {}", row.line + 1, row.kind, row.path()));
        }
    }
    let kinds = Kind::ALL.iter().filter(|kind| kind.group() == "networking.istio.io" || OTHER_KINDS.contains(kind));
    for kind in kinds {
        let mut paths = BTreeSet::new();
        leaves(&spec(*kind), "", &mut paths);
        let of_kind: Vec<String> = rows.iter().filter(|row| row.kind == *kind).map(Row::path).collect();
        let missing = paths.iter().filter(|path| !of_kind.iter().any(|row| is_in(path, row)));
        wrong.extend(missing.map(|path| format!("{kind}: no row for {path}")));
    }
    assert!(wrong.is_empty(), "docs/reference/fields.md:\n{}", wrong.join("\n"));
}

#[test]
fn tests_in_the_tables_exist() {
    let sources: String = fs::read_dir(root().join("tests/e2e/tests"))
        .expect("tests")
        .filter_map(|entry| fs::read_to_string(entry.expect("a file").path()).ok())
        .collect();
    let page = page();
    for row in rows(&page) {
        for test in row.cells[3].split(", ").map(|test| test.trim_matches('`')) {
            let exists = match test.split_once('/') {
                Some(_) => root().join(format!("tests/scenarios/data/{test}.scenario")).exists(),
                None if matches!(test, "validation" | "mesh") => true,
                None => sources.contains(&format!("fn {test}(")),
            };
            assert!(exists, "line {}: there is no test {test}", row.line + 1);
        }
    }
}

/// `RUTTER_UPDATE_DOCS`, which `cargo xtask docs` sets, writes the column instead of checking it.
#[test]
fn fields_page_lists_what_has_no_effect_yet() {
    let old = page();
    let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
    for row in rows(&old) {
        let fields = effects::fields_not_yet(row.kind);
        let path = row.path();
        let whole = effects::KINDS_NOT_YET.contains(&row.kind) || fields.iter().any(|field| is_in(&path, field));
        let part = fields.iter().any(|field| is_in(field, &path));
        let version = env!("CARGO_PKG_VERSION").rsplit_once('.').map_or("", |(version, _)| version);
        let since = match row.cells[2].as_str() {
            _ if whole => "not yet",
            _ if part => "in part",
            "not yet" | "in part" => version,
            since => since,
        };
        let [field, effect, _, tests] = &row.cells;
        lines[row.line] = format!("| {field} | {effect} | {since} | {tests} |");
    }
    let new = lines.join("\n") + "\n";
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        fs::write(root().join("docs/reference/fields.md"), &new).expect("docs can be written");
    }
    assert!(page() == new, "docs/reference/fields.md is not as `config::effects` says; run `cargo xtask docs`");
}
