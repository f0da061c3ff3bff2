//! Services.

use std::collections::HashSet;
use std::net::IpAddr;

use config::rules::Path;
use serde_json::{Map, Value as Json, json};

use crate::cause::Causes;
use crate::core::{at, default, inner, items, text};
use crate::names;

/// The address of a headless service.
const HEADLESS: &str = "None";
/// Default session affinity timeout, in seconds.
const AFFINITY_SECONDS: u32 = 10_800;

pub(super) fn fill(object: &mut Map<String, Json>, old: Option<&Json>) {
    if old.is_none() {
        object.insert("status".into(), json!({"loadBalancer": {}}));
    }
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    default(spec, "type", || "ClusterIP".into());
    default(spec, "sessionAffinity", || "None".into());
    if spec.get("sessionAffinity").is_some_and(|affinity| affinity == "ClientIP")
        && let Some(config) = inner(spec, "sessionAffinityConfig")
        && let Some(client) = inner(config, "clientIP")
    {
        default(client, "timeoutSeconds", || AFFINITY_SECONDS.into());
    }
    for port in spec.get_mut("ports").and_then(Json::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else {
            continue;
        };
        default(port, "protocol", || "TCP".into());
        if let Some(number) = port.get("port").cloned() {
            default(port, "targetPort", || number);
        }
    }
    traffic_policies(spec);
    addresses(spec, old.and_then(|old| old.get("spec")));
    families(spec);
}

/// The IP families.
fn families(spec: &mut Map<String, Json>) {
    if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
        return;
    }
    let single = spec.get("clusterIP").and_then(Json::as_str).unwrap_or_default();
    let six = single.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    let anybody = spec.get("selector").is_none_or(|selector| selector == &json!({}));
    // A headless service without a selector may have endpoints of both families.
    let both = single == HEADLESS && anybody;
    let (policy, families) = match spec.get("ipFamilies").and_then(Json::as_array) {
        Some(families) if families.len() > 1 => ("PreferDualStack", json!(families)),
        Some(families) if !families.is_empty() => ("SingleStack", json!(families)),
        _ if both => ("RequireDualStack", json!(["IPv4", "IPv6"])),
        _ if six => ("SingleStack", json!(["IPv6"])),
        _ => ("SingleStack", json!(["IPv4"])),
    };
    default(spec, "ipFamilyPolicy", || policy.into());
    default(spec, "ipFamilies", || families);
}

/// Defaults that depend on the service's type.
fn traffic_policies(spec: &mut Map<String, Json>) {
    let kind = spec.get("type").and_then(Json::as_str).unwrap_or_default();
    let (outside, balanced) = (matches!(kind, "NodePort" | "LoadBalancer"), kind == "LoadBalancer");
    if outside || kind == "ClusterIP" {
        default(spec, "internalTrafficPolicy", || "Cluster".into());
    }
    if outside {
        default(spec, "externalTrafficPolicy", || "Cluster".into());
    }
    if balanced {
        default(spec, "allocateLoadBalancerNodePorts", || true.into());
    }
}

/// `clusterIP` is the first of `clusterIPs`. Clients that do not send the address keep the stored one.
fn addresses(spec: &mut Map<String, Json>, old: Option<&Json>) {
    if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
        return;
    }
    let empty = |value: Option<&Json>| value.is_none_or(|value| value.is_null() || value == "" || value == &json!([]));
    let keep = old.filter(|old| at(old, &["type"]) != Some(&json!("ExternalName")));
    if empty(spec.get("clusterIP")) && empty(spec.get("clusterIPs")) {
        for name in ["clusterIP", "clusterIPs"] {
            if let Some(value) = keep.and_then(|old| old.get(name)) {
                spec.insert(name.into(), value.clone());
            }
        }
    }
    let single = spec.get("clusterIP").cloned().filter(|value| !empty(Some(value)));
    let first = spec.get("clusterIPs").and_then(|list| list.get(0)).cloned();
    match (single, first) {
        (Some(single), None) => {
            spec.insert("clusterIPs".into(), json!([single]));
        }
        // A client that changes only the old field means both.
        (Some(single), Some(first))
            if single != first && old.and_then(|old| old.get("clusterIPs")) == spec.get("clusterIPs") =>
        {
            spec.insert("clusterIPs".into(), json!([single]));
        }
        (None, Some(first)) => {
            spec.insert("clusterIP".into(), first);
        }
        _ => {}
    }
}

pub(super) fn check(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let spec = Path::Root.field("spec");
    let kind = text(object, &["spec", "type"]);
    let address = text(object, &["spec", "clusterIP"]);
    let external = kind == "ExternalName";
    if external {
        external_name(object, address, &spec, causes);
    } else {
        if items(object, &["spec", "ports"]).next().is_none() && address != HEADLESS {
            causes.required(&spec.field("ports"), "");
        }
        let fits = address.is_empty() || address == HEADLESS || address.parse::<IpAddr>().is_ok();
        if !fits {
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.invalid(&spec.field("clusterIPs").index(0), &address.into(), text);
        }
        if address == HEADLESS && kind != "ClusterIP" {
            causes.invalid(
                &spec.field("clusterIPs").index(0),
                &address.into(),
                &format!("may not be set to 'None' for {kind} services"),
            );
        }
    }
    ports(object, &spec.field("ports"), causes);
    let before = old.map(|old| (text(old, &["spec", "type"]), text(old, &["spec", "clusterIP"])));
    if let Some((before_kind, before)) = before
        && !external
        && before_kind != "ExternalName"
        && !before.is_empty()
        && before != address
    {
        let value = at(object, &["spec", "clusterIPs"]).cloned().unwrap_or_default();
        causes.invalid(&spec.field("clusterIPs").index(0), &value, "may not change once set");
    }
}

fn external_name(object: &Json, address: &str, spec: &Path<'_>, causes: &mut Causes) {
    let path = spec.field("externalName");
    match text(object, &["spec", "externalName"]).trim_end_matches('.') {
        "" => causes.required(&path, ""),
        name => {
            if let Some(why) = names::dns_subdomain(name) {
                causes.invalid(&path, &name.into(), &why);
            }
        }
    }
    if !address.is_empty() {
        causes.forbidden(&spec.field("clusterIPs"), "may not be set when `type` is 'ExternalName'");
    }
}

fn ports(object: &Json, path: &Path<'_>, causes: &mut Causes) {
    let several = items(object, &["spec", "ports"]).count() > 1;
    let mut seen = HashSet::new();
    for (index, port) in items(object, &["spec", "ports"]).enumerate() {
        let path = path.index(index);
        let name = text(port, &["name"]);
        match name {
            "" if several => causes.required(&path.field("name"), ""),
            "" => {}
            name => {
                if let Some(why) = names::dns_label(name) {
                    causes.invalid(&path.field("name"), &name.into(), &why);
                } else if !seen.insert(name) {
                    causes.duplicate(&path.field("name"), &name.into());
                }
            }
        }
        for field in ["port", "targetPort"] {
            // The second field defaults to the first one.
            if field == "targetPort" && port.get(field) == port.get("port") {
                continue;
            }
            let number = port.get(field).and_then(Json::as_i64);
            if let Some(number) = number.filter(|number| !(1..=65_535).contains(number)) {
                causes.invalid(&path.field(field), &number.into(), "must be between 1 and 65535, inclusive");
            }
        }
    }
}
