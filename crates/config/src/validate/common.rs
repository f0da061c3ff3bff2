//! Rules that several kinds share.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use names::Protocol;

use crate::diagnostic::FieldPath;
use crate::istio::{Destination, WorkloadSelector};
use crate::object::StringMap;
use crate::validate::{Report, hosts};

/// A port number.
pub(super) fn port(r: &mut Report, path: &FieldPath, number: u32) {
    if !(1..=65535).contains(&number) {
        r.error(
            path,
            "out-of-range",
            format!("a port is a number from 1 to 65535, not {number}"),
        );
    }
}

/// The name of a port: a DNS label.
pub(super) fn port_name(r: &mut Report, path: &FieldPath, name: &str) {
    if name.is_empty() {
        r.error(path, "missing-field", "a port needs a name");
    } else if !hosts::is_label(name) {
        r.error(
            path,
            "bad-value",
            format!("{name:?} is not a port name: letters, digits and dashes"),
        );
    }
}

/// The name of a protocol; empty where it is to be detected.
pub(super) fn protocol(r: &mut Report, path: &FieldPath, name: &str) {
    if !name.is_empty() && Protocol::parse(name).is_unsupported() {
        let known: Vec<&str> = Protocol::ALL
            .iter()
            .filter(|p| !p.is_unsupported())
            .map(|p| p.name())
            .collect();
        r.error(
            path,
            "bad-value",
            format!("{name:?} is not a protocol; known are {}", known.join(", ")),
        );
    }
}

/// A duration of at least a millisecond, in whole milliseconds.
pub(super) fn duration(r: &mut Report, path: &FieldPath, value: Option<Duration>) {
    let Some(value) = value else {
        return;
    };
    if value < Duration::from_millis(1) {
        r.error(path, "out-of-range", "the duration must be at least 1ms");
    } else if value.subsec_nanos() % 1_000_000 != 0 {
        r.error(path, "out-of-range", "durations finer than 1ms are not supported");
    }
}

/// A percentage of 0 to 100.
pub(super) fn percent(r: &mut Report, path: &FieldPath, value: f64) {
    if !(0.0..=100.0).contains(&value) {
        r.error(
            path,
            "out-of-range",
            format!("a percentage is a number from 0 to 100, not {value}"),
        );
    }
}

/// A number that may not be negative.
pub(super) fn not_negative(r: &mut Report, path: &FieldPath, value: i32) {
    if value < 0 {
        r.error(
            path,
            "out-of-range",
            format!("the number must not be negative, and is {value}"),
        );
    }
}

/// A text that becomes part of a header, which Envoy refuses if it could break out of its line.
pub(super) fn one_line(r: &mut Report, path: &FieldPath, text: &str) {
    if text.contains(['\0', '\r', '\n']) {
        r.error(
            path,
            "bad-value",
            "the text must not contain line breaks or the character NUL; write them percent-encoded",
        );
    }
}

/// An IP address.
pub(super) fn ip_address(r: &mut Report, path: &FieldPath, text: &str) {
    if text.parse::<IpAddr>().is_err() {
        r.error(path, "bad-value", format!("{text:?} is not an IP address"));
    }
}

/// An IP address or a CIDR range.
pub(super) fn subnet(r: &mut Report, path: &FieldPath, text: &str) {
    if text.parse::<IpAddr>().is_err() && text.parse::<ipnet::IpNet>().is_err() {
        r.error(
            path,
            "bad-value",
            format!("{text:?} is not an IP address or CIDR range"),
        );
    }
}

/// The prefix of addresses that are Unix sockets.
pub(super) const UNIX: &str = "unix://";

/// The path of a Unix socket, or `@name`.
pub(super) fn unix_path(r: &mut Report, path: &FieldPath, socket: &str) {
    let absolute = socket.starts_with('/') && !socket.ends_with('/');
    if !absolute && !socket.starts_with('@') {
        r.error(
            path,
            "bad-value",
            format!("{socket:?} is not the absolute path of a Unix socket"),
        );
    }
}

/// Labels that a workload has.
pub(super) fn labels(r: &mut Report, path: &FieldPath, labels: &StringMap) {
    for (key, value) in labels {
        if !is_label_key(key) {
            r.error(
                &path.key(key.clone()),
                "bad-value",
                format!("{key:?} is not the key of a label"),
            );
        }
        if !is_label_value(value) {
            r.error(
                &path.key(key.clone()),
                "bad-value",
                format!("{value:?} is not the value of a label"),
            );
        }
    }
}

