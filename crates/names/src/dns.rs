//! DNS labels and names, by the rules of RFC 1123 as Kubernetes applies them.

use crate::NameError;

/// The maximum length of a label, in bytes.
pub const MAX_LABEL: usize = 63;
/// The maximum length of a name, in bytes.
pub const MAX_NAME: usize = 253;

/// Whether the text is a DNS label: 1 to 63 lower-case letters, digits and `-`, without `-` at either end.
pub fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    bytes.len() <= MAX_LABEL && bytes.iter().all(inner) && ends_are_not(bytes, b'-')
}

/// Whether the text is a DNS subdomain, as Kubernetes requires for most object names: labels joined by dots, at most
/// 253 bytes.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

/// Whether the text is a label of a configured host: like [`is_label`], but upper case and `_` are accepted.
pub fn is_relaxed_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_';
    bytes.len() <= MAX_LABEL && bytes.iter().all(inner) && ends_are_not(bytes, b'-')
}

/// Checks a namespace name, which must be a DNS label.
pub fn check_namespace(text: &str) -> Result<(), NameError> {
    if is_label(text) {
        return Ok(());
    }
    Err(NameError::new(text, "is not a namespace: 1 to 63 lower-case letters, digits and dashes"))
}

fn ends_are_not(bytes: &[u8], end: u8) -> bool {
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if *first != end && *last != end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "0", "a-b", &"x".repeat(63)] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "é", &"x".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
        assert!(is_relaxed_label("_Srv"));
        assert!(!is_relaxed_label("a b"));
    }

    #[test]
    fn subdomains_are_dns_labels_joined_by_dots() {
        assert!(is_subdomain("reviews.default.svc.cluster.local"));
        assert!(!is_subdomain("a..b"));
        assert!(!is_subdomain(".a"));
        assert!(!is_subdomain(&vec!["abcdefgh"; 29].join(".")));
        assert!(check_namespace("istio-system").is_ok());
        assert!(check_namespace("a.b").is_err());
    }
}
