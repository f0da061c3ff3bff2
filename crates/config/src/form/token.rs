//! URLs and JSON Web Key Sets.

use serde_json::Value as Json;

use crate::form::{Fault, good};
use crate::key_set::KeySet;

/// URL schemes that a module can be fetched from.
const SCHEMES: [&str; 4] = ["file", "http", "https", "oci"];

/// The URL of a WebAssembly module.
pub(crate) fn module_url(url: &str) -> Result<(), Fault> {
    let problem = module_problem(url);
    good(problem.is_none(), || format!("{url:?} is not a valid URL: {}", problem.unwrap_or_default()))
}

fn module_problem(url: &str) -> Option<String> {
    if url.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return Some("it contains blanks or control characters".to_owned());
    }
    let mut percents = url.split('%').skip(1);
    if percents.any(|after| after.len() < 2 || !after.bytes().take(2).all(|b| b.is_ascii_hexdigit())) {
        return Some("a % must be followed by two hexadecimal digits".to_owned());
    }
    let (scheme, _) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))?;
    let known = SCHEMES.contains(&&*scheme.to_ascii_lowercase());
    (!known).then(|| {
        let known = SCHEMES.join(", ");
        format!("the scheme {scheme:?} is not one of {known}; an image registry with a port requires the prefix oci://")
    })
}

fn is_scheme(text: &str) -> bool {
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    starts && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// A URL that can be fetched over HTTP.
pub(crate) fn http_url(url: &str) -> Result<(), Fault> {
    let problem = http_problem(url);
    good(problem.is_none(), || format!("{url:?} is not a valid URL: {}", problem.unwrap_or_default()))
}

fn http_problem(url: &str) -> Option<String> {
    let Some(rest) = url.strip_prefix("http://").or(url.strip_prefix("https://")) else {
        return Some("it must start with http:// or https://".to_owned());
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    match port {
        Some((_, port)) if !port.is_empty() && port.parse::<u16>().is_err() => {
            Some(format!("the port {port:?} is not a number"))
        }
        _ if url.contains(|c: char| c.is_ascii_control() || c == ' ') => Some("it contains blanks".to_owned()),
        _ => None,
    }
}

/// A JSON Web Key Set, or a single key.
pub(crate) fn key_set(text: &str) -> Result<(), Fault> {
    let bad = |message: String| Err(Fault::new("bad-value", message));
    let keys = match serde_json::from_str::<Json>(text) {
        Ok(Json::Object(mut set)) => match set.remove("keys") {
            Some(Json::Array(keys)) => keys,
            Some(_) => return bad("the field keys of a JSON Web Key Set must be a list".to_owned()),
            None => vec![Json::Object(set)],
        },
        Ok(_) => return bad("a JSON Web Key Set must be an object".to_owned()),
        Err(error) => return bad(format!("not a valid JSON Web Key Set: {error}")),
    };
    let problem = |(index, key)| Some(format!("key {index} {}", key_problem(key)?));
    let problems: Vec<String> = keys.iter().enumerate().filter_map(problem).collect();
    if !problems.is_empty() {
        return bad(problems.join("; "));
    }
    let private = keys.iter().enumerate().filter(|(_, key)| is_private(key));
    let private: Vec<String> = private.map(|(index, _)| format!("key {index}")).collect();
    if private.is_empty() {
        return usable(text);
    }
    let message = format!("private, and readable by everyone who can read the object: {}", private.join(", "));
    Err(Fault::warning("insecure", message).hint("use public keys, which are sufficient to verify signatures"))
}

fn usable(text: &str) -> Result<(), Fault> {
    if KeySet::inline(text).is_ok() {
        return Ok(());
    }
    let message = "proxies can use no key of the set: all tokens of the issuer are rejected";
    let hint = "use RSA keys of 1,024 to 8,192 bits, or keys of P-256, P-384, P-521 or Ed25519";
    Err(Fault::warning("bad-value", message).hint(hint))
}

/// Reports why a value is not a valid key (RFC 7517).
fn key_problem(key: &Json) -> Option<String> {
    let needed: &[&str] = match key.get("kty").and_then(Json::as_str) {
        Some("RSA") => &["n", "e"],
        Some("EC") => &["crv", "x", "y"],
        Some("OKP") => &["crv", "x"],
        Some("oct") => &["k"],
        Some(other) => return Some(format!("has the unknown type {other:?}")),
        None => return Some("lacks the field kty".to_owned()),
    };
    let missing = needed.iter().find(|name| !key.get(**name).is_some_and(Json::is_string))?;
    Some(format!("lacks the field {missing}"))
}

fn is_private(key: &Json) -> bool {
    key.get("d").is_some() || key.get("kty").is_some_and(|kty| kty == "oct")
}

#[cfg(test)]
mod tests {
    use super::module_problem;

    #[test]
    fn addresses() {
        for good in ["docker.io/a/b:v1", "oci://h:5000/a@sha256:0", "https://h/a.wasm?x=%20", "file:///a", "a/b:c", ""]
        {
            assert_eq!(module_problem(good), None, "{good}");
        }
        for bad in ["ftp://h/a", "localhost:5000/a", "https://h/a b", "https://h/%zz", "https://h/%", "a\n"] {
            assert!(module_problem(bad).is_some(), "{bad}");
        }
    }
}
