//! How it stands with the Kubernetes API, for those who look at `/ready` and `/metrics`.

use server::{Gauge, Standing};
use sources::kubernetes::Report;
use tokio::sync::watch;

/// Kinds that are named in one line; of more, only their number is told.
const NAMED: usize = 6;

/// Shows what is reported, until nobody reports any more.
pub(super) async fn show(mut report: watch::Receiver<Report>, standing: Standing) {
    loop {
        {
            let now = report.borrow_and_update();
            standing.set("kubernetes", conflicts(&now), gauges(&now));
        }
        if report.changed().await.is_err() {
            return;
        }
    }
}

/// What is waited for, and why it does not come, in one line.
pub(crate) fn waiting(report: &Report) -> String {
    let mut parts: Vec<String> = conflicts(report);
    let names = report.waiting.iter().map(String::as_str);
    parts.extend(listed(names).map(|names| format!("not read yet: {names}")));
    parts.join("; ")
}

fn conflicts(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.from_snapshot {
        lines.push("serving the snapshot of an earlier run: the Kubernetes API was not read yet".to_owned());
    }
    let without = listed(report.without.iter().map(String::as_str));
    lines.extend(without.map(|kinds| {
        format!("SERVING WITHOUT {kinds}: the Kubernetes API has not given them since the start; they are used as soon as it does")
    }));
    let denied = listed(report.denied.keys().map(String::as_str));
    lines.extend(denied.map(|kinds| format!("we may not read: {kinds}; the others are served without them")));
    if let Some(reason) = report.failing.values().next() {
        let kinds = listed(report.failing.keys().map(String::as_str)).unwrap_or_default();
        lines.push(format!("the Kubernetes API does not answer for {kinds}: {reason}"));
    }
    if report.mesh_rejected {
        lines.push("the mesh configuration is not valid: its last good version is in force".to_owned());
    }
    lines
}

/// The first names, and how many more there are; none: there are none.
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

fn gauges(report: &Report) -> Vec<Gauge> {
    let flag = |yes: bool| if yes { 1.0 } else { 0.0 };
    let by_kind = |kinds: Vec<&String>| kinds.into_iter().map(|kind| (kind.clone(), 1.0)).collect();
    vec![
        Gauge::one(
            "rutter_kubernetes_synced",
            "Whether everything that the Kubernetes API serves was read once",
            flag(report.synced),
        ),
        Gauge::one(
            "rutter_kubernetes_objects",
            "Objects read from the Kubernetes API",
            report.objects as f64,
        ),
        Gauge::one(
            "rutter_kubernetes_lists",
            "Lists of objects that were read to their end",
            report.lists as f64,
        ),
        Gauge::one(
            "rutter_kubernetes_from_snapshot",
            "Whether the snapshot of an earlier run is served, for the Kubernetes API was not read yet",
            flag(report.from_snapshot),
        ),
        Gauge::one(
            "rutter_mesh_config_rejected",
            "Whether the text of the mesh configuration is not valid, so that its last good version is in force",
            flag(report.mesh_rejected),
        ),
        Gauge {
            name: "rutter_kubernetes_denied",
            help: "Kinds that we may not read",
            label: "kind",
            samples: by_kind(report.denied.keys().collect()),
        },
        Gauge {
            name: "rutter_kubernetes_without",
            help: "Kinds that were never read, and that the others are served without",
            label: "kind",
            samples: by_kind(report.without.iter().collect()),
        },
        Gauge {
            name: "rutter_kubernetes_failing",
            help: "Kinds that cannot be read now",
            label: "kind",
            samples: by_kind(report.failing.keys().collect()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let mut report = Report::default();
        assert_eq!(waiting(&report), "");
        report.waiting.insert("pods".into());
        report.denied.insert("nodes".into(), "forbidden".into());
        let said = waiting(&report);
        assert_eq!(
            said,
            "we may not read: nodes; the others are served without them; not read yet: pods"
        );
        for number in 0..9 {
            report.failing.insert(format!("k{number}"), "connection refused".into());
        }
        assert!(
            conflicts(&report)[1].ends_with("k4, k5 and 3 more: connection refused"),
            "{:?}",
            conflicts(&report)
        );
    }
}
