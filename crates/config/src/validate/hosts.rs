//! Hosts as users write them, and the gateways and namespaces in front of them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::validate::Report;

/// The longest host, in bytes.
const MAX_HOST: usize = 255;

/// Whether it is a DNS label as Istio checks it: letters of any case, digits, and dashes inside.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63 && text.bytes().all(inner) && ends.iter().all(|b| b.is_some_and(|b| b != b'-'))
}

/// A first label with or without a star: `*`, `*-a`, `*a`, `a`.
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

/// Why labels joined by dots are no DNS name. A dot at the end is allowed.
fn labels_problem(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if let Some(label) = text.split('.').find(|label| !is_label(label)) {
        return Some(format!("the label {label:?} is not letters, digits and dashes"));
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    last.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| format!("the last label {last:?} cannot be a number"))
}

/// Why a text is no host, wildcards allowed.
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
            "the label {first:?} is not letters, digits and dashes, or a wildcard"
        ));
    }
    if rest.is_empty() { None } else { labels_problem(rest) }
}

/// Why a text is no DNS name.
pub(super) fn fqdn_problem(text: &str) -> Option<String> {
    match text {
        "" => Some("it is empty".to_owned()),
        text if text.len() > MAX_HOST => Some(format!("it is longer than {MAX_HOST} characters")),
        text => labels_problem(text),
    }
}

/// A host; wildcards are allowed.
pub(super) fn wildcard_host(r: &mut Report, path: &FieldPath, host: &str) {
    if let Some(problem) = wildcard_problem(host) {
        r.error(path, "bad-host", format!("{host:?} is not a host: {problem}"));
    }
}

/// A host or an IP address; wildcards are allowed. With `sni` the names of clusters in SNI are, too
/// (`outbound_.80_._.host`).
pub(super) fn host_or_address(r: &mut Report, path: &FieldPath, host: &str, sni: bool) {
    let cluster = sni && host.starts_with("outbound_") && names::ClusterName::parse(host).is_ok();
    if !cluster && host.parse::<IpAddr>().is_err() {
        wildcard_host(r, path, host);
    }
}

/// A DNS name without wildcard.
pub(super) fn fqdn(r: &mut Report, path: &FieldPath, name: &str) {
    if let Some(problem) = fqdn_problem(name) {
        r.error(path, "bad-host", format!("{name:?} is not a DNS name: {problem}"));
    }
}

/// Whether only a part of the first label is a wildcard (`*a.example.com`).
pub(super) fn is_partial_wildcard(host: &str) -> bool {
    host.contains('*') && host.len() != 1 && !host.starts_with("*.")
}

/// Whether the hosts of `namespace/host` belong to a Gateway or to a Sidecar.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The namespace may be left out; addresses are hosts, too.
    Gateway,
    /// The namespace may be `~` or excluded by it.
    Sidecar,
}

/// A host with a namespace before it: `namespace/host`, `./host`, `*/host`.
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
            format!("{host:?} is a short name; hosts must be fully qualified here"),
        );
    } else if is_partial_wildcard(host) {
        r.error(
            path,
            "bad-host",
            format!("{host:?} has a wildcard for a part of a label"),
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
    let nobody = owner == Owner::Sidecar && namespace == "~";
    if !nobody && !matches!(name, "*" | ".") && !is_label(name) {
        r.error(
            path,
            "bad-host",
            format!("{namespace:?} is not a namespace, '.' or '*'"),
        );
    }
}

/// Names of gateways: `name`, `namespace/name`, or `mesh`.
pub(super) fn gateway_names(r: &mut Report, path: &FieldPath, names: &[Arc<str>]) {
    for (index, name) in names.iter().enumerate() {
        let at = path.index(index);
        match name.split_once('/') {
            Some((namespace, gateway)) => {
                for (part, what) in [(namespace, "namespace"), (gateway, "gateway")] {
                    if !is_label(part) {
                        r.error(&at, "bad-value", format!("{part:?} is not the name of a {what}"));
                    }
                }
            }
            None => {
                if let Some((gateway, rest)) = name.split_once('.') {
                    let namespace = rest.split('.').next().unwrap_or_default();
                    let message = format!("names with dots are outdated; write {namespace}/{gateway}");
                    r.warning(&at, "deprecated", message);
                }
                if let Some(problem) = fqdn_problem(name) {
                    r.error(
                        &at,
                        "bad-value",
                        format!("{name:?} is not the name of a gateway: {problem}"),
                    );
                }
            }
        }
    }
}
