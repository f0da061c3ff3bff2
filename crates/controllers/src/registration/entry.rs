//! A WorkloadEntry as the API returns it: the fields that name the replica which controls it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "istio.io/autoRegistrationGroup";
pub(super) const CONTROLLER: &str = "istio.io/workloadController";
pub(super) const CONNECTED: &str = "istio.io/connectedAt";
pub(super) const DISCONNECTED: &str = "istio.io/disconnectedAt";
pub(super) const HEALTH_CHECKED: &str = "proxy.istio.io/health-checks-enabled";
/// The type of the condition.
const HEALTHY: &str = "Healthy";

/// A time, in nanoseconds since 1970.
pub type Nanos = i64;

/// The control of a WorkloadEntry, from its annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Control {
    /// The replica to which its proxy is or was connected; empty if there was none.
    pub controller: Arc<str>,
    /// Whether it was created for its proxy.
    pub registered: bool,
    /// When its proxy connected; none if it has disconnected.
    pub connected: Option<Nanos>,
    /// When its proxy disconnected.
    pub disconnected: Option<Nanos>,
}

impl Control {
    /// Reads annotations.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Control {
        let time = |name: &str| DateTime::parse_from_rfc3339(annotation(name)?).ok()?.timestamp_nanos_opt();
        Control {
            controller: annotation(CONTROLLER).unwrap_or_default().into(),
            registered: annotation(GROUP).is_some_and(|group| !group.is_empty()),
            connected: time(CONNECTED),
            disconnected: time(DISCONNECTED),
        }
    }

    /// Whether its proxy is connected to a replica.
    pub fn is_connected(&self) -> bool {
        self.connected.is_some() && self.disconnected.is_none()
    }
}

/// A WorkloadEntry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub version: Arc<str>,
    pub uid: Arc<str>,
    pub control: Control,
    /// Whether its proxy may report health.
    pub checked: bool,
    pub account: String,
    conditions: Vec<Value>,
}

/// A report of the health of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Report {
    /// The error; none if the workload is healthy.
    pub error: Option<String>,
    pub at: Nanos,
}

impl Entry {
    pub(super) fn of(object: &Value) -> Entry {
        let meta = &object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().into();
        Entry {
            version: text("resourceVersion"),
            uid: text("uid"),
            control: Control::of(|name| meta["annotations"][name].as_str()),
            checked: meta["annotations"].get(HEALTH_CHECKED).is_some(),
            account: object["spec"]["serviceAccount"].as_str().unwrap_or_default().to_owned(),
            conditions: object["status"]["conditions"].as_array().cloned().unwrap_or_default(),
        }
    }

    fn condition(&self) -> Option<&Value> {
        self.conditions.iter().find(|one| one["type"] == HEALTHY)
    }

    /// Whether the entry is to be cleaned up: its proxy left before the grace period, or it is connected for longer than
    /// any connection lasts.
    pub(super) fn is_over(&self, now: Nanos, grace: Nanos, longest: Option<Nanos>) -> bool {
        let ours = self.control.registered || (!self.control.controller.is_empty() && self.condition().is_some());
        ours && match (self.control.connected, self.control.disconnected) {
            (Some(at), _) => longest.is_some_and(|longest| now.saturating_sub(at) > longest),
            (None, Some(at)) => now.saturating_sub(at) >= grace,
            (None, None) => false,
        }
    }

    /// The conditions with a report; `None` if the entry has it, or has a newer one.
    pub(super) fn with(&self, report: &Report) -> Option<Vec<Value>> {
        let status = if report.error.is_none() { "True" } else { "False" };
        let message = report.error.as_deref().unwrap_or_default();
        if let Some(now) = self.condition() {
            let is_same = now["status"] == status && now["message"].as_str().unwrap_or_default() == message;
            let probed = now["lastProbeTime"].as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
            if is_same || probed.and_then(|time| time.timestamp_nanos_opt()).is_some_and(|time| time > report.at) {
                return None;
            }
        }
        let mut condition = json!({
            "type": HEALTHY,
            "status": status,
            "lastProbeTime": format(report.at),
            "lastTransitionTime": format(report.at),
        });
        if !message.is_empty() {
            condition["message"] = message.into();
        }
        let mut conditions = self.without();
        conditions.push(condition);
        Some(conditions)
    }

    /// The conditions without the health.
    pub(super) fn without(&self) -> Vec<Value> {
        self.conditions.iter().filter(|one| one["type"] != HEALTHY).cloned().collect()
    }
}

/// A time in RFC 3339.
pub(super) fn format(at: Nanos) -> String {
    DateTime::from_timestamp_nanos(at).to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Annotations to merge; `None` removes one.
pub(super) fn annotations(set: [(&str, Option<String>); 3]) -> Value {
    let set: BTreeMap<&str, Option<String>> = set.into_iter().collect();
    json!({"metadata": {"annotations": set}})
}
