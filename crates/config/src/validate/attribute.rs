//! Attributes that AuthorizationPolicy conditions refer to.

use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::validate::{Report, attachment, common};

/// Maximum number of service accounts in a list, as in Istio.
const MAX_SERVICE_ACCOUNTS: usize = 16;

/// Attributes whose values have no specific format.
const PLAIN: [&str; 6] = [
    "source.namespace",
    "source.principal",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "connection.sni",
];

/// Attributes that require a name in brackets.
const NAMED: [&str; 3] = ["request.headers", "request.auth.claims", "experimental.envoy.filters."];

/// Checks the key of a condition and returns whether it is valid.
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
            let message = format!("{key:?} requires a name in brackets, such as request.headers[User-Agent]");
            r.error(path, "bad-value", message);
            return false;
        }
        return true;
    }
    match key {
        "destination.namespace" => r.error_with(
            path,
            "unsupported",
            "the attribute destination.namespace is not supported",
            "create the policy in the destination's namespace",
        ),
        key if key.starts_with("destination.labels") => r.error_with(
            path,
            "unsupported",
            "the attribute destination.labels is not supported",
            "use spec.selector",
        ),
        "destination.name" | "destination.user" => {
            r.error(
                path,
                "unsupported",
                format!("the attribute {key} is supported in v1alpha1 only"),
            );
        }
        key => {
            let known = PLAIN.iter().chain(&plain).copied();
            let message = format!("unknown attribute {key:?}");
            match crate::decode::nearest(key, known) {
                Some(near) => r.error_with(path, "bad-value", message, format!("did you mean {near}?")),
                None => r.error(path, "bad-value", message),
            }
        }
    }
    false
}

/// Checks the values that an attribute is compared with.
pub(super) fn values(r: &mut Report, path: &FieldPath, key: &str, values: &[Arc<str>]) {
    match key {
        "source.ip" | "remote.ip" | "destination.ip" => addresses(r, path, values),
        "destination.port" => ports(r, path, values),
        "source.serviceAccount" => service_accounts(r, path, values),
        "source.trustDomain" => wildcards(r, path, values),
        _ => attachment::not_empty(r, path, values),
    }
}

/// Checks IP addresses and CIDR ranges.
pub(super) fn addresses(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, value) in values.iter().enumerate() {
        common::subnet(r, &path.index(index), value);
    }
}

/// Checks port numbers, written as strings.
pub(super) fn ports(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, value) in values.iter().enumerate() {
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        if !digits || value.parse::<u16>().is_err() {
            let message = format!("{:?} is not a valid port number", &**value);
            r.error(&path.index(index), "bad-value", message);
        }
    }
}

/// Checks service accounts: `NAMESPACE/NAME` or `NAME`.
pub(super) fn service_accounts(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    if values.len() > MAX_SERVICE_ACCOUNTS {
        let message = format!("at most {MAX_SERVICE_ACCOUNTS} service accounts are supported");
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
            let message = format!("{:?} must have the form NAMESPACE/NAME or NAME", &**value);
            r.error(&at, "bad-value", message);
        }
    }
}

/// Checks trust domains, which can have a wildcard at one end.
pub(super) fn trust_domains(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    wildcards(r, path, values);
    for (index, value) in values.iter().enumerate().filter(|(_, value)| value.contains('/')) {
        let message = format!("{:?} is not a valid trust domain: it contains a slash", &**value);
        r.error(&path.index(index), "bad-value", message);
    }
}

/// Checks texts with at most one `*`, at either end.
fn wildcards(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    attachment::not_empty(r, path, values);
    for (index, value) in values.iter().enumerate() {
        let inner = value.strip_prefix('*').or(value.strip_suffix('*')).unwrap_or(value);
        if inner.contains('*') {
            let message = format!("{:?} must contain * only at its start or its end", &**value);
            r.error(&path.index(index), "bad-value", message);
        }
    }
}

/// Checks paths. `{*}` matches one segment, `{**}` any number of segments at the end.
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
                return Some("{**} must be the last wildcard segment".to_owned());
            }
            "{*}" => {}
            "{**}" => rest_seen = true,
            segment if segment.contains(['{', '}']) => {
                return Some(format!(
                    "braces in the segment {segment:?} are not supported, except for {{*}} and {{**}}"
                ));
            }
            segment if is_template && !is_literal(segment) => {
                return Some(format!(
                    "the segment {segment:?} contains characters that are not allowed in a path template"
                ));
            }
            _ => {}
        }
    }
    None
}

/// Whether a segment is a valid literal of a path template: RFC 3986 path characters except `*`.
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
