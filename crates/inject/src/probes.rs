//! Rewrites probes and life-cycle hooks of the application, so that the agent makes the calls. The kubelet has no certificate
//! of the mesh, and its connections would be intercepted.

use config::parse_bool;
use serde_json::{Map, Value, json};

use crate::pod::{annotation, containers, containers_mut, find_mut, name, push, set};
use crate::settings::Injector;
use crate::{PROXY, STATUS, STATUS_PORT};

/// The environment variable of the agent with the original probes.
const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";
/// The annotation that enables or disables rewriting.
const REWRITE: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
/// The actions that the agent can perform.
const ACTIONS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];

/// A place of a call: the path to the field in the container, and the path of the agent.
struct Place {
    field: &'static str,
    inner: Option<&'static str>,
    path: String,
}

fn places(container: &str) -> [Place; 5] {
    let probe = |field, end| Place { field, inner: None, path: format!("/app-health/{container}/{end}") };
    let hook = |inner, end| Place {
        field: "lifecycle",
        inner: Some(inner),
        path: format!("/app-lifecycle/{container}/{end}"),
    };
    [
        probe("readinessProbe", "readyz"),
        probe("livenessProbe", "livez"),
        probe("startupProbe", "startupz"),
        hook("preStop", "prestopz"),
        hook("postStart", "poststartz"),
    ]
}

impl Place {
    fn of<'c>(&self, container: &'c Value) -> &'c Value {
        match self.inner {
            None => &container[self.field],
            Some(inner) => &container[self.field][inner],
        }
    }

    fn of_mut<'c>(&self, container: &'c mut Value) -> Option<&'c mut Value> {
        let field = container.get_mut(self.field)?;
        match self.inner {
            None => Some(field),
            Some(inner) => field.get_mut(inner),
        }
    }
}

impl Injector {
    /// Moves the probes of the application to the agent, if the pod or the values ask for it.
    pub(crate) fn rewrite_probes(&self, pod: &mut Value, status_port: u32) {
        if find_mut(pod, PROXY).is_none() {
            return;
        }
        let wanted = annotation(pod, REWRITE).and_then(parse_bool);
        if !wanted.unwrap_or_else(|| self.flag("/sidecarInjectorWebhook/rewriteAppHTTPProbe")) {
            return;
        }
        let originals = originals(pod, status_port);
        if !originals.is_empty() {
            let injected_before = annotation(pod, STATUS).is_some();
            if let Some(sidecar) = find_mut(pod, PROXY) {
                record(sidecar, originals, injected_before);
            }
        }
        let port = annotation(pod, STATUS_PORT).and_then(|port| port.trim().parse().ok()).unwrap_or(status_port);
        for list in ["containers", "initContainers"] {
            for container in containers_mut(pod, list).into_iter().flatten() {
                if name(container) != PROXY {
                    rewrite(container, port);
                }
            }
        }
    }
}

/// The probes of the application by the paths of the agent, with named ports resolved.
fn originals(pod: &Value, status_port: u32) -> Map<String, Value> {
    let mut found = Map::new();
    for list in ["initContainers", "containers"] {
        for container in containers(pod, list).iter().filter(|container| name(container) != PROXY) {
            for place in places(name(container)) {
                if let Some(original) = original(&place, container, status_port) {
                    found.insert(place.path, original);
                }
            }
        }
    }
    found
}

/// The part of a probe that the agent needs; none if it calls the agent already, or a port that does not exist.
fn original(place: &Place, container: &Value, status_port: u32) -> Option<Value> {
    let probe = place.of(container);
    // Hooks cannot be gRPC calls.
    let known = if place.inner.is_some() { &ACTIONS[..2] } else { &ACTIONS[..] };
    let action = known.iter().find(|action| probe[**action].is_object())?;
    let mut call = probe[*action].clone();
    if *action != "grpc" {
        match &call["port"] {
            Value::String(named) => {
                let ports = container["ports"].as_array().into_iter().flatten();
                let port = ports.into_iter().find(|port| port["name"] == named.as_str())?["containerPort"].clone();
                set(&mut call, "port", port);
            }
            port if port.as_u64() == Some(u64::from(status_port)) => return None,
            _ => {}
        }
    }
    let mut prober = json!({*action: call});
    if let Some(timeout) = probe["timeoutSeconds"].as_i64().filter(|timeout| *timeout != 0 && place.inner.is_none()) {
        set(&mut prober, "timeoutSeconds", timeout.into());
    }
    Some(prober)
}

/// Sets the environment variable. Of a pod that was injected before, what is known already takes precedence.
fn record(sidecar: &mut Value, mut probers: Map<String, Value>, injected_before: bool) {
    let existing = sidecar.get_mut("env").and_then(Value::as_array_mut);
    let existing = existing.and_then(|list| list.iter_mut().find(|variable| variable["name"] == PROBERS));
    match existing.filter(|_| injected_before) {
        Some(variable) => {
            let before = variable["value"].as_str().and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok());
            if let Some(before) = before {
                probers.extend(before);
                *variable = json!({"name": PROBERS, "value": Value::Object(probers).to_string()});
            }
        }
        None => push(sidecar, "env", json!({"name": PROBERS, "value": Value::Object(probers).to_string()})),
    }
}

fn rewrite(container: &mut Value, port: u32) {
    for place in places(name(container)) {
        let is_hook = place.inner.is_some();
        let Some(probe) = place.of_mut(container).and_then(Value::as_object_mut) else { continue };
        let known = if is_hook { &ACTIONS[..2] } else { &ACTIONS[..] };
        let Some(action) = known.iter().find(|action| probe.get(**action).is_some_and(Value::is_object)) else {
            continue;
        };
        let mut call = match *action {
            "httpGet" => probe.remove("httpGet").unwrap_or_default(),
            // The agent makes the connection; the kubelet calls the agent over HTTP.
            action => {
                probe.remove(action);
                json!({})
            }
        };
        set(&mut call, "path", place.path.into());
        set(&mut call, "port", port.into());
        if call["scheme"] == "HTTPS" {
            set(&mut call, "scheme", "HTTP".into());
        }
        probe.insert("httpGet".to_owned(), call);
    }
}
