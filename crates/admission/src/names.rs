//! Validation of names. Each function returns the violations in the wording of Kubernetes.

/// A violation unless the text has at most `max` characters and is good.
fn unless(max: usize, unit: &str, text: &str, good: bool, message: &str) -> Option<String> {
    if text.len() > max {
        return Some(format!("must be no more than {max} {unit}"));
    }
    (!good).then(|| message.to_owned())
}

/// Names of most objects: lowercase DNS subdomains.
pub(crate) fn dns_subdomain(text: &str) -> Option<String> {
    let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                   start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                   '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    unless(253, "characters", text, text.split('.').all(is_label), message)
}

/// Names of namespaces: one DNS label.
pub(crate) fn dns_label(text: &str) -> Option<String> {
    let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                   end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                   '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    unless(63, "characters", text, is_label(text), message)
}

/// Names of services: a DNS label that starts with a letter.
pub(crate) fn dns_1035_label(text: &str) -> Option<String> {
    let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                   character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                   validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let good = is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    unless(63, "characters", text, good, message)
}

/// Keys of labels and annotations: `NAME` or `DOMAIN/NAME`.
pub(crate) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return Some(format!(
                "a qualified name {LETTERS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    if prefix == Some("") {
        return Some("prefix part must be non-empty".into());
    }
    if let Some(why) = prefix.and_then(dns_subdomain) {
        return Some(format!("prefix part {why}"));
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    unless(63, "bytes", name, is_word(name), LETTERS).map(|why| format!("name part {why}"))
}

/// Values of labels.
pub(crate) fn label_value(text: &str) -> Option<String> {
    let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                   start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                   for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    unless(63, "bytes", text, text.is_empty() || is_word(text), message)
}

/// Keys of ConfigMaps and Secrets.
pub(crate) fn config_key(text: &str) -> Option<String> {
    let message = match text {
        text if text.len() <= 253 && text.starts_with("..") => "must not start with '..'",
        "." => "must not be '.'",
        _ => {
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
             or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        }
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let good = !text.is_empty() && text != "." && !text.starts_with("..") && text.bytes().all(plain);
    unless(253, "characters", text, good, message)
}

const LETTERS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
     'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}
