//! Validation of EnvoyFilter: targets, matches and patch values.

use std::collections::BTreeSet;

use protos::Message;
use protos::dynamic::{Fault, Problem, Step};

use crate::decode::{Relations, Report};
use crate::istio::envoy_filter::*;
use crate::problem::{FieldPath, Segment};

/// Names of the HTTP connection manager: the current and the deprecated one.
const HTTP_MANAGERS: [&str; 2] = ["envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"];

/// The encoded size of a value from which on merging it into many resources is costly, in bytes.
const LARGE: usize = 64 << 10;

impl Relations for EnvoyFilter {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        r.warning_with(
            &FieldPath::root(),
            "unstable",
            "an EnvoyFilter depends on details of the generated configuration, which can change in any release",
            "use other kinds where possible, and review the filter at every upgrade",
        );
        let mut versions = BTreeSet::new();
        for (index, patch) in self.config_patches.iter().enumerate() {
            let proxy = patch.matches.as_ref().and_then(|m| m.proxy.as_ref());
            let Some(version) = proxy.map(|proxy| &proxy.proxy_version).filter(|version| !version.is_empty()) else {
                continue;
            };
            if versions.len() < MOST_VERSIONS {
                versions.insert(version);
            } else if !versions.contains(version) {
                let message = format!(
                    "an EnvoyFilter may have {MOST_VERSIONS} different expressions for versions; this one matches no proxy"
                );
                let at = path.field("configPatches").index(index).field("match").field("proxy").field("proxyVersion");
                r.warning_with(&at, "no-effect", message, "combine expressions, or split the object");
            }
        }
    }
}

impl Relations for EnvoyConfigPatch {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let at = path.field("match");
        let of_waypoint = self.matches.as_ref().is_some_and(|m| m.context == PatchContext::Waypoint);
        let matches_waypoint = matches!(object_of(self), Some(ObjectMatch::Waypoint(_)));
        if of_waypoint != matches_waypoint {
            let message = "waypoint must be set if and only if the context is WAYPOINT";
            r.error(&at, "exclusive-fields", message);
        }
        if self.apply_to == ApplyTo::Invalid {
            return r.error(&path.field("applyTo"), "missing-field", "applyTo is required");
        }
        let Some(change) = &self.patch else {
            return;
        };
        operation(r, &path.field("patch"), change);
        effect(r, path, self, change);
        value(r, &path.field("patch").field("value"), self.apply_to, change);
        if !of_waypoint && let Some(object) = object_of(self) {
            match_fits(r, &at, self.apply_to, object);
        }
    }
}

fn object_of(patch: &EnvoyConfigPatch) -> Option<&ObjectMatch> {
    patch.matches.as_ref()?.object.as_ref()
}

fn operation(r: &mut Report, path: &FieldPath, patch: &EnvoyPatch) {
    match patch.operation {
        PatchOperation::Invalid => r.error(&path.field("operation"), "missing-field", "operation is required"),
        PatchOperation::Remove => {}
        operation if patch.value.is_none() => {
            let message = format!("the operation {} requires a value", operation.name());
            r.error(&path.field("value"), "missing-field", message);
        }
        _ => {}
    }
    if patch.value.as_ref().is_some_and(|value| !value.is_object()) {
        r.error(&path.field("value"), "bad-value", "the value must be an object");
    }
}

/// Checks the value against Envoy's message, so that proxies do not reject it.
fn value(r: &mut Report, path: &FieldPath, apply_to: ApplyTo, patch: &EnvoyPatch) {
    let (message, problems) = patch_value(apply_to, patch);
    let size = message.map_or(0, |message| message.encoded_len());
    if size > LARGE && is_copied(apply_to, patch.operation) {
        let message = format!("the value, of {} KiB, is copied into each resource that the patch matches", size >> 10);
        let hint = "match few resources, or shorten the value; an EnvoyFilter that adds too much is not applied to all";
        r.warning_with(path, "costly", message, hint);
    }
    for problem in problems {
        let at = place(path, &problem);
        match problem.fault {
            Fault::Wrong => r.error(&at, "bad-patch", problem.reason),
            Fault::Unknown => r.warning(&at, "unknown-field", format!("{}; it is ignored", problem.reason)),
        }
    }
}

/// Whether the value of a patch becomes a part of many resources. Others become a resource.
fn is_copied(apply_to: ApplyTo, operation: PatchOperation) -> bool {
    match apply_to {
        ApplyTo::Cluster | ApplyTo::Listener | ApplyTo::RouteConfiguration => operation.merges(),
        ApplyTo::ExtensionConfig | ApplyTo::Bootstrap | ApplyTo::Invalid => false,
        _ => true,
    }
}

