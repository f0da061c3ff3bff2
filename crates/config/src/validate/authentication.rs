//! Validation of PeerAuthentication and RequestAuthentication.

use serde_json::Value as Json;

use crate::diagnostic::FieldPath;
use crate::istio::authentication::JwtRule;
use crate::istio::{PeerAuthentication, RequestAuthentication};
use crate::validate::{Report, attachment, common};

pub(super) fn check_peer(r: &mut Report, spec: &PeerAuthentication) {
    let path = FieldPath::spec();
    attachment::selector(r, &path.field("selector"), spec.selector.as_ref());
    let ports = path.field("portLevelMtls");
    let selects = spec.selector.as_ref().is_some_and(|s| !s.match_labels.is_empty());
    if !spec.port_level_mtls.is_empty() && !selects {
        r.error_with(
            &ports,
            "exclusive-fields",
            "portLevelMtls requires a selector with labels",
            "create a policy with a selector for these workloads",
        );
    }
    for port in spec.port_level_mtls.keys() {
        let number = port.parse::<u16>().ok().filter(|n| *n > 0);
        if number.is_none() {
            let message = format!("a port must be between 1 and 65535, not {:?}", &**port);
            r.error(&ports.key(port.clone()), "out-of-range", message);
        }
    }
}

pub(super) fn check_request(r: &mut Report, spec: &RequestAuthentication) {
    attachment::check(r, spec.selector.as_ref(), spec.target_ref.as_ref(), &spec.target_refs);
    for (index, rule) in spec.jwt_rules.iter().enumerate() {
        jwt_rule(r, &FieldPath::spec().field("jwtRules").index(index), rule);
    }
}

fn jwt_rule(r: &mut Report, path: &FieldPath, rule: &JwtRule) {
    if rule.issuer.is_empty() && rule.jwks_uri.is_empty() {
        r.error(path, "missing-field", "a rule requires issuer or jwksUri");
    }
    if !rule.jwks_uri.is_empty() {
        let at = path.field("jwksUri");
        if let Some(problem) = uri_problem(&rule.jwks_uri) {
            r.error(
                &at,
                "bad-value",
                format!("{:?} is not a valid URL: {problem}", &*rule.jwks_uri),
            );
        }
        if !rule.jwks.is_empty() {
            r.error(
                &path.field("jwks"),
                "exclusive-fields",
                "only one of jwksUri and jwks may be set",
            );
        }
    }
    if !rule.jwks.is_empty() {
        jwks(r, &path.field("jwks"), &rule.jwks);
    }
    common::duration(r, &path.field("timeout"), rule.timeout);
}

/// Reports why a URL cannot be fetched over HTTP.
fn uri_problem(uri: &str) -> Option<String> {
    let Some(rest) = uri.strip_prefix("http://").or(uri.strip_prefix("https://")) else {
        return Some("it must start with http:// or https://".to_owned());
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    match port {
        Some((_, port)) if !port.is_empty() && port.parse::<u16>().is_err() => {
            Some(format!("the port {port:?} is not a number"))
        }
        _ if uri.contains(|c: char| c.is_ascii_control() || c == ' ') => Some("it contains blanks".to_owned()),
        _ => None,
    }
}

/// Checks a JSON Web Key Set, or a single key.
fn jwks(r: &mut Report, path: &FieldPath, text: &str) {
    let keys = match serde_json::from_str::<Json>(text) {
        Ok(Json::Object(mut set)) => match set.remove("keys") {
            Some(Json::Array(keys)) => keys,
            Some(_) => return r.error(path, "bad-value", "the field keys of a JSON Web Key Set must be a list"),
            None => vec![Json::Object(set)],
        },
        Ok(_) => return r.error(path, "bad-value", "a JSON Web Key Set must be an object"),
        Err(error) => return r.error(path, "bad-value", format!("not a valid JSON Web Key Set: {error}")),
    };
    for (index, key) in keys.iter().enumerate() {
        match key_problem(key) {
            Some(problem) => r.error(path, "bad-value", format!("key {index} {problem}")),
            None if is_private(key) => r.warning_with(
                path,
                "insecure",
                format!("key {index} is a private key, which everyone who can read the object can use"),
                "use public keys, which are sufficient to verify signatures",
            ),
            None => {}
        }
    }
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
    let missing = needed
        .iter()
        .find(|name| !key.get(**name).is_some_and(Json::is_string))?;
    Some(format!("lacks the field {missing}"))
}

fn is_private(key: &Json) -> bool {
    key.get("d").is_some() || key.get("kty").is_some_and(|kty| kty == "oct")
}
