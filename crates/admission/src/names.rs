//! Validation of names. Each function returns the violations in the wording of Kubernetes.

/// Names of most objects: lowercase DNS subdomains.
pub(crate) fn dns_subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    if text.split('.').all(is_label) {
        return None;
    }
    Some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
         end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .into(),
    )
}

/// Names of namespaces: one DNS label.
pub(crate) fn dns_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    if is_label(text) {
        return None;
    }
    Some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
         an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .into(),
    )
}

/// Names of services: a DNS label that starts with a letter.
pub(crate) fn dns_1035_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    if is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return None;
    }
    Some(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
         end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
         '[a-z]([-a-z0-9]*[a-z0-9])?')"
            .into(),
    )
}

/// Keys of labels and annotations: `NAME` or `DOMAIN/NAME`.
pub(crate) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return Some(format!(
                "a qualified name {LETTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
        }
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".into()),
        Some(prefix) => {
            if let Some(why) = dns_subdomain(prefix) {
                return Some(format!("prefix part {why}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    if is_word(name) {
        return None;
    }
    Some(format!(
        "name part {LETTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

/// Values of labels.
pub(crate) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    if text.is_empty() || is_word(text) {
        return None;
    }
    Some(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
         end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .into(),
    )
}

/// Keys of ConfigMaps and Secrets.
pub(crate) fn config_key(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    if text.starts_with("..") {
        return Some("must not start with '..'".into());
    }
    if text == "." {
        return Some("must not be '.'".into());
    }
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !text.is_empty() && text.bytes().all(fine) {
        return None;
    }
    Some(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or \
         'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            .into(),
    )
}

const LETTERS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}
