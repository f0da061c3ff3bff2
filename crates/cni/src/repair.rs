//! Repairs pods that were started before the plugin was there: their init container `istio-validation` fails, because
//! connections are not redirected.

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use prometheus::IntCounterVec;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kubernetes::{pod_path, send};
use crate::netns;
use crate::plugin::make_rules;
use crate::pod::{Pod, Terminated};
use crate::settings::Settings;

/// Watches pods and repairs them.
pub(crate) struct Repair {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    /// `istio_cni_repair_pods_repaired_total`, by `type` and `result`.
    pub(crate) repaired: IntCounterVec,
    /// The pods that have got rules, by namespace and name, with their uid. They start again some time later.
    pub(crate) done: BTreeMap<(String, String), String>,
}

impl Repair {
    /// Watches until `stop` is true or closed. A failed repair is tried again at the next change of the pod: its container
    /// fails again and again.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let node = Some(&self.settings.repair_node).filter(|node| !node.is_empty());
        let fields = Some(self.settings.repair_fields.clone()).filter(|fields| !fields.is_empty());
        let fields: Vec<String> = fields.into_iter().chain(node.map(|node| format!("spec.nodeName={node}"))).collect();
        let config = watcher::Config::default().fields(&fields.join(",")).labels(&self.settings.repair_labels);
        let mut events = watcher::watcher(api, config).default_backoff().into_stream().boxed();
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match event {
                Ok(Some(Event::Apply(object) | Event::InitApply(object))) => self.seen(&object).await,
                Ok(Some(Event::Delete(object))) => {
                    let name = object.metadata.name.unwrap_or_default();
                    self.done.remove(&(object.metadata.namespace.unwrap_or_default(), name));
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => tracing::warn!("cannot watch pods: {error}"),
            }
        }
    }

    async fn seen(&mut self, object: &DynamicObject) {
        let value = serde_json::to_value(object).unwrap_or_default();
        let Ok(pod) = serde_json::from_value::<Pod>(value) else { return };
        if !is_broken(&self.settings, &pod) {
            return;
        }
        let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let (kind, result) = match &self.settings {
            settings if settings.repair_pods => ("repair", self.make_rules(pod).await),
            settings if settings.repair_delete => ("delete", self.delete(&pod).await),
            settings if settings.repair_label => ("label", self.label(&pod).await),
            _ => return,
        };
        let label = match &result {
            Ok(true) => "success",
            Ok(false) => "skip",
            Err(_) => "fail",
        };
        self.repaired.with_label_values(&[kind, label]).inc();
        match result {
            Ok(true) => tracing::info!(namespace, pod = name, action = kind, "repaired a pod without rules"),
            Ok(false) => {}
            Err(error) => tracing::error!(namespace, pod = name, action = kind, "cannot repair a pod: {error}"),
        }
    }

    async fn make_rules(&mut self, pod: Pod) -> Result<bool, String> {
        let key = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let uid = pod.metadata.uid.clone();
        if self.done.get(&key) == Some(&uid) {
            return Ok(false);
        }
        let address = pod.status.pod_ip.parse().map_err(|_| "it has no address yet".to_owned())?;
        let proc = self.settings.host_proc.clone();
        let find = tokio::task::spawn_blocking(move || netns::find(&proc, address)).await;
        let namespace: Option<PathBuf> = find.map_err(|error| error.to_string())?;
        let namespace = namespace.ok_or_else(|| format!("no process has a network namespace with {address}"))?;
        let namespace = namespace.to_string_lossy().into_owned();
        make_rules(pod, namespace, Vec::new(), self.settings.native_nftables).await?;
        self.done.insert(key, uid);
        Ok(true)
    }

    async fn delete(&self, pod: &Pod) -> Result<bool, String> {
        let of = &pod.metadata;
        // Only in the state that was looked at.
        let options = json!({ "preconditions": { "uid": of.uid, "resourceVersion": of.resource_version } });
        let path = pod_path(&of.namespace, &of.name);
        let result = send::<Value>(&self.client, Method::DELETE, &path, Some(&options)).await;
        self.event(pod, "DeleteBrokenPod", "delete", result.as_ref().err()).await;
        result.map(|_| true).map_err(|error| error.to_string())
    }

    async fn label(&self, pod: &Pod) -> Result<bool, String> {
        let Settings { repair_label_key: key, repair_label_value: value, .. } = &self.settings;
        if pod.metadata.labels.contains_key(key) {
            return Ok(false);
        }
        let patch = json!({ "metadata": { "labels": { key: value } } });
        // Labels may be changed by way of the status, for which fewer permissions are enough.
        let path = format!("{}/status", pod_path(&pod.metadata.namespace, &pod.metadata.name));
        let result = send::<Value>(&self.client, Method::PATCH, &path, Some(&patch)).await;
        self.event(pod, "LabelBrokenPod", "label", result.as_ref().err()).await;
        result.map(|_| true).map_err(|error| error.to_string())
    }

    /// Writes an event about a pod. It is not important enough to fail.
    async fn event(&self, pod: &Pod, reason: &str, action: &str, error: Option<&kube::Error>) {
        let of = &pod.metadata;
        let message = match error {
            None => format!("the pod has no rules for the capture of its traffic: {action} done"),
            Some(error) => format!("the pod has no rules for the capture of its traffic, and {action} failed: {error}"),
        };
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": format!("{}.", of.name), "namespace": of.namespace },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": of.name, "namespace": of.namespace, "uid": of.uid,
                "resourceVersion": of.resource_version,
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": { "component": "cni-repair" },
        });
        let path = format!("/api/v1/namespaces/{}/events", of.namespace);
        if let Err(error) = send::<Value>(&self.client, Method::POST, &path, Some(&event)).await {
            tracing::debug!("cannot write an event: {error}");
        }
    }
}

