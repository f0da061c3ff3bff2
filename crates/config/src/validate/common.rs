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

/// Checks a port number.
pub(super) fn port(r: &mut Report, path: &FieldPath, number: u32) {
    if !(1..=65535).contains(&number) {
        r.error(
            path,
            "out-of-range",
            format!("a port must be between 1 and 65535, not {number}"),
        );
    }
}

/// Checks the name of a port, a DNS label.
pub(super) fn port_name(r: &mut Report, path: &FieldPath, name: &str) {
    if name.is_empty() {
        r.error(path, "missing-field", "a port requires a name");
    } else if !hosts::is_label(name) {
        r.error(
            path,
            "bad-value",
            format!("{name:?} is not a valid port name; use letters, digits and dashes"),
        );
    }
}

/// Checks the name of a protocol. It is empty if the protocol is detected.
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
            format!(
                "unknown protocol {name:?}; supported protocols are {}",
                known.join(", ")
            ),
        );
    }
}

/// Checks a duration: at least 1ms, in whole milliseconds.
pub(super) fn duration(r: &mut Report, path: &FieldPath, value: Option<Duration>) {
    let Some(value) = value else {
        return;
    };
    if value < Duration::from_millis(1) {
        r.error(path, "out-of-range", "the duration must be at least 1ms");
    } else if value.subsec_nanos() % 1_000_000 != 0 {
        r.error(path, "out-of-range", "the duration must be a multiple of 1ms");
    }
}

/// Checks a percentage, 0 to 100.
pub(super) fn percent(r: &mut Report, path: &FieldPath, value: f64) {
    if !(0.0..=100.0).contains(&value) {
        r.error(
            path,
            "out-of-range",
            format!("a percentage must be between 0 and 100, not {value}"),
        );
    }
}

/// Checks that a number is not negative.
pub(super) fn not_negative(r: &mut Report, path: &FieldPath, value: i32) {
    if value < 0 {
        r.error(
            path,
            "out-of-range",
            format!("the value must not be negative, but is {value}"),
        );
    }
}

/// Checks a text that becomes part of a header. Envoy rejects line breaks and NUL characters.
pub(super) fn one_line(r: &mut Report, path: &FieldPath, text: &str) {
    if text.contains(['\0', '\r', '\n']) {
        r.error(
            path,
            "bad-value",
            "the text must not contain line breaks or NUL characters; percent-encode them",
        );
    }
}

/// Checks an IP address.
pub(super) fn ip_address(r: &mut Report, path: &FieldPath, text: &str) {
    if text.parse::<IpAddr>().is_err() {
        r.error(path, "bad-value", format!("{text:?} is not an IP address"));
    }
}

/// Checks an IP address or CIDR range.
pub(super) fn subnet(r: &mut Report, path: &FieldPath, text: &str) {
    if text.parse::<IpAddr>().is_err() && text.parse::<ipnet::IpNet>().is_err() {
        r.error(
            path,
            "bad-value",
            format!("{text:?} is not an IP address or CIDR range"),
        );
    }
}

/// Prefix of Unix domain socket addresses.
pub(super) const UNIX: &str = "unix://";

/// Checks the path of a Unix domain socket, or `@name` in the abstract namespace.
pub(super) fn unix_path(r: &mut Report, path: &FieldPath, socket: &str) {
    let absolute = socket.starts_with('/') && !socket.ends_with('/');
    if !absolute && !socket.starts_with('@') {
        r.error(
            path,
            "bad-value",
            format!("{socket:?} is not the absolute path of a Unix domain socket"),
        );
    }
}

/// Checks the labels of a workload.
pub(super) fn labels(r: &mut Report, path: &FieldPath, labels: &StringMap) {
    for (key, value) in labels {
        if !is_label_key(key) {
            r.error(
                &path.key(key.clone()),
                "bad-value",
                format!("{key:?} is not a valid label key"),
            );
        }
        if !is_label_value(value) {
            r.error(
                &path.key(key.clone()),
                "bad-value",
                format!("{value:?} is not a valid label value"),
            );
        }
    }
}

/// Whether a text is a valid Kubernetes label key: a name of at most 63 characters with an optional DNS prefix and `/`.
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

/// Checks a workload selector. A selector without labels selects everything, which is usually a mistake.
pub(super) fn workload_selector(r: &mut Report, path: &FieldPath, selector: Option<&WorkloadSelector>) {
    let Some(selector) = selector else {
        return;
    };
    if selector.labels.is_empty() {
        r.warning(
            path,
            "no-effect",
            "the selector has no labels and selects all workloads in the namespace",
        );
    }
    selector_labels(r, &path.field("labels"), &selector.labels);
}

/// Checks the labels of a selector: keys must not be empty, and wildcards are not supported.
pub(super) fn selector_labels(r: &mut Report, path: &FieldPath, labels: &StringMap) {
    for (key, value) in labels {
        if key.is_empty() {
            r.error(path, "bad-value", "a label key must not be empty");
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

/// Values that `exportTo` can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportScope {
    /// Any namespaces.
    Routes,
    /// Any namespaces, or none (`~`).
    Services,
    /// The object's own namespace only.
    Selected,
}

/// Checks `exportTo`.
pub(super) fn export_to(r: &mut Report, path: &FieldPath, namespace: &str, export_to: &[Arc<str>], scope: ExportScope) {
    let mut seen = BTreeSet::new();
    for (index, entry) in export_to.iter().enumerate() {
        let at = path.index(index);
        let target = if &**entry == "." { namespace } else { entry };
        match target {
            "~" if scope == ExportScope::Services => {}
            "~" => r.error(&at, "bad-value", "~ is supported for services only"),
            // Defaults in the mesh configuration have no namespace of their own.
            "*" | "." => {}
            name if hosts::is_label(name) => {}
            name => r.error(
                &at,
                "bad-value",
                format!("{name:?} is not '.', '*' or a valid namespace name"),
            ),
        }
        if !seen.insert(target) {
            r.error(&at, "duplicate", format!("duplicate entry {entry:?}"));
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
    if scope == ExportScope::Selected && seen.iter().any(|target| *target != namespace) {
        r.error(
            path,
            "exclusive-fields",
            "exportTo must contain only the rule's own namespace if workloadSelector is set",
        );
    }
}

/// Checks the destination of a route.
pub(super) fn destination(r: &mut Report, path: &FieldPath, destination: &Destination) {
    let host = path.field("host");
    match &*destination.host {
        "" => r.error(&host, "missing-field", "a destination requires a host"),
        "*" => r.error(&host, "bad-value", "the host of a destination must not be *"),
        name => hosts::wildcard_host(r, &host, name),
    }
    if !destination.subset.is_empty() {
        subset_name(r, &path.field("subset"), &destination.subset);
    }
    if let Some(selector) = &destination.port {
        port(r, &path.field("port").field("number"), selector.number);
    }
}

/// Checks the name of a subset.
pub(super) fn subset_name(r: &mut Report, path: &FieldPath, name: &str) {
    if name.is_empty() {
        r.error(path, "missing-field", "a subset requires a name");
    } else if !hosts::is_label(name) {
        r.error(
            path,
            "bad-value",
            format!("{name:?} is not a valid subset name; use letters, digits and dashes"),
        );
    }
}