fn place(path: &FieldPath, problem: &Problem) -> FieldPath {
    problem.path.iter().fold(path.clone(), |path, step| match step {
        Step::Field(name) => path.then(Segment::Field(name.as_str().into())),
        Step::Index(index) => path.index(*index),
        Step::Key(key) => path.key(key.as_str()),
    })
}

/// Warns about operations and fields without effect.
fn effect(r: &mut Report, path: &FieldPath, patch: &EnvoyConfigPatch, change: &EnvoyPatch) {
    use ApplyTo::*;
    use PatchOperation as Op;
    let at = path.field("patch").field("operation");
    let fits = match (patch.apply_to, change.operation) {
        (_, Op::Invalid) => true,
        (Bootstrap, operation) => {
            if operation == Op::Merge {
                let message = "a bootstrap patch applies only to agents that request their bootstrap configuration";
                r.info(&path.field("applyTo"), "for-agents", message);
            }
            operation == Op::Merge
        }
        (NetworkFilter | HttpFilter | ListenerFilter, operation) => operation != Op::MergeAndReplaceList,
        (ExtensionConfig, operation) => !operation.merges() && !matches!(operation, Op::Remove | Op::Replace),
        (RouteConfiguration, operation) => operation.merges(),
        (VirtualHost, _) => true,
        (Cluster | Listener | FilterChain | HttpRoute, operation) => operation != Op::Replace,
        (Invalid, _) => true,
    };
    if !fits {
        let (operation, sort) = (change.operation.name(), patch.apply_to.name());
        r.warning(&at, "no-effect", format!("{operation} has no effect with applyTo {sort}"));
    }
    let is_filter = matches!(patch.apply_to, NetworkFilter | HttpFilter | ListenerFilter);
    let by_name = matches!(change.operation, Op::Remove | Op::Replace);
    if is_filter && by_name && !matches_by_name(patch) {
        let message = format!("{} requires a match with the name of the filter", change.operation.name());
        r.warning(&at, "no-effect", message);
    }
}

/// Whether a patch of a filter matches the filter by name.
fn matches_by_name(patch: &EnvoyConfigPatch) -> bool {
    let Some(ObjectMatch::Listener(listener)) = object_of(patch) else {
        // Waypoint matches have their own rules.
        return matches!(object_of(patch), Some(ObjectMatch::Waypoint(_)));
    };
    let filter = listener.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref());
    match patch.apply_to {
        ApplyTo::ListenerFilter => !listener.listener_filter.is_empty(),
        ApplyTo::HttpFilter => filter.is_some_and(|filter| filter.sub_filter.is_some()),
        _ => filter.is_some(),
    }
}

/// Checks that the match is of the object that `applyTo` requires.
fn match_fits(r: &mut Report, path: &FieldPath, apply_to: ApplyTo, object: &ObjectMatch) {
    use ApplyTo::*;
    let wanted = match apply_to {
        Listener | FilterChain | NetworkFilter | HttpFilter => "listener",
        RouteConfiguration | VirtualHost | HttpRoute => "routeConfiguration",
        Cluster => "cluster",
        ListenerFilter | ExtensionConfig | Bootstrap | Invalid => return,
    };
    let (field, filter) = match object {
        ObjectMatch::Listener(l) => ("listener", l.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref())),
        ObjectMatch::RouteConfiguration(_) => ("routeConfiguration", None),
        ObjectMatch::Cluster(_) => ("cluster", None),
        ObjectMatch::Waypoint(_) => ("waypoint", None),
    };
    if field != wanted {
        let message = format!("applyTo {} requires a match of {wanted}, not of {field}", apply_to.name());
        return r.error(&path.field(field), "exclusive-fields", message);
    }
    if let Some(filter) = filter {
        let at = path.field("listener").field("filterChain").field("filter");
        filter_match(r, &at, apply_to, filter);
    }
}

fn filter_match(r: &mut Report, path: &FieldPath, apply_to: ApplyTo, filter: &FilterMatch) {
    if matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain) {
        let message = format!("a filter match has no effect with applyTo {}", apply_to.name());
        r.warning(path, "no-effect", message);
    }
    if filter.sub_filter.is_none() || filter.name.is_empty() {
        return;
    }
    if apply_to != ApplyTo::HttpFilter {
        let message = "subFilter requires applyTo HTTP_FILTER";
        r.error(&path.field("subFilter"), "exclusive-fields", message);
    } else if !HTTP_MANAGERS.contains(&&*filter.name) {
        let message = format!("HTTP filters belong to {}, not to {}", HTTP_MANAGERS[0], filter.name);
        r.error(&path.field("name"), "bad-value", message);
    }
}