/// Whether the init container of a pod failed for want of rules.
fn is_broken(settings: &Settings, pod: &Pod) -> bool {
    let annotation = &settings.repair_annotation;
    if !annotation.is_empty() && !pod.metadata.annotations.contains_key(annotation) {
        return false;
    }
    let failed = |state: &Terminated| {
        let message = settings.repair_message.trim();
        (message.is_empty() || message == state.message.trim())
            && (settings.repair_exit_code == 0 || settings.repair_exit_code == state.exit_code)
    };
    pod.status.init_container_statuses.iter().any(|container| {
        let named = settings.repair_container.is_empty() || settings.repair_container == container.name;
        // One that succeeded in the end is not broken.
        let now = container.state.terminated.as_ref();
        let completed = now.is_some_and(|state| state.reason == "Completed" || state.exit_code == 0);
        named && !completed && container.last_state.terminated.as_ref().is_some_and(failed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(state: Value, last: Value) -> Pod {
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "annotations": { "sidecar.istio.io/status": "{}" } },
            "status": { "initContainerStatuses": [{ "name": "istio-validation", "state": state, "lastState": last }] },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_pod_is_broken_if_the_check_failed_and_did_not_succeed_since() {
        let settings = Settings::read(|_| None).expect("the defaults");
        let failed = json!({ "terminated": { "exitCode": 126, "reason": "Error" } });
        let other = json!({ "terminated": { "exitCode": 1, "reason": "Error" } });
        let succeeded = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        for (state, last, expected) in [
            (&waiting, &failed, true),
            (&failed, &failed, true),
            (&succeeded, &failed, false),
            (&waiting, &other, false),
            // The first failure shows in the last state only after the next start.
            (&failed, &json!({}), false),
        ] {
            assert_eq!(is_broken(&settings, &pod(state.clone(), last.clone())), expected, "{state} {last}");
        }
        let mut without = pod(waiting.clone(), failed.clone());
        without.metadata.annotations.clear();
        assert!(!is_broken(&settings, &without));
        let other = |name: &str, value: &str| {
            let setting = |of: &crate::settings::Setting| (of.name == name).then(|| value.to_owned());
            is_broken(&Settings::read(setting).expect("settings"), &pod(waiting.clone(), failed.clone()))
        };
        assert!(!other("repair-init-container-exit-code", "125") && other("repair-init-container-exit-code", "0"));
        assert!(!other("repair-init-container-name", "istio-init"));
        assert!(!other("repair-init-container-termination-message", "no rules"));
    }

    /// Runs the controller until it has sent a request that begins with `until`, and returns the requests that change something.
    async fn changes(setting: &'static str, until: &str) -> Vec<String> {
        let mut broken = serde_json::to_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "uid": "u1", "resourceVersion": "7",
                          "annotations": { "sidecar.istio.io/status": "{}" } },
            "status": { "initContainerStatuses": [{ "name": "istio-validation", "state": {},
                        "lastState": { "terminated": { "exitCode": 126 } } }] },
        }))
        .expect("a pod");
        let mut whole = broken.clone();
        whole["status"] = json!({});
        whole["metadata"]["name"] = "whole".into();
        broken["spec"] = json!({});
        let list = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": { "resourceVersion": "9" }, "items": [whole, broken] });
        let api = crate::fake_api::FakeApi::start(move |line| match line {
            line if line.contains("watch=true") => None,
            line if line.starts_with("GET ") => Some((200, list.to_string())),
            _ => Some((200, "{}".to_owned())),
        })
        .await;
        let dir = tempfile::tempdir().expect("a directory");
        api.write_kubeconfig(&dir.path().join("config"));
        let client = crate::kubernetes::client_of_file(&dir.path().join("config")).await.expect("a client");
        let value = |of: &crate::settings::Setting| match of.name {
            name if name == setting => Some("true".to_owned()),
            "repair-node-name" => Some("node-1".to_owned()),
            _ => None,
        };
        let settings = Settings::read(value).expect("settings");
        let repaired = IntCounterVec::new(prometheus::Opts::new("a", "a"), &["type", "result"]).expect("a metric");
        let repair = Repair { settings, client, repaired: repaired.clone(), done: BTreeMap::new() };
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(repair.run(stopped));
        let sent = || api.requests.lock().expect("no panic").clone();
        while !sent().iter().any(|request| request.starts_with(until)) {
            assert!(!running.is_finished());
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
        running.await.expect("no panic");
        assert!(sent().iter().any(|request| request.contains("fieldSelector=spec.nodeName%3Dnode-1")), "{:?}", sent());
        sent().into_iter().filter(|request| !request.starts_with("GET ")).collect()
    }

    #[tokio::test]
    async fn a_broken_pod_is_labeled() {
        let changes = changes("repair-label-pods", "POST /api/v1/namespaces/n/events").await;
        let label =
            r#"PATCH /api/v1/namespaces/n/pods/p/status {"metadata":{"labels":{"cni.istio.io/uninitialized":"true"}}}"#;
        assert_eq!(changes[0], label);
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(changes[1].contains("LabelBrokenPod"), "{changes:?}");
    }

    #[tokio::test]
    async fn a_broken_pod_is_deleted_as_it_was_seen() {
        let changes = changes("repair-delete-pods", "POST /api/v1/namespaces/n/events").await;
        let delete = r#"DELETE /api/v1/namespaces/n/pods/p {"preconditions":{"resourceVersion":"7","uid":"u1"}}"#;
        assert_eq!(changes[0], delete);
    }
}
