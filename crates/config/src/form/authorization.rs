//! Texts in AuthorizationPolicies.

use crate::decode::nearest;
use crate::form::{Fault, good, text};

/// Attributes of conditions without a name in brackets.
const ATTRIBUTES: [&str; 12] = [
    "source.namespace",
    "source.principal",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "connection.sni",
    "source.ip",
    "remote.ip",
    "source.serviceAccount",
    "source.trustDomain",
    "destination.ip",
    "destination.port",
];

/// Attributes that require a name in brackets.
const NAMED: [&str; 3] = ["request.headers", "request.auth.claims", "experimental.envoy.filters."];

/// The attribute of a condition.
pub(crate) fn attribute(key: &str) -> Result<(), Fault> {
    if ATTRIBUTES.contains(&key) {
        return Ok(());
    }
    if NAMED.iter().any(|prefix| key.starts_with(prefix)) {
        let named = key.find('[').is_some_and(|open| open > 0 && open + 2 < key.len());
        return good(named && key.ends_with(']'), || {
            format!("{key:?} requires a name in brackets, such as request.headers[User-Agent]")
        });
    }
    let unsupported = |message: String| Fault::new("unsupported", message);
    Err(match key {
        "destination.namespace" => unsupported("the attribute destination.namespace is not supported".to_owned())
            .hint("create the policy in the destination's namespace"),
        key if key.starts_with("destination.labels") => {
            unsupported("the attribute destination.labels is not supported".to_owned()).hint("use spec.selector")
        }
        "destination.name" | "destination.user" => {
            unsupported(format!("the attribute {key} is supported in v1alpha1 only"))
        }
        key => {
            let fault = Fault::new("bad-value", format!("unknown attribute {key:?}"));
            match nearest(key, ATTRIBUTES) {
                Some(near) => fault.hint(format!("did you mean {near}?")),
                None => fault,
            }
        }
    })
}

/// A service account: `NAMESPACE/NAME` or `NAME`.
pub(crate) fn service_account(value: &str) -> Result<(), Fault> {
    if value.contains('*') {
        let fault = Fault::new("unsupported", "wildcards are not supported in service accounts");
        return Err(fault.hint("use principals"));
    }
    let parts: Vec<&str> = value.split('/').collect();
    good(parts.len() <= 2 && !parts.contains(&""), || format!("{value:?} must have the form NAMESPACE/NAME or NAME"))
}

/// A trust domain, with at most one `*`, at either end.
pub(crate) fn trust_domain_pattern(value: &str) -> Result<(), Fault> {
    wildcard(value)?;
    good(!value.contains('/'), || format!("{value:?} is not a valid trust domain: it contains a slash"))
}

/// A text with at most one `*`, at either end.
pub(crate) fn wildcard(value: &str) -> Result<(), Fault> {
    text(value)?;
    let inner = value.strip_prefix('*').or(value.strip_suffix('*')).unwrap_or(value);
    good(!inner.contains('*'), || format!("{value:?} must contain * only at its start or its end"))
}

/// A path. `{*}` matches one segment, `{**}` any number of segments at the end.
pub(crate) fn path_template(value: &str) -> Result<(), Fault> {
    text(value)?;
    let problem = template_problem(value);
    good(problem.is_none(), || format!("{value:?}: {}", problem.unwrap_or_default()))
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
        for good in ["/a", "/a*", "*/a", "*", "/a/{*}/b", "/a/{**}", "/{**}/a", "/{*}/{**}", "a b"] {
            assert_eq!(template_problem(good), None, "{good}");
        }
        for bad in ["/a/{**}/{*}", "/{**}/{**}", "/{a}", "/a{*}", "/{*}/a*", "/{*}//b", "/{*}/a b", "/{"] {
            assert!(template_problem(bad).is_some(), "{bad}");
        }
    }
}
