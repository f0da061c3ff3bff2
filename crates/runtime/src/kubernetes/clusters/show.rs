//! The status of the other clusters on `/ready`, `/metrics` and `/debug/clusterz`.

use serde_json::{Value, json};
use server::Metric;
use sources::kubernetes::Report;

use super::super::serving_status::listed;
use super::Fleet;
use super::member::Member;

/// The maximum number of clusters and Secrets that are listed.
const LISTED: usize = 10;

impl Fleet {
    /// Publishes the status.
    pub(super) fn show(&self) {
        let listeners = &self.listeners;
        listeners.serving_status.set("clusters", self.conflicts(), self.metrics());
        listeners.serving_status.set_clusters(self.page());
        let awaited = self.awaited();
        listeners.awaited.send_if_modified(|before| {
            let differs = *before != awaited;
            *before = awaited;
            differs
        });
    }

    /// The clusters and Secrets that are not synced at the start.
    fn awaited(&self) -> String {
        if self.begun {
            return String::new();
        }
        if !self.listed {
            let why = self.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            return format!("the kubeconfigs of other clusters{why}");
        }
        let slow = self.members.iter().filter(|(_, member)| !member.is_settled());
        let slow = slow.map(|(cluster, member)| match why(&member.report()) {
            Some(why) => format!("cluster {cluster}: {why}"),
            None => format!("cluster {cluster}"),
        });
        slow.take(LISTED).collect::<Vec<_>>().join(", ")
    }

    fn conflicts(&self) -> Vec<String> {
        let mut lines = Vec::new();
        // A watch that recovers reports nothing until an object changes, so the home cluster's status decides.
        let fails = !self.listed || !self.home.borrow().failing.is_empty();
        if let Some(trouble) = self.trouble.as_ref().filter(|_| fails) {
            lines.push(format!("the kubeconfigs of other clusters cannot be read: {trouble}"));
        }
        let remembered = self.remembered.iter().flatten().map(|cluster| &**cluster);
        let remembered = listed(remembered).filter(|_| !self.listed);
        lines.extend(remembered.map(|names| format!("serving snapshots of an earlier run of the clusters {names}")));
        let wrong = self.members.iter().filter_map(|(cluster, member)| conflict(cluster, member));
        lines.extend(wrong.take(LISTED));
        lines.extend(self.refused.values().flatten().take(LISTED).cloned());
        lines
    }

    fn metrics(&self) -> Vec<Metric> {
        let each = |number: &dyn Fn(&Member) -> f64| -> Vec<(String, f64)> {
            let samples = self.members.iter().map(|(cluster, member)| (cluster.to_string(), number(member)));
            samples.collect()
        };
        let by_cluster =
            |name, help, number: &dyn Fn(&Member) -> f64| Metric::gauge_by(name, help, &["cluster"], each(number));
        let flag = |yes: bool| if yes { 1.0 } else { 0.0 };
        vec![
            Metric::gauge_by(
                "istiod_managed_clusters",
                "Clusters that are read",
                &["cluster_type"],
                vec![("local".to_owned(), 1.0), ("remote".to_owned(), self.members.len() as f64)],
            ),
            by_cluster("rutter_cluster_synced", "Whether all kinds of a remote cluster have been read", &|member| {
                flag(member.report().synced)
            }),
            by_cluster(
                "rutter_cluster_late",
                "Whether a remote cluster did not respond in time at startup",
                &|member| flag(member.status() == "timeout"),
            ),
            by_cluster("rutter_cluster_objects", "Objects read from a remote cluster", &|member| {
                member.report().objects as f64
            }),
            by_cluster(
                "rutter_cluster_failing",
                "Kinds of a remote cluster that cannot be read at the moment",
                &|member| {
                    let report = member.report();
                    (report.failing.len() + report.denied.len()) as f64
                },
            ),
            Metric::gauge(
                "rutter_cluster_secrets_wrong",
                "Secrets for remote clusters with errors",
                self.refused.len() as f64,
            ),
        ]
    }

    /// The response of `/debug/clusterz`, in istiod's format.
    fn page(&self) -> Vec<Value> {
        let own = match self.home.borrow().synced {
            true => "synced",
            false => "syncing",
        };
        let home = json!({"id": &*self.options.home, "secretName": "", "syncStatus": own});
        let others = self.members.iter().map(
            |(cluster, member)| json!({"id": &**cluster, "secretName": member.secret.trim_start_matches("Secret "), "syncStatus": member.status()}),
        );
        std::iter::once(home).chain(others).collect()
    }
}

fn conflict(cluster: &str, member: &Member) -> Option<String> {
    let report = member.report();
    let secret = &member.secret;
    let why = why(&report);
    let because = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    match (report.synced, report.from_snapshot, member.knows()) {
        (true, ..) => why.map(|why| format!("cluster {cluster}: {why}; what it had stays")),
        (false, true, _) => {
            Some(format!("cluster {cluster} ({secret}): serving the snapshot of an earlier run{because}"))
        }
        (false, false, true) => Some(format!(
            "cluster {cluster} was not read by the new kubeconfig of {secret} yet: what it had stays{because}"
        )),
        (false, false, false) => Some(format!("cluster {cluster} ({secret}) was not read yet{because}")),
    }
}

/// Why a cluster, or some of its kinds, cannot be read.
fn why(report: &Report) -> Option<String> {
    if let Some((kind, reason)) = report.failing.first_key_value() {
        return Some(format!("its API does not answer for {kind}: {reason}"));
    }
    let denied = listed(report.denied.keys().map(String::as_str));
    denied.map(|kinds| format!("we may not read {kinds}"))
}
