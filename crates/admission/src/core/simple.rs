//! Validation of small core kinds.

use config::rules::Path;
use serde_json::{Map, Value as Json, json};

use crate::cause::Causes;
use crate::core::{at, default, immutable, inner, items, text};

/// The label with the name of a namespace, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn fill_namespace(object: &mut Map<String, Json>, old: Option<&Json>) {
    let name = object.get("metadata").and_then(|meta| meta.get("name")).cloned();
    if let Some(name) = name
        && let Some(meta) = inner(object, "metadata")
        && let Some(labels) = inner(meta, "labels")
    {
        labels.insert(NAME_LABEL.into(), name);
    }
    match old {
        // Clients cannot set the finalizers of a namespace.
        Some(old) => {
            if let Some(spec) = old.get("spec") {
                object.insert("spec".into(), spec.clone());
            }
        }
        None => {
            if let Some(spec) = inner(object, "spec") {
                default(spec, "finalizers", || json!(["kubernetes"]));
            }
            object.insert("status".into(), json!({"phase": "Active"}));
        }
    }
}

pub(super) fn check_endpoint_slice(object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let kind = text(object, &["addressType"]);
    if let Some(old) = old {
        immutable(object, old, &["addressType"], causes);
    }
    for (index, endpoint) in items(object, &["endpoints"]).enumerate() {
        let endpoints = Path::Root.field("endpoints");
        let path = endpoints.index(index);
        let path = path.field("addresses");
        for (position, address) in items(endpoint, &["addresses"]).enumerate() {
            let text = address.as_str().unwrap_or_default();
            let fits = match kind {
                "IPv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => crate::names::dns_subdomain(text).is_none(),
            };
            if !fits {
                let what = match kind {
                    "IPv4" => "must be an IPv4 address",
                    "IPv6" => "must be an IPv6 address",
                    _ => "must be a fully qualified domain name",
                };
                causes.invalid(&path.index(position), address, what);
            }
        }
    }
}

pub(super) fn check_lease(object: &Json, causes: &mut Causes) {
    let spec = Path::Root.field("spec");
    if let Some(seconds) = at(object, &["spec", "leaseDurationSeconds"]).filter(|seconds| seconds.as_i64() < Some(1)) {
        causes.invalid(&spec.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(count) = at(object, &["spec", "leaseTransitions"]).filter(|count| count.as_i64() < Some(0)) {
        causes.invalid(&spec.field("leaseTransitions"), count, "must be greater than or equal to 0");
    }
}

pub(super) fn check_event(object: &Json, causes: &mut Causes) {
    let about =
        ["involvedObject", "regarding"].into_iter().find_map(|name| at(object, &[name]).map(|value| (name, value)));
    let Some((name, about)) = about else {
        return;
    };
    let (own, namespace) = (text(object, &["metadata", "namespace"]), text(about, &["namespace"]));
    // Events about cluster-scoped objects are in the namespace `default`.
    let fits = namespace == own || (namespace.is_empty() && own == "default");
    if !fits {
        let path = Path::Root.field(name);
        causes.invalid(&path.field("namespace"), &namespace.into(), "does not match event.namespace");
    }
}
