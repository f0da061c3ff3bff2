//! Hosts, optionally with a namespace or a port, and names of gateways.

use std::net::IpAddr;

use crate::form::{Fault, good, label, port_number};

/// Maximum length of a host, in bytes.
const MAX_HOST: usize = 255;

/// Whether a text is a DNS label as Istio checks it: letters of either case, digits, and inner dashes.
pub(crate) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63 && text.bytes().all(inner) && ends.iter().all(|b| b.is_some_and(|b| b != b'-'))
}

/// Whether a text is a first label with an optional wildcard: `*`, `*-a`, `*a`, `a`.
fn is_wildcard_label(text: &str) -> bool {
    let rest = text.strip_prefix('*').unwrap_or(text);
    let starred = rest.len() < text.len();
    (starred && rest.is_empty()) || is_label(if starred { rest.strip_prefix('-').unwrap_or(rest) } else { rest })
}

/// Reports why labels joined by dots are not a DNS name. A trailing dot is allowed.
fn labels_problem(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if let Some(label) = text.split('.').find(|label| !is_label(label)) {
        return Some(format!("the label {label:?} must consist of letters, digits and dashes"));
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|b| b.is_ascii_digit()).then(|| format!("the last label {last:?} must not be a number"))
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
        return Some(format!("the label {first:?} must consist of letters, digits and dashes, or be a wildcard"));
    }
    if rest.is_empty() { None } else { labels_problem(rest) }
}

/// Reports why a text is not a DNS name.
pub(crate) fn fqdn_problem(text: &str) -> Option<String> {
    match text {
        "" => Some("it is empty".to_owned()),
        text if text.len() > MAX_HOST => Some(format!("it is longer than {MAX_HOST} characters")),
        text => labels_problem(text),
    }
}

/// Whether a wildcard covers only a part of the first label (`*a.example.com`).
pub(crate) fn is_partial_wildcard(host: &str) -> bool {
    host.contains('*') && host.len() != 1 && !host.starts_with("*.")
}

fn bad_host(message: impl Into<String>) -> Result<(), Fault> {
    Err(Fault::new("bad-host", message))
}

/// A host; wildcards are allowed.
pub(crate) fn host(text: &str) -> Result<(), Fault> {
    match wildcard_problem(text) {
        Some(problem) => bad_host(format!("{text:?} is not a valid host: {problem}")),
        None => Ok(()),
    }
}

/// The host of a destination.
pub(crate) fn destination_host(text: &str) -> Result<(), Fault> {
    good(text != "*", || "the host of a destination must not be *".to_owned())?;
    host(text)
}

/// A DNS name without wildcards.
pub(crate) fn name(text: &str) -> Result<(), Fault> {
    match fqdn_problem(text) {
        Some(problem) => bad_host(format!("{text:?} is not a valid DNS name: {problem}")),
        None => Ok(()),
    }
}

/// A DNS name without wildcards, or an IP address.
pub(crate) fn name_or_address(text: &str) -> Result<(), Fault> {
    text.parse::<IpAddr>().map_or_else(|_| name(text), |_| Ok(()))
}

/// A service: `[NAMESPACE/]HOST` or an IP address.
pub(crate) fn service(text: &str) -> Result<(), Fault> {
    let Some((namespace, host)) = text.split_once('/') else {
        return name_or_address(text);
    };
    label(namespace)?;
    name(host)
}

/// An address `HOST:PORT`. The host can be a placeholder for the node's address.
pub(crate) fn host_port(text: &str) -> Result<(), Fault> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    good(!port.is_empty(), || format!("{text:?} must have the form HOST:PORT"))?;
    port_number(port)?;
    good(!host.contains(':') || (host.starts_with('[') && host.ends_with(']')), || {
        format!("{text:?} has an IPv6 address without brackets; write [ADDRESS]:PORT")
    })?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host == "$(HOST_IP)" { Ok(()) } else { name_or_address(bare) }
}

/// The host of an Ingress.
pub(crate) fn ingress_host(text: &str) -> Result<(), Fault> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_name = !name.is_empty() && name.split('.').all(is_label);
    good(is_name && name.parse::<IpAddr>().is_err(), || {
        format!("{text:?} is not a valid host; use a DNS name, optionally with `*` as its first label")
    })
}

/// A host of a Gateway: `HOST`, `NAMESPACE/HOST`, `./HOST` or `*/HOST`.
pub(crate) fn gateway_host(text: &str) -> Result<(), Fault> {
    let host = match text.split_once('/') {
        Some((namespace, host)) => {
            namespace_part(namespace, namespace)?;
            host
        }
        None => text,
    };
    host.parse::<IpAddr>().map_or_else(|_| qualified(host), |_| Ok(()))
}

/// A host of a Sidecar: `NAMESPACE/HOST`, `./HOST` or `*/HOST`. The namespace can be `~` or prefixed with it.
pub(crate) fn sidecar_host(text: &str) -> Result<(), Fault> {
    let Some((namespace, host)) = text.split_once('/') else {
        return bad_host(format!("{text:?} must have the form NAMESPACE/HOST"));
    };
    if namespace != "~" {
        namespace_part(namespace, namespace.strip_prefix('~').unwrap_or(namespace))?;
    }
    qualified(host)
}

fn qualified(text: &str) -> Result<(), Fault> {
    match text {
        "" => bad_host("the host is empty"),
        text if text != "*" && !text.contains('.') => {
            bad_host(format!("{text:?} is a short name; the host must be fully qualified"))
        }
        text if is_partial_wildcard(text) => bad_host(format!("{text:?} has a wildcard for only a part of a label")),
        text => host(text),
    }
}

fn namespace_part(namespace: &str, name: &str) -> Result<(), Fault> {
    if matches!(name, "*" | ".") || is_label(name) {
        return Ok(());
    }
    bad_host(format!("{namespace:?} is not a valid namespace name, '.' or '*'"))
}

/// The name of a Gateway: `NAME`, `NAMESPACE/NAME` or `mesh`.
pub(crate) fn gateway_name(text: &str) -> Result<(), Fault> {
    if let Some((namespace, gateway)) = text.split_once('/') {
        let bad = [(namespace, "namespace"), (gateway, "gateway")].into_iter().find(|(part, _)| !is_label(part));
        return good(bad.is_none(), || {
            let (part, what) = bad.unwrap_or_default();
            format!("{part:?} is not a valid {what} name")
        });
    }
    let problem = fqdn_problem(text);
    good(problem.is_none(), || format!("{text:?} is not a valid gateway name: {}", problem.unwrap_or_default()))?;
    let Some((gateway, rest)) = text.split_once('.') else {
        return Ok(());
    };
    let namespace = rest.split('.').next().unwrap_or_default();
    let message = format!("gateway names with dots are deprecated; use {namespace}/{gateway}");
    Err(Fault::warning("deprecated", message))
}
