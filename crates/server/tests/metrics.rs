//! The reference page of metrics, generated from the string literals that name and describe them in the sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from the sources by `cargo xtask docs`; do not edit. -->

Rutter serves these metrics in the Prometheus text format at `/metrics` on the monitoring port (15014). Counters end in `_total`,
except those with istiod's names. [Monitoring](../operations/monitoring.md) says which to watch.

| Metric | Type | Meaning |
|---|---|---|
";

/// The text before a metric's name in the sources, and the type that it implies.
const TYPES: [(&str, &str); 8] = [
    ("counter(", "counter"),
    ("by_type(", "counter"),
    ("istio(", "istiod's counter"),
    ("gauge(", "gauge"),
    ("Gauge::one(", "gauge"),
    ("by_cluster(", "gauge"),
    ("name: ", "gauge"),
    ("format!(", "gauge"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All source files below a directory.
fn sources(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// The text of the string literal that begins after the first quotation mark, with continuation lines joined, and the rest.
fn literal(text: &str) -> Option<(String, &str)> {
    let text = &text[text.find('"')? + 1..];
    let end = text.find('"')?;
    let lines = text[..end].split("\\\n").map(str::trim_start);
    Some((lines.collect(), &text[end + 1..]))
}

/// The type of a metric, by the code before its name. Counters of a table have nothing before them but a parenthesis.
fn kind(before: &str) -> &'static str {
    let before = before.trim_end();
    let found = TYPES.iter().find(|(call, _)| before.ends_with(call.trim_end()));
    match found {
        Some((_, kind)) => kind,
        None if before.ends_with("encode_descriptor(") => "histogram",
        None => "counter",
    }
}

fn collect(source: &str, out: &mut BTreeMap<String, (&'static str, String)>) {
    for prefix in ["\"pilot_", "\"rutter_", "\"istiod_"] {
        for (at, _) in source.match_indices(prefix) {
            let Some((name, rest)) = literal(&source[at..]) else {
                continue;
            };
            let plain = name.replace("{}", "TYPE");
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
            if !plain.replace("TYPE", "").chars().all(is_name) {
                continue;
            }
            let before = &source[..at];
            let kind = kind(before);
            let help = match kind {
                // The help of the histogram is a variable that is declared just before.
                "histogram" => before.rfind("let help").and_then(|from| literal(&before[from..])),
                _ => literal(rest),
            };
            let Some((help, _)) = help else {
                continue;
            };
            let name = if kind == "counter" { format!("{plain}_total") } else { plain };
            out.insert(name, (kind.trim_start_matches("istiod's "), help));
        }
    }
}

fn reference() -> String {
    let mut files = Vec::new();
    for crate_directory in fs::read_dir(root().join("crates")).into_iter().flatten().flatten() {
        sources(&crate_directory.path().join("src"), &mut files);
    }
    let mut metrics = BTreeMap::new();
    for file in files {
        collect(&fs::read_to_string(file).unwrap_or_default(), &mut metrics);
    }
    let mut page = INTRODUCTION.to_owned();
    for (name, (kind, help)) in metrics {
        let _ = writeln!(page, "| `{name}` | {kind} | {help} |");
    }
    page
}

/// `RUTTER_UPDATE_DOCS` (which `cargo xtask docs` sets) writes the page instead of checking it.
#[test]
fn the_reference_page_is_up_to_date() {
    let path = root().join("docs/reference/metrics.md");
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        fs::write(&path, reference()).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == reference(), "docs/reference/metrics.md differs from the sources; run `cargo xtask docs`");
    for name in [
        "pilot_xds",
        "pilot_total_xds_rejects",
        "rutter_commits_total",
        "pilot_proxy_convergence_time",
        "rutter_world_step_seconds",
    ] {
        assert!(page.contains(&format!("| `{name}` | ")), "{name} is missing");
    }
}
