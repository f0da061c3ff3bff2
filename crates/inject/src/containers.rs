//! Containers that users define and templates change, and the order of containers.

use config::mesh::InboundInterceptionMode;
use config::mesh::ProxyConfig;
use k8s_patch::{Limits, strategic_merge_patch};
use serde_json::{Map, Value, json};

use crate::pod::{
    annotate, annotation, containers, containers_mut, find, find_mut, full_name, name, object, push, set,
};
use crate::{
    CORE_DUMPS, Error, INIT, INTERCEPTION_MODE, OVERRIDES, PROXY, STATUS, VALIDATION, pod, prometheus, render,
};

/// The image of a container that users define only to change fields of the template's.
const AUTO_IMAGE: &str = "auto";
/// The two lists of containers.
pub(crate) const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The names in a list of the status annotation.
fn injected(pod: &Value, list: &str) -> Vec<String> {
    let status = annotation(pod, STATUS).and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
    let names = status[list].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The overrides of an injection before.
fn overrides(pod: &Value) -> Result<Value, Error> {
    let Some(text) = annotation(pod, OVERRIDES) else {
        return Ok(Value::Null);
    };
    serde_json::from_str(text).map_err(|error| Error::Pod {
        pod: full_name(pod),
        message: format!("the annotation {OVERRIDES} is not valid JSON: {error}"),
    })
}

/// The pod as templates see it: without what an injection before has added, with the containers that users defined.
pub(crate) fn stripped(pod: &Value, mesh: &config::MeshConfig) -> Result<Value, Error> {
    let mut stripped = pod.clone();
    let is_status = annotation(pod, STATUS).is_some_and(|text| serde_json::from_str::<Map<_, _>>(text).is_ok());
    if is_status {
        for list in LISTS {
            let names = injected(pod, list);
            if let Some(containers) = containers_mut(&mut stripped, list) {
                containers.retain(|container| !names.iter().any(|injected| injected == name(container)));
            }
        }
        prometheus::forget(&mut stripped, mesh);
        if let Some(annotations) = pod::metadata_map(&mut stripped, "annotations") {
            annotations.remove(STATUS);
        }
    }
    let overrides = overrides(pod)?;
    for list in LISTS {
        for container in overrides[list].as_array().into_iter().flatten() {
            if find(containers(&stripped, list), name(container)).is_none()
                && let Some(spec) = stripped.get_mut("spec")
            {
                push(spec, list, container.clone());
            }
        }
    }
    Ok(stripped)
}

/// Moves the sidecar that a user defines to the init containers, if the template has it there.
pub(crate) fn move_native_proxy(pod: &mut Value, template: &Value) {
    if find(containers(template, "initContainers"), PROXY).is_none() {
        return;
    }
    let taken = containers_mut(pod, "containers").and_then(|list| {
        let at = list.iter().position(|container| name(container) == PROXY)?;
        Some(list.remove(at))
    });
    if let (Some(proxy), Some(spec)) = (taken, pod.get_mut("spec")) {
        push(spec, "initContainers", proxy);
    }
}

/// Applies the containers that users define over those of the templates again, and records them for the next injection.
pub(crate) fn reapply(
    merged: &mut Value,
    original: &Value,
    template: &Value,
    settings: &ProxyConfig,
) -> Result<(), Error> {
    let before = overrides(original)?;
    let mut recorded = Map::new();
    for list in LISTS {
        let injected = injected(original, list);
        for container in containers(template, list) {
            let wanted = name(container);
            let known = before[list].as_array().map(Vec::as_slice).unwrap_or_default();
            let recorded_before = find(known, wanted);
            // The containers that an earlier injection added are not the user's.
            if recorded_before.is_none() && injected.iter().any(|injected| injected == wanted) {
                continue;
            }
            let found = recorded_before.or_else(|| find(containers(original, list), wanted));
            // A native sidecar is among the init containers, but users define it among the containers.
            let anywhere = || find(containers(original, "containers"), wanted).filter(|_| list == "initContainers");
            let Some(found) = found.or_else(anywhere) else { continue };
            let mut overlay = found.clone();
            if overlay["image"] == AUTO_IMAGE {
                object(&mut overlay).map(|fields| fields.remove("image"));
            }
            *merged = overlaid(merged, list, &overlay)?;
            push_into(&mut recorded, list, overlay);
        }
    }
    if annotation(original, STATUS).is_none() && !recorded.is_empty() {
        annotate(merged, OVERRIDES, Value::Object(recorded).to_string());
    }
    // The user's own sidecar: as recorded by an injection before, or as it is in a pod that was not injected.
    let own = LISTS.into_iter().find_map(|list| find(before[list].as_array().map(Vec::as_slice)?, PROXY));
    let of_pod = || LISTS.into_iter().find_map(|list| find(containers(original, list), PROXY));
    let is_injected = annotation(original, STATUS).is_some();
    if let Some(own) = own.or_else(|| of_pod().filter(|_| !is_injected)) {
        adjust_user(merged, &own["securityContext"], settings);
    }
    Ok(())
}

fn push_into(map: &mut Map<String, Value>, list: &str, item: Value) {
    let entry = map.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = entry.as_array_mut() {
        list.push(item);
    }
}

fn overlaid(pod: &Value, list: &str, container: &Value) -> Result<Value, Error> {
    let patch = json!({"spec": {list: [container]}});
    let merged = strategic_merge_patch(pod, &patch, render::pod_schema(), &Limits::default());
    merged.map_err(|error| Error::Pod {
        pod: full_name(pod),
        message: format!("the container {:?} of the pod cannot be merged: {error}", name(container)),
    })
}

/// Makes the init container agree with the user and group that the user's sidecar runs as.
fn adjust_user(merged: &mut Value, context: &Value, settings: &ProxyConfig) {
    if !context["runAsUser"].is_i64() && !context["runAsGroup"].is_i64() {
        return;
    }
    let (user, group) = (context["runAsUser"].as_i64(), context["runAsGroup"].as_i64());
    let init = [INIT, VALIDATION].into_iter().find(|init| find(containers(merged, "initContainers"), init).is_some());
    let Some(init) = init else { return };
    let is_tproxy = settings.interception_mode == InboundInterceptionMode::Tproxy
        || annotation(merged, INTERCEPTION_MODE) == Some("TPROXY");
    // With TPROXY, the sidecar must be root.
    if is_tproxy && user.is_some() {
        if let Some(context) = find_mut(merged, PROXY).and_then(|proxy| proxy.get_mut("securityContext")) {
            set(context, "runAsUser", 0.into());
        } else {
            return;
        }
    }
    let list = containers_mut(merged, "initContainers").into_iter().flatten();
    let Some(container) = list.into_iter().find(|container| name(container) == init) else { return };
    if !is_tproxy && init == VALIDATION {
        if !container["securityContext"].is_object() {
            set(container, "securityContext", json!({}));
        }
        let context = &mut container["securityContext"];
        for (field, id) in [("runAsUser", user), ("runAsGroup", group)] {
            if let Some(id) = id {
                set(context, field, id.into());
            }
        }
    }
    // iptables does not take user 0.
    let Some(user) = user.filter(|user| *user != 0) else { return };
    let arguments = container.get_mut("args").and_then(Value::as_array_mut);
    if let Some(arguments) = arguments
        && let Some(at) = arguments.iter().position(|argument| argument == "-u")
        && let Some(value) = arguments.get_mut(at + 1)
    {
        *value = user.to_string().into();
    }
}

/// A place in a list of containers.
#[derive(Clone, Copy)]
enum To {
    First,
    Last,
}

/// Puts the containers into their order: with `hold`, the sidecar starts before the application.
pub(crate) fn order(pod: &mut Value, hold: bool) {
    // Otherwise the sidecar is last, so that `kubectl exec` uses the application's container.
    move_to(pod, "containers", PROXY, if hold { To::First } else { To::Last });
    let steps: &[(&str, To)] = match find(containers(pod, "initContainers"), PROXY).is_some() {
        // A native sidecar starts first, so that init containers are in the mesh.
        true => &[(CORE_DUMPS, To::First), (PROXY, To::First), (VALIDATION, To::First), (INIT, To::First)],
        // Interception is set up last, so that it does not cut off init containers; its check blocks all others.
        false => &[(VALIDATION, To::First), (INIT, To::Last), (CORE_DUMPS, To::Last)],
    };
    for (container, to) in steps {
        move_to(pod, "initContainers", container, *to);
    }
}

fn move_to(pod: &mut Value, list: &str, wanted: &str, to: To) {
    let Some(list) = containers_mut(pod, list) else { return };
    let Some(at) = list.iter().position(|container| name(container) == wanted) else { return };
    let container = list.remove(at);
    match to {
        To::First => list.insert(0, container),
        To::Last => list.push(container),
    }
}

/// Replaces environment variables of the sidecar by those of the cluster: from the path of the webhook and the values.
pub(crate) fn set_environment(pod: &mut Value, variables: &std::collections::BTreeMap<String, String>) {
    if variables.is_empty() {
        return;
    }
    let Some(sidecar) = find_mut(pod, PROXY) else { return };
    let list = sidecar.get_mut("env").and_then(Value::as_array_mut);
    if let Some(list) = list {
        list.retain(|variable| !variable["name"].as_str().is_some_and(|name| variables.contains_key(name)));
    }
    for (name, value) in variables {
        push(sidecar, "env", json!({"name": name, "value": value}));
    }
}
