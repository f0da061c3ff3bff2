//! Discovery documents and redirects: the next URL to fetch.

use config::MAX_KEY_SET;
use serde_json::Value;
use url::Url;

/// The maximum length of a URL.
const MAX_URL: usize = 2048;

/// The reason why a URL cannot be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// It cannot be parsed.
    #[error("the URL is not valid")]
    Invalid,
    /// It is neither HTTP nor HTTPS.
    #[error("the URL is neither http:// nor https://")]
    Scheme,
    /// It contains a user name or a password.
    #[error("the URL contains credentials")]
    Credentials,
    /// It leads from HTTPS to HTTP.
    #[error("the server redirects from https:// to http://")]
    Downgrade,
}

/// The reason why a discovery document cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// It is larger than a key set may be.
    #[error("the discovery document is larger than 1 MiB")]
    TooLarge,
    /// It is not a JSON object.
    #[error("the discovery document is not a JSON object")]
    Malformed,
    /// It has no `jwks_uri`.
    #[error("the discovery document has no jwks_uri")]
    NoUri,
    /// Its `jwks_uri` cannot be fetched.
    #[error("the jwks_uri of the discovery document cannot be used: {0}")]
    Uri(UrlError),
}

/// A URL that may be fetched.
///
/// # Errors
/// The reason why it may not.
pub fn parse_url(text: &str) -> Result<Url, UrlError> {
    if text.len() > MAX_URL {
        return Err(UrlError::Invalid);
    }
    checked(Url::parse(text).map_err(|_| UrlError::Invalid)?)
}

/// The URL of the key set that a discovery document (OpenID Connect Discovery 1.0) names.
///
/// # Errors
/// The reason why there is none.
pub fn key_set_url(document: &[u8]) -> Result<Url, DiscoveryError> {
    if document.len() > MAX_KEY_SET {
        return Err(DiscoveryError::TooLarge);
    }
    let Ok(Value::Object(document)) = serde_json::from_slice::<Value>(document) else {
        return Err(DiscoveryError::Malformed);
    };
    let uri = document.get("jwks_uri").and_then(Value::as_str).ok_or(DiscoveryError::NoUri)?;
    parse_url(uri).map_err(DiscoveryError::Uri)
}

/// The URL that a redirect from `base` leads to.
///
/// # Errors
/// The reason why it may not be followed.
pub fn redirect(base: &Url, location: &str) -> Result<Url, UrlError> {
    if location.len() > MAX_URL {
        return Err(UrlError::Invalid);
    }
    let target = checked(base.join(location).map_err(|_| UrlError::Invalid)?)?;
    match base.scheme() == "https" && target.scheme() == "http" {
        true => Err(UrlError::Downgrade),
        false => Ok(target),
    }
}

fn checked(url: Url) -> Result<Url, UrlError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme);
    }
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => Err(UrlError::Credentials),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_discovery_document_names_the_key_set() {
        let url = |document: &str| key_set_url(document.as_bytes()).map(String::from);
        assert_eq!(url(r#"{"jwks_uri":"https://a.example/k","more":[1]}"#), Ok("https://a.example/k".to_owned()));
        assert_eq!(url("[]"), Err(DiscoveryError::Malformed));
        assert_eq!(url("{}"), Err(DiscoveryError::NoUri));
        assert_eq!(url(r#"{"jwks_uri":1}"#), Err(DiscoveryError::NoUri));
        assert_eq!(url(r#"{"jwks_uri":"file:///etc/passwd"}"#), Err(DiscoveryError::Uri(UrlError::Scheme)));
        assert_eq!(url(r#"{"jwks_uri":"https://u:p@a.example"}"#), Err(DiscoveryError::Uri(UrlError::Credentials)));
        assert_eq!(url(&format!("{{{}", " ".repeat(MAX_KEY_SET))), Err(DiscoveryError::TooLarge));
    }

    #[test]
    fn redirects_are_relative_to_the_url_and_never_lose_tls() {
        let base = parse_url("https://a.example/x/y").expect("a URL");
        let to = |location: &str| redirect(&base, location).map(String::from);
        assert_eq!(to("z"), Ok("https://a.example/x/z".to_owned()));
        assert_eq!(to("/z"), Ok("https://a.example/z".to_owned()));
        assert_eq!(to("//b.example/z"), Ok("https://b.example/z".to_owned()));
        assert_eq!(to("http://a.example/z"), Err(UrlError::Downgrade));
        assert_eq!(to("gopher://a.example/"), Err(UrlError::Scheme));
        let plain = parse_url("http://a.example").expect("a URL");
        assert_eq!(redirect(&plain, "https://b.example/").map(String::from), Ok("https://b.example/".to_owned()));
    }

    proptest! {
        #[test]
        fn whatever_a_server_sends_leads_to_http_only(body in any::<Vec<u8>>(), uri in ".*", location in ".*") {
            let _ = key_set_url(&body);
            let document = serde_json::json!({ "jwks_uri": uri }).to_string();
            for url in key_set_url(document.as_bytes()).into_iter().chain(parse_url(&uri)) {
                prop_assert!(matches!(url.scheme(), "http" | "https"));
                prop_assert!(url.host_str().is_some_and(|host| !host.is_empty()));
            }
            let base = parse_url("https://a.example/x").expect("a URL");
            if let Ok(url) = redirect(&base, &location) {
                prop_assert_eq!(url.scheme(), "https");
            }
        }
    }
}
