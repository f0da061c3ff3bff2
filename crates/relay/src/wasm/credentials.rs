//! Credentials of registries, in Docker's format.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::FetchError;

/// The largest file of credentials, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The credentials of a registry. They are not shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Requests without credentials.
    Anonymous,
    /// A name and a password.
    Basic(String, String),
    /// A token that is exchanged for another one.
    Identity(String),
    /// A token that is sent as it is.
    Token(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// The credentials of a registry: of the pull secret or, without one, of the file.
///
/// # Errors
/// The pull secret cannot be read.
pub(super) fn find(secret: Option<&str>, file: Option<&Path>, registry: &str) -> Result<Credentials, FetchError> {
    if let Some(secret) = secret {
        return in_config(secret.as_bytes(), registry).ok_or(FetchError::Secret);
    }
    let small = file.filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() <= MAX_FILE));
    let config = small.and_then(|file| std::fs::read(file).ok());
    Ok(config.and_then(|config| in_config(&config, registry)).unwrap_or(Credentials::Anonymous))
}

/// The credentials of a registry in a configuration; none if it is not valid.
fn in_config(config: &[u8], registry: &str) -> Option<Credentials> {
    let config: Value = serde_json::from_slice(config).ok()?;
    let auths = config.as_object()?.get("auths").and_then(Value::as_object);
    let found = auths.into_iter().flatten().find(|(key, _)| host(key) == registry || *key == registry);
    let Some((_, entry)) = found else { return Some(Credentials::Anonymous) };
    let text = |name: &str| entry[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(token) = text("registrytoken") {
        return Some(Credentials::Token(token));
    }
    if let Some(token) = text("identitytoken") {
        return Some(Credentials::Identity(token));
    }
    if let Some(encoded) = text("auth") {
        let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (name, password) = decoded.split_once(':')?;
        return Some(Credentials::Basic(name.to_owned(), password.trim_end_matches('\0').to_owned()));
    }
    Some(match (text("username"), text("password")) {
        (Some(name), Some(password)) => Credentials::Basic(name, password),
        _ => Credentials::Anonymous,
    })
}

/// The host of a key, which may be a URL.
fn host(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.split_once('/').map_or(key, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_registry() {
        let basic = Credentials::Basic("u".to_owned(), "p:q".to_owned());
        let encoded = STANDARD.encode("u:p:q");
        for (entry, expected) in [
            (format!(r#"{{"auth": "{encoded}"}}"#), basic.clone()),
            (r#"{"username": "u", "password": "p:q"}"#.to_owned(), basic),
            (r#"{"identitytoken": "t", "auth": "AAAA"}"#.to_owned(), Credentials::Identity("t".to_owned())),
            (r#"{"registrytoken": "t"}"#.to_owned(), Credentials::Token("t".to_owned())),
            ("{}".to_owned(), Credentials::Anonymous),
        ] {
            for key in ["r.io", "https://r.io/v1/", "r.io/x"] {
                let config = format!(r#"{{"auths": {{"other": {{"auth": "eDp5"}}, "{key}": {entry}}}}}"#);
                assert!(find(Some(&config), None, "r.io").unwrap() == expected, "{config}");
            }
        }
    }

    #[test]
    fn secrets_that_are_not_valid_are_errors_without_their_content() {
        for secret in ["null", "hunter2", r#"{"auths": {"r.io": {"auth": "%"}}}"#] {
            let error = find(Some(secret), None, "r.io").unwrap_err();
            assert!(!format!("{error} {error:?}").contains(secret));
        }
        assert_eq!(find(Some(r#"{"auths": {}}"#), None, "r.io").unwrap(), Credentials::Anonymous);
        assert_eq!(find(None, Some(Path::new("/none")), "r.io").unwrap(), Credentials::Anonymous);
        assert_eq!(format!("{:?}", Credentials::Token("secret".to_owned())), "Credentials");
    }
}
