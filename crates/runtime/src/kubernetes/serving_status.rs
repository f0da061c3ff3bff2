//! The status of the Kubernetes source on `/ready` and `/metrics`.

use server::{Metric, ServingStatus};
use sources::kubernetes::Report;
use tokio::sync::watch;

/// The maximum number of kinds that a line names.
const NAMED: usize = 6;

/// Publishes the reports of the source until it ends.
pub(super) async fn show(mut report: watch::Receiver<Report>, serving_status: ServingStatus) {
    loop {
        {
            let now = report.borrow_and_update();
            serving_status.set("kubernetes", conflicts(&now), metrics(&now));
        }
        if report.changed().await.is_err() {
            return;
        }
    }
}

/// The kinds that the source waits for and the reasons, in one line.
pub(crate) fn waiting(report: &Report) -> String {
    let mut parts: Vec<String> = conflicts(report);
    let names = report.waiting.iter().map(String::as_str);
    parts.extend(listed(names).map(|names| format!("not synced: {names}")));
    parts.join("; ")
}

fn conflicts(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.from_snapshot {
        lines.push("serving the snapshot of an earlier run: the Kubernetes API is not synced".to_owned());
    }
    let without = listed(report.without.iter().map(String::as_str));
    lines.extend(without.map(|kinds| {
        format!("SERVING WITHOUT {kinds}: the Kubernetes API has not returned them since the start; they are used once it does")
    }));
    let denied = listed(report.denied.keys().map(String::as_str));
    lines.extend(denied.map(|kinds| format!("access denied to {kinds}; serving without them")));
    if let Some(reason) = report.failing.values().next() {
        let kinds = listed(report.failing.keys().map(String::as_str)).unwrap_or_default();
        lines.push(format!("cannot read {kinds} from the Kubernetes API: {reason}"));
    }
    if report.mesh_rejected {
        lines.push("the mesh configuration is invalid: its last valid version is in effect".to_owned());
    }
    lines
}

/// Joins the first names and the number of further ones; `None` if there are none.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    let more = names.len().saturating_sub(NAMED);
    let shown = names[..names.len() - more].join(", ");
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown),
        (false, more) => Some(format!("{shown} and {more} more")),
    }
}

fn metrics(report: &Report) -> Vec<Metric> {
    let flag = |yes: bool| if yes { 1.0 } else { 0.0 };
    let by_kind =
        |kinds: Vec<&String>| -> Vec<(String, f64)> { kinds.into_iter().map(|kind| (kind.clone(), 1.0)).collect() };
    vec![
        Metric::gauge(
            "rutter_kubernetes_synced",
            "Whether all kinds of the Kubernetes API are synced",
            flag(report.synced),
        ),
        Metric::gauge("rutter_kubernetes_objects", "Objects read from the Kubernetes API", report.objects as f64),
        Metric::gauge("rutter_kubernetes_lists", "Completed lists of objects", report.lists as f64),
        Metric::gauge(
            "rutter_kubernetes_from_snapshot",
            "Whether the snapshot of an earlier run is served because the Kubernetes API is not synced",
            flag(report.from_snapshot),
        ),
        Metric::gauge(
            "rutter_mesh_config_rejected",
            "Whether the mesh configuration is invalid and its last valid version is in effect",
            flag(report.mesh_rejected),
        ),
        Metric::gauge_by(
            "rutter_kubernetes_denied",
            "Kinds that the Kubernetes API denies access to",
            &["kind"],
            by_kind(report.denied.keys().collect()),
        ),
        Metric::gauge_by(
            "rutter_kubernetes_without",
            "Kinds that were never synced and that Rutter serves without",
            &["kind"],
            by_kind(report.without.iter().collect()),
        ),
        Metric::gauge_by(
            "rutter_kubernetes_failing",
            "Kinds that cannot be read at the moment",
            &["kind"],
            by_kind(report.failing.keys().collect()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_kinds_are_reported_in_one_line() {
        let mut report = Report::default();
        assert_eq!(waiting(&report), "");
        report.waiting.insert("pods".into());
        report.denied.insert("nodes".into(), "forbidden".into());
        let line = waiting(&report);
        assert_eq!(line, "access denied to nodes; serving without them; not synced: pods");
        for number in 0..9 {
            report.failing.insert(format!("k{number}"), "connection refused".into());
        }
        assert!(
            conflicts(&report)[1].ends_with("k4, k5 and 3 more from the Kubernetes API: connection refused"),
            "{:?}",
            conflicts(&report)
        );
    }
}
