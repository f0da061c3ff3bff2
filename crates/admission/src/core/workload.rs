//! Pods and Deployments.

use std::collections::HashSet;

use config::rules::Path;
use serde_json::{Map, Value as Json, json};

use crate::cause::Causes;
use crate::core::{at, default, immutable, inner, items, text};

pub(super) fn fill_pod(object: &mut Map<String, Json>, old: Option<&Json>) {
    if let Some(spec) = inner(object, "spec") {
        fill_pod_spec(spec);
        // Only for Pods, not for templates.
        default(spec, "enableServiceLinks", || true.into());
    }
    if old.is_none() {
        let class = quality(object.get("spec").unwrap_or(&Json::Null));
        object.insert("status".into(), json!({"phase": "Pending", "qosClass": class}));
    }
}

/// The QoS class of a pod, from the requests and limits of its containers.
fn quality(spec: &Json) -> &'static str {
    let lists = [items(spec, &["containers"]), items(spec, &["initContainers"])];
    let mut all = Vec::new();
    for container in lists.into_iter().flatten() {
        let amount = |sort: &str, name: &str| at(container, &["resources", sort, name]);
        all.extend(["cpu", "memory"].map(|name| (amount("requests", name), amount("limits", name))));
    }
    if all.iter().all(|(asked, limit)| asked.is_none() && limit.is_none()) {
        "BestEffort"
    } else if all.iter().all(|(asked, limit)| limit.is_some() && (asked.is_none() || asked == limit)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn fill_deployment(object: &mut Map<String, Json>, old: Option<&Json>) {
    if old.is_none() {
        object.insert("status".into(), json!({}));
    }
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    if let Some(strategy) = inner(spec, "strategy") {
        default(strategy, "type", || "RollingUpdate".into());
        if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate")
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            default(rolling, "maxSurge", || "25%".into());
            default(rolling, "maxUnavailable", || "25%".into());
        }
    }
    let Some(template) = spec.get_mut("template").and_then(Json::as_object_mut) else {
        return;
    };
    // Go clients write a null timestamp; templates have none.
    if let Some(metadata) = template.get_mut("metadata").and_then(Json::as_object_mut)
        && metadata.get("creationTimestamp").is_some_and(Json::is_null)
    {
        metadata.remove("creationTimestamp");
    }
    if let Some(spec) = template.get_mut("spec").and_then(Json::as_object_mut) {
        fill_pod_spec(spec);
    }
}

fn fill_pod_spec(spec: &mut Map<String, Json>) {
    default(spec, "securityContext", || json!({}));
    // Two names of one field; the first one is deprecated.
    match (spec.get("serviceAccount").cloned(), spec.get("serviceAccountName").cloned()) {
        (None, Some(name)) => drop(spec.insert("serviceAccount".into(), name)),
        (Some(name), None) => drop(spec.insert("serviceAccountName".into(), name)),
        _ => {}
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Json::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                fill_container(container);
            }
        }
    }
}

fn fill_container(container: &mut Map<String, Json>) {
    default(container, "resources", || json!({}));
    let image = container.get("image").and_then(Json::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let newest = !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if newest { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", || policy.into());
}

pub(super) fn check_pod(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let spec = Path::Root.field("spec");
    check_containers(object.get("spec").unwrap_or(&Json::Null), &spec, causes);
    let Some(old) = old else {
        return;
    };
    if fixed_part(object) != fixed_part(old) {
        causes.forbidden(
            &spec,
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
    }
}

/// The immutable part of a pod's spec.
fn fixed_part(pod: &Json) -> Json {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        for name in
            ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName", "schedulingGates"]
        {
            fields.remove(name);
        }
        for list in ["containers", "initContainers"] {
            for container in fields.get_mut(list).and_then(Json::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                    // Without a value, it depends on the image.
                    container.remove("imagePullPolicy");
                }
            }
        }
    }
    spec
}

pub(super) fn check_deployment(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let spec = Path::Root.field("spec");
    let template = spec.field("template");
    check_containers(at(object, &["spec", "template", "spec"]).unwrap_or(&Json::Null), &template.field("spec"), causes);
    let selector = at(object, &["spec", "selector", "matchLabels"]).and_then(Json::as_object);
    let expressions = items(object, &["spec", "selector", "matchExpressions"]).next().is_some();
    if selector.is_none_or(Map::is_empty) && !expressions {
        let value = at(object, &["spec", "selector"]).cloned().unwrap_or_default();
        causes.invalid(&spec.field("selector"), &value, "empty selector is invalid for deployment");
    }
    let labels = at(object, &["spec", "template", "metadata", "labels"]);
    let matches = |(key, value): (&String, &Json)| labels.and_then(|labels| labels.get(key)) == Some(value);
    if !selector.into_iter().flatten().all(matches) {
        let meta = template.field("metadata");
        let value = labels.cloned().unwrap_or_else(|| json!({}));
        causes.invalid(&meta.field("labels"), &value, "`selector` does not match template `labels`");
    }
    if let Some(old) = old {
        immutable(object, old, &["spec", "selector"], causes);
    }
    let restart = text(object, &["spec", "template", "spec", "restartPolicy"]);
    if !restart.is_empty() && restart != "Always" {
        let path = template.field("spec");
        causes.not_supported(&path.field("restartPolicy"), &restart.into(), &["Always"]);
    }
}

fn check_containers(pod: &Json, path: &Path<'_>, causes: &mut Causes) {
    if items(pod, &["containers"]).next().is_none() {
        causes.required(&path.field("containers"), "");
    }
    let mut seen = HashSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(pod, &[list]).enumerate() {
            let path = path.field(list);
            let path = path.index(index);
            match text(container, &["name"]) {
                "" => causes.required(&path.field("name"), ""),
                name => {
                    if let Some(why) = crate::names::dns_label(name) {
                        causes.invalid(&path.field("name"), &name.into(), &why);
                    } else if !seen.insert(name) && list == "initContainers" {
                        causes.duplicate(&path.field("name"), &name.into());
                    }
                }
            }
            if text(container, &["image"]).is_empty() && list == "containers" && at(container, &["image"]).is_some() {
                causes.required(&path.field("image"), "");
            }
        }
    }
}
