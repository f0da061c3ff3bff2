//! The reference page of metrics, generated from the string literals that name and describe them in the sources; and a
//! check that the dashboard and the alerts use only these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from the sources by `cargo xtask docs`; do not edit. -->

Rutter serves these metrics in the Prometheus text format at `/metrics` on the monitoring port (15014). A metric that means the same
in istiod has istiod's name. The metrics of the process (`process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_open_fds` and others) have the names that Prometheus' client libraries use. There are no metrics of a Go runtime (`go_*`).
[Monitoring](../operations/monitoring.md) says which to watch.

| Metric | Type | Meaning |
|---|---|---|
";

/// The code before a metric's name in the sources, and the type that it implies.
const TYPES: [(&str, &str); 8] = [
    ("counter(", "counter"),
    ("counter_by(", "counter"),
    ("by_type(out,", "counter"),
    ("gauge(", "gauge"),
    ("gauge_by(", "gauge"),
    ("by_cluster(", "gauge"),
    ("histogram(", "histogram"),
    ("format!(", "gauge"),
];

/// What the names of metrics begin with.
const PREFIXES: [&str; 8] = [
    "auto_registration_",
    "pilot_",
    "rutter_",
    "istiod_",
    "istio_build",
    "galley_",
    "sidecar_injection_",
    "citadel_server_",
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
    TYPES.iter().find(|(call, _)| before.ends_with(call)).map_or("counter", |(_, kind)| kind)
}

fn collect(source: &str, out: &mut BTreeMap<String, (&'static str, String)>) {
    for prefix in PREFIXES {
        for (at, _) in source.match_indices(&format!("\"{prefix}")) {
            let Some((name, rest)) = literal(&source[at..]) else {
                continue;
            };
            let name = name.replace("{}", "TYPE");
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
            if !name.replace("TYPE", "").chars().all(is_name) {
                continue;
            }
            let before = &source[..at];
            // The help follows the name, unless it is a variable that is declared just before.
            let help = match rest.trim_start_matches(',').trim_start().starts_with("help,")
                || before.trim_end().ends_with("format!(")
            {
                true => before.rfind("let help").and_then(|from| literal(&before[from..])),
                false => literal(rest),
            };
            if let Some((help, _)) = help {
                out.insert(name, (kind(before), help));
            }
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
        "pilot_k8s_cfg_events",
        "rutter_api_requests_total",
        "galley_validation_failed",
    ] {
        assert!(page.contains(&format!("| `{name}` | ")), "{name} is missing");
    }
}

/// What the names of Rutter's metrics in dashboards begin with.
const USED: [&str; 4] = ["pilot_", "rutter_", "galley_", "istiod_"];
/// Suffixes that a histogram's series have.
const SERIES: [&str; 3] = ["_bucket", "_sum", "_count"];

fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of Rutter's metrics in expressions.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| USED.iter().any(|prefix| word.starts_with(prefix))).collect()
}

fn expressions(value: &serde_json::Value, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            out.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, out));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| expressions(item, out)),
        _ => {}
    }
}

#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_exist() {
    let reference = reference();
    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let mut used = Vec::new();
    expressions(&dashboard, &mut used);
    assert!(used.len() > 10, "the dashboard has only {} expressions", used.len());
    let alerts = read("deploy/monitoring/alerts.yaml");
    used.extend(
        alerts.lines().filter(|line| line.contains("expr:") || line.contains(" or rutter_")).map(str::to_owned),
    );
    for expression in used {
        for name in metrics(&expression) {
            let plain = SERIES.iter().find_map(|series| name.strip_suffix(series)).unwrap_or(name);
            let exists = [name, plain].iter().any(|name| reference.contains(&format!("| `{name}` | ")));
            assert!(exists, "{name} is not in docs/reference/metrics.md, in: {expression}");
        }
    }
}
