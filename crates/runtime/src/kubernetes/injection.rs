//! Reads what injection needs from the cluster: its ConfigMap, the versions of the nodes, and the ranges of namespaces.

use std::sync::Arc;

use controllers::{Resource, Watched};
use inject::{Injector, supports_native_sidecars};
use kube::Client;
use serde_json::{Value, json};
use settings::{NativeSidecars, Settings};
use sources::kubernetes::Seen;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::watched::follow;
use crate::webhooks::Injection;

/// The name of the ConfigMap of the default revision.
const NAME: &str = "istio-sidecar-injector";
/// The number of queued events.
const EVENTS: usize = 256;
const CONFIG_MAP: Resource = Resource::new("", "v1", "ConfigMap", "configmaps");
const NODE: Resource = Resource::new("", "v1", "Node", "nodes");
const NAMESPACE: Resource = Resource::new("", "v1", "Namespace", "namespaces");

/// Follows the objects until the receivers of `injection` are dropped.
pub(crate) async fn run(client: Client, settings: Settings, injection: watch::Sender<Arc<Injection>>) {
    let name = match settings.revision.as_str() {
        "" | "default" => NAME.to_owned(),
        revision => format!("{NAME}-{revision}"),
    };
    let (events, mut seen) = mpsc::channel(EVENTS);
    let mut watches = JoinSet::new();
    let config = Watched::all(CONFIG_MAP).within(&settings.namespace).named(&name);
    watches.spawn(follow(client.clone(), config, events.clone(), |seen| (CONFIG_MAP, seen)));
    if settings.native_sidecars == NativeSidecars::Auto {
        watches.spawn(follow(client.clone(), Watched::all(NODE), events.clone(), |seen| (NODE, seen)));
    }
    if settings.platform.as_str() == "openshift" {
        watches.spawn(follow(client, Watched::all(NAMESPACE), events, |seen| (NAMESPACE, seen)));
    }
    loop {
        tokio::select! {
            event = seen.recv() => match event {
                Some((resource, event)) => injection.send_modify(|known| {
                    let mut next = (**known).clone();
                    take(&mut next, resource, event, &name);
                    *known = Arc::new(next);
                }),
                None => return,
            },
            () = injection.closed() => return,
        }
    }
}

fn take(injection: &mut Injection, resource: Resource, event: Seen, name: &str) {
    let (object, there) = match event {
        Seen::Applied(object) => (object, true),
        Seen::Deleted(object) => (object, false),
        Seen::Synced => {
            if resource == CONFIG_MAP && injection.injector.is_none() && injection.problem.is_none() {
                injection.problem = Some(format!("ConfigMap {name} does not exist"));
                tracing::info!(
                    config_map = name,
                    "no injection configuration: no pod gets a sidecar, and no gateway is deployed"
                );
            }
            if resource == NODE {
                injection.native.0 = injection.native.1.values().all(|supported| *supported);
            }
            return;
        }
        Seen::Failing { .. } => return,
    };
    match resource {
        CONFIG_MAP if there => configure(injection, &object, name),
        CONFIG_MAP => {
            // The last configuration stays in effect: a deleted ConfigMap must not stop pods from starting.
            tracing::warn!(config_map = name, "the injection configuration was deleted; the last one stays in effect");
        }
        NODE => node(injection, &object, there),
        _ => {
            let key = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let annotations = &object["metadata"]["annotations"];
            match there && annotations.is_object() {
                true => drop(injection.namespaces.insert(key, json!({"metadata": {"annotations": annotations}}))),
                false => drop(injection.namespaces.remove(&key)),
            }
        }
    }
}

fn configure(injection: &mut Injection, object: &Value, name: &str) {
    let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
    match Injector::parse(text("config"), text("values")) {
        Ok(injector) => {
            let templates: Vec<&str> = injector.templates().collect();
            tracing::info!(config_map = name, templates = templates.join(","), "injection configuration");
            injection.injector = Some(Arc::new(injector));
            injection.problem = None;
        }
        // The last valid configuration stays in effect.
        Err(error) => {
            tracing::error!(config_map = name, %error, "the injection configuration is invalid");
            injection.problem = Some(format!("ConfigMap {name}: {error}"));
        }
    }
}

fn node(injection: &mut Injection, object: &Value, there: bool) {
    let key = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let (all, nodes) = &mut injection.native;
    match there {
        true => {
            let version = object["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
            nodes.insert(key, supports_native_sidecars(version));
        }
        false => drop(nodes.remove(&key)),
    }
    // A pod may run on any node.
    *all = nodes.values().all(|supported| *supported);
}
