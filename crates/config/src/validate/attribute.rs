//! Attributes of requests and connections that authorization policies ask for.

use std::net::IpAddr;
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::validate::{Report, attachment};

/// The most service accounts in a list; Istio's bound.
const MOST_SERVICE_ACCOUNTS: usize = 16;

/// Attributes that are compared as they are.
const PLAIN: [&str; 6] = [
    "source.namespace",
    "source.principal",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "connection.sni",
];

/// Attributes with a name in brackets.
const NAMED: [&str; 3] = ["request.headers", "request.auth.claims", "experimental.envoy.filters."];

/// The key of a condition; whether it is one.
pub(super) fn key(r: &mut Report, path: &FieldPath, key: &str) -> bool {
    let plain = [
        "source.ip",
        "remote.ip",
        "source.serviceAccount",
        "source.trustDomain",
        "destination.ip",
        "destination.port",
    ];
    if PLAIN.contains(&key) || plain.contains(&key) {
        return true;
    }
    if NAMED.iter().any(|prefix| key.starts_with(prefix)) {
        let named = key.find('[').is_some_and(|open| open > 0 && open + 2 < key.len());
        if !named || !key.ends_with(']') {
            let message = format!("{key:?} has no name in brackets, as in request.headers[User-Agent]");
            r.error(path, "bad-value", message);
            return false;
        }
        return true;
    }
    match key {
        "destination.namespace" => r.error_with(
            path,
            "unsupported",
            "destination.namespace is no attribute",
            "make the policy in the namespace that it is for",
        ),
        key if key.starts_with("destination.labels") => r.error_with(
            path,
            "unsupported",
            "destination.labels is no attribute",
            "use spec.selector",
        ),
        "destination.name" | "destination.user" => {
            r.error(path, "unsupported", format!("{key} is an attribute of v1alpha1 only"));
        }
        key => {
            let known = PLAIN.iter().chain(&plain).copied();
            let message = format!("there is no attribute {key:?}");
            match crate::decode::nearest(key, known) {
                Some(near) => r.error_with(path, "bad-value", message, format!("did you mean {near}?")),
                None => r.error(path, "bad-value", message),
            }
        }
    }
    false
}

/// Values that an attribute is compared with.
pub(super) fn values(r: &mut Report, path: &FieldPath, key: &str, values: &[Arc<str>]) {
    match key {
        "source.ip" | "remote.ip" | "destination.ip" => addresses(r, path, values),
        "destination.port" => ports(r, path, values),
        "source.serviceAccount" => service_accounts(r, path, values),
        "source.trustDomain" => wildcards(r, path, values),
        _ => attachment::not_empty(r, path, values),
    }
}

/// IP addresses and CIDR ranges.
pub(super) fn addresses(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, value) in values.iter().enumerate() {
        if value.parse::<IpAddr>().is_err() && value.parse::<ipnet::IpNet>().is_err() {
            let message = format!("{:?} is not an IP address or CIDR range", &**value);
            r.error(&path.index(index), "bad-value", message);
        }
    }
}

/// Port numbers, as texts.
pub(super) fn ports(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, value) in values.iter().enumerate() {
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        if !digits || value.parse::<u16>().is_err() {
            let message = format!("{:?} is not a port number", &**value);
            r.error(&path.index(index), "bad-value", message);
        }
    }
}

/// Service accounts, as `NAMESPACE/NAME` or `NAME`.
pub(super) fn service_accounts(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    if values.len() > MOST_SERVICE_ACCOUNTS {
        let message = format!("at most {MOST_SERVICE_ACCOUNTS} service accounts are supported");
        r.error(path, "out-of-range", message);
    }
    for (index, value) in values.iter().enumerate() {
        let at = path.index(index);
        let parts: Vec<&str> = value.split('/').collect();
        if value.contains('*') {
            r.error_with(
                &at,
                "unsupported",
                "wildcards are not supported in service accounts",
                "use principals",
            );
        } else if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
            let message = format!("{:?} has not the form NAMESPACE/NAME or NAME", &**value);
            r.error(&at, "bad-value", message);
        }
    }
}

/// Trust domains, of which one end may be a wildcard.
pub(super) fn trust_domains(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    wildcards(r, path, values);
    for (index, value) in values.iter().enumerate().filter(|(_, value)| value.contains('/')) {
        let message = format!("{:?} is not a trust domain: it has a /", &**value);
        r.error(&path.index(index), "bad-value", message);
    }
}

/// Texts with at most one `*`, at one of their ends.
fn wildcards(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    attachment::not_empty(r, path, values);
    for (index, value) in values.iter().enumerate() {
        let inner = value.strip_prefix('*').or(value.strip_suffix('*')).unwrap_or(value);
        if inner.contains('*') {
            let message = format!("{:?} has a * that is not its beginning or its end", &**value);
            r.error(&path.index(index), "bad-value", message);
        }
    }
}

/// Paths, in which `{*}` stands for one segment and `{**}` for any number of them at the end.
pub(super) fn path_templates(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, value) in values.iter().enumerate() {
        if let Some(problem) = template_problem(value) {
            r.error(&path.index(index), "bad-value", format!("{:?}: {problem}", &**value));
        }
    }
}

fn template_problem(value: &str) -> Option<String> {
    let is_template = value.contains("{*}") || value.contains("{**}");
    let mut rest_seen = false;
    for segment in value.trim_matches('/').split('/') {
        match segment {
            "{*}" | "{**}" if rest_seen => {
                return Some("{**} must be the last segment that stands for others".to_owned());
            }
            "{*}" => {}
            "{**}" => rest_seen = true,
            segment if segment.contains(['{', '}']) => {
                return Some(format!("the segment {segment:?} has braces; only {{*}} and {{**}} may"));
            }
            segment if is_template && !is_literal(segment) => {
                return Some(format!(
                    "the segment {segment:?} has characters that a template cannot have"
                ));
            }
            _ => {}
        }
    }
    None
}

/// Whether a segment can stand in a template: the characters of paths (RFC 3986), without `*`.
fn is_literal(segment: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&b);
    !segment.is_empty() && segment.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::template_problem;

    #[test]
    fn templates() {
        for good in [
            "/a",
            "/a*",
            "*/a",
            "*",
            "/a/{*}/b",
            "/a/{**}",
            "/{**}/a",
            "/{*}/{**}",
            "a b",
        ] {
            assert_eq!(template_problem(good), None, "{good}");
        }
        for bad in [
            "/a/{**}/{*}",
            "/{**}/{**}",
            "/{a}",
            "/a{*}",
            "/{*}/a*",
            "/{*}//b",
            "/{*}/a b",
            "/{",
        ] {
            assert!(template_problem(bad).is_some(), "{bad}");
        }
    }
}
