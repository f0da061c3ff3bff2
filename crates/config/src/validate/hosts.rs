//! Hosts, optionally with a namespace, and gateway names.

use std::net::IpAddr;
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::validate::Report;

/// Maximum length of a host, in bytes.
const MAX_HOST: usize = 255;

/// Whether a text is a DNS label as Istio checks it: letters of either case, digits, and inner dashes.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63 && text.bytes().all(inner) && ends.iter().all(|b| b.is_some_and(|b| b != b'-'))
}

/// Whether a text is a first label with an optional wildcard: `*`, `*-a`, `*a`, `a`.
fn is_wildcard_label(text: &str) -> bool {
    let rest = text.strip_prefix('*').unwrap_or(text);
    let starred = rest.len() < text.len();
    (starred && rest.is_empty())
        || is_label(if starred {
            rest.strip_prefix('-').unwrap_or(rest)
        } else {
            rest
        })
}

/// Reports why labels joined by dots are not a DNS name. A trailing dot is allowed.
fn labels_problem(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if let Some(label) = text.split('.').find(|label| !is_label(label)) {
        return Some(format!(
            "the label {label:?} must consist of letters, digits and dashes"
        ));
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    last.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| format!("the last label {last:?} must not be a number"))
}

/// Reports why a text is not a host; wildcards are allowed.
fn wildcard_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("it is empty".to_owned());
    }
    if text.len() > MAX_HOST {
        return Some(format!("it is longer than {MAX_HOST} characters"));
    }
    let (first, rest) = text.split_once('.').unwrap_or((text, ""));
    if !is_wildcard_label(first) {
        return Some(format!(
            "the label {first:?} must consist of letters, digits and dashes, or be a wildcard"
        ));
    }
    if rest.is_empty() { None } else { labels_problem(rest) }
}

/// Reports why a text is not a DNS name.
pub(super) fn fqdn_problem(text: &str) -> Option<String> {
    match text {
        "" => Some("it is empty".to_owned()),
        text if text.len() > MAX_HOST => Some(format!("it is longer than {MAX_HOST} characters")),
        text => labels_problem(text),
    }
}

/// Checks a host; wildcards are allowed.
pub(super) fn wildcard_host(r: &mut Report, path: &FieldPath, host: &str) {
    if let Some(problem) = wildcard_problem(host) {
        r.error(path, "bad-host", format!("{host:?} is not a valid host: {problem}"));
    }
}

/// Checks a host or IP address; wildcards are allowed. With `sni`, cluster names in SNI format (`outbound_.80_._.host`)
/// are also allowed.
pub(super) fn host_or_address(r: &mut Report, path: &FieldPath, host: &str, sni: bool) {
    let cluster = sni && host.starts_with("outbound_") && names::ClusterName::parse(host).is_ok();
    if !cluster && host.parse::<IpAddr>().is_err() {
        wildcard_host(r, path, host);
    }
}

/// Checks a DNS name without wildcards.
pub(super) fn fqdn(r: &mut Report, path: &FieldPath, name: &str) {
    if let Some(problem) = fqdn_problem(name) {
        r.error(path, "bad-host", format!("{name:?} is not a valid DNS name: {problem}"));
    }
}

/// Whether a wildcard covers only a part of the first label (`*a.example.com`).
pub(super) fn is_partial_wildcard(host: &str) -> bool {
    host.contains('*') && host.len() != 1 && !host.starts_with("*.")
}

/// Kind of object that a `namespace/host` belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The namespace is optional, and IP addresses are allowed.
    Gateway,
    /// The namespace can be `~` or prefixed with it.
    Sidecar,
}

/// Checks a host with a namespace: `namespace/host`, `./host`, `*/host`.
pub(super) fn namespaced_host(r: &mut Report, path: &FieldPath, text: &str, owner: Owner) {
    let host = match (text.split_once('/'), owner) {
        (Some((namespace, host)), _) => {
            namespace_part(r, path, namespace, owner);
            host
        }
        (None, Owner::Gateway) => text,
        (None, Owner::Sidecar) => {
            return r.error(path, "bad-host", format!("{text:?} must have the form NAMESPACE/HOST"));
        }
    };
    if host.is_empty() {
        return r.error(path, "bad-host", "the host is empty");
    }
    if owner == Owner::Gateway && host.parse::<IpAddr>().is_ok() {
        return;
    }
    if host != "*" && !host.contains('.') {
        r.error(
            path,
            "bad-host",
            format!("{host:?} is a short name; the host must be fully qualified"),
        );
    } else if is_partial_wildcard(host) {
        r.error(
            path,
            "bad-host",
            format!("{host:?} has a wildcard for only a part of a label"),
        );
    } else {
        wildcard_host(r, path, host);
    }
}

fn namespace_part(r: &mut Report, path: &FieldPath, namespace: &str, owner: Owner) {
    let name = match owner {
        Owner::Gateway => namespace,
        Owner::Sidecar => namespace.strip_prefix('~').unwrap_or(namespace),
    };
    let is_none = owner == Owner::Sidecar && namespace == "~";
    if !is_none && !matches!(name, "*" | ".") && !is_label(name) {
        r.error(
            path,
            "bad-host",
            format!("{namespace:?} is not a valid namespace name, '.' or '*'"),
        );
    }
}

/// Checks gateway names: `name`, `namespace/name` or `mesh`.
pub(super) fn gateway_names(r: &mut Report, path: &FieldPath, names: &[Arc<str>]) {
    for (index, name) in names.iter().enumerate() {
        let at = path.index(index);
        match name.split_once('/') {
            Some((namespace, gateway)) => {
                for (part, what) in [(namespace, "namespace"), (gateway, "gateway")] {
                    if !is_label(part) {
                        r.error(&at, "bad-value", format!("{part:?} is not a valid {what} name"));
                    }
                }
            }
            None => {
                if let Some((gateway, rest)) = name.split_once('.') {
                    let namespace = rest.split('.').next().unwrap_or_default();
                    let message = format!("gateway names with dots are deprecated; use {namespace}/{gateway}");
                    r.warning(&at, "deprecated", message);
                }
                if let Some(problem) = fqdn_problem(name) {
                    r.error(
                        &at,
                        "bad-value",
                        format!("{name:?} is not a valid gateway name: {problem}"),
                    );
                }
            }
        }
    }
}
