//! The dashboard and the alerts use only metrics that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the names of Rutter's metrics begin with.
const PREFIXES: [&str; 4] = ["pilot_", "rutter_", "galley_", "istiod_"];
/// Suffixes that a histogram's series have.
const SERIES: [&str; 3] = ["_bucket", "_sum", "_count"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of Rutter's metrics in expressions.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix))).collect()
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
    let reference = read("docs/reference/metrics.md");
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