/// A Kubernetes label key: a name of at most 63 characters, with or without a DNS name and `/` before it.
pub(super) fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
    let prefix_fits = prefix.is_empty() || (prefix.len() <= 253 && prefix.split('.').all(hosts::is_label));
    let slash_fits = !key.starts_with('/');
    prefix_fits && slash_fits && is_label_word(name)
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_word(value)
}

fn is_label_word(word: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = [word.bytes().next(), word.bytes().last()];
    word.len() <= 63 && word.bytes().all(inner) && ends.iter().all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
}

/// The labels that select workloads. Without labels everything is selected, which is mostly a mistake.
pub(super) fn workload_selector(r: &mut Report, path: &FieldPath, selector: Option<&WorkloadSelector>) {
    let Some(selector) = selector else {
        return;
    };
    if selector.labels.is_empty() {
        r.warning(
            path,
            "no-effect",
            "the selector has no labels and selects all workloads of the namespace",
        );
    }
    selector_labels(r, &path.field("labels"), &selector.labels);
}

/// Labels to select by: no empty keys, no wildcards.
pub(super) fn selector_labels(r: &mut Report, path: &FieldPath, labels: &StringMap) {
    for (key, value) in labels {
        if key.is_empty() {
            r.error(path, "bad-value", "a label needs a key");
        }
        if key.contains('*') || value.contains('*') {
            r.error(
                &path.key(key.clone()),
                "bad-value",
                "wildcards are not supported in selectors",
            );
        }
    }
}

/// Who may have `exportTo: ["~"]`, or must not export at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Exported {
    /// Any namespaces.
    Routes,
    /// Any namespaces, or nobody.
    Services,
    /// The own namespace only.
    Selected,
}

/// `exportTo`.
pub(super) fn export_to(r: &mut Report, path: &FieldPath, namespace: &str, export_to: &[Arc<str>], what: Exported) {
    let mut seen = BTreeSet::new();
    for (index, entry) in export_to.iter().enumerate() {
        let at = path.index(index);
        let target = if &**entry == "." { namespace } else { entry };
        match target {
            "~" if what == Exported::Services => {}
            "~" => r.error(&at, "bad-value", "only services can be exported to nobody (~)"),
            // The mesh's defaults have no namespace to stand for.
            "*" | "." => {}
            name if hosts::is_label(name) => {}
            name => r.error(
                &at,
                "bad-value",
                format!("{name:?} is not '.', '*', or the name of a namespace"),
            ),
        }
        if !seen.insert(target) {
            r.error(&at, "duplicate", format!("{entry:?} is exported to twice"));
        }
    }
    let lone = ["*", "~"].into_iter().find(|lone| seen.contains(lone));
    if let Some(lone) = lone.filter(|_| export_to.len() > 1) {
        r.error(
            path,
            "exclusive-fields",
            format!("{lone:?} cannot be combined with other entries"),
        );
    }
    if what == Exported::Selected && seen.iter().any(|target| *target != namespace) {
        r.error(
            path,
            "exclusive-fields",
            "a rule with a workloadSelector applies to its own namespace only",
        );
    }
}

/// Where a route leads to.
pub(super) fn destination(r: &mut Report, path: &FieldPath, destination: &Destination) {
    let host = path.field("host");
    match &*destination.host {
        "" => r.error(&host, "missing-field", "a destination needs a host"),
        "*" => r.error(&host, "bad-value", "a destination cannot be every host"),
        name => hosts::wildcard_host(r, &host, name),
    }
    if !destination.subset.is_empty() {
        subset_name(r, &path.field("subset"), &destination.subset);
    }
    if let Some(selector) = &destination.port {
        port(r, &path.field("port").field("number"), selector.number);
    }
}

/// The name of a subset.
pub(super) fn subset_name(r: &mut Report, path: &FieldPath, name: &str) {
    if name.is_empty() {
        r.error(path, "missing-field", "a subset needs a name");
    } else if !hosts::is_label(name) {
        r.error(
            path,
            "bad-value",
            format!("{name:?} is not a subset name: letters, digits and dashes"),
        );
    }
}
