//! Protects the plaintext port against pages of other sites in a browser on this machine.
//!
//! A page can send requests to this port, and with DNS rebinding also read the responses. So the port accepts only names and
//! addresses of this machine as `Host` and `Origin`, no cross-site requests, and bodies only with a content type that a
//! page cannot send without asking first.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderName, Method};

use crate::error::ApiError;

/// Tells where a request of a browser comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks the head of a request on the plaintext port.
///
/// # Errors
/// It may come from a page of another site.
pub(super) fn check(plaintext: bool, head: &Parts) -> Result<(), ApiError> {
    if !plaintext {
        return Ok(());
    }
    let text = |name: HeaderName| head.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = head.uri.authority().map(http::uri::Authority::as_str).or(text(HOST)).unwrap_or_default();
    if !is_local(host) {
        return Err(ApiError::new(421, "Forbidden", "this port accepts only names and addresses of this machine"));
    }
    let foreign_origin = text(ORIGIN).is_some_and(|origin| {
        let host = origin.split_once("://").map(|(_, host)| host);
        !host.is_some_and(|host| !host.is_empty() && is_local(host))
    });
    let site = text(SEC_FETCH_SITE);
    if foreign_origin || site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(ApiError::new(403, "Forbidden", "this port does not accept requests from pages of other sites"));
    }
    let writes = [Method::POST, Method::PUT, Method::PATCH].contains(&head.method);
    if writes && text(CONTENT_TYPE).is_none_or(is_of_pages) {
        let possible = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
        return Err(ApiError::unsupported_media_type(&possible));
    }
    Ok(())
}

/// Whether a `HOST[:PORT]` names this machine.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let ip = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name.is_empty() || name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Whether a page can send a body of this type without asking first. The types of objects and patches are others; the handler
/// of the request checks which.
fn is_of_pages(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.is_empty() || media.starts_with("text/") || media.starts_with("multipart/") || media.ends_with("urlencoded")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn code(plaintext: bool, method: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri("/api");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        check(plaintext, &head).map_or_else(|error| error.code, |()| 200)
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for (headers, expected) in [
            (&[("host", "localhost:1")][..], 200),
            (&[("host", "127.0.0.1:1"), ("origin", "http://localhost:3000")], 200),
            (&[("host", "[::1]:1"), ("sec-fetch-site", "same-origin")], 200),
            (&[("host", "[::1]:1"), ("sec-fetch-site", "none")], 200),
            (&[("host", "evil.example:1")], 421),
            (&[("host", "localhost"), ("origin", "https://evil.example")], 403),
            (&[("host", "localhost"), ("origin", "null")], 403),
            (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], 403),
            (&[("host", "localhost"), ("sec-fetch-site", "same-site")], 403),
        ] {
            assert_eq!(code(true, "GET", headers), expected, "{headers:?}");
            assert_eq!(code(false, "GET", headers), 200, "{headers:?} with TLS");
        }
    }

    #[test]
    fn bodies_need_a_content_type_that_pages_cannot_send() {
        for (content_type, expected) in [
            (Some("application/json"), 200),
            (Some("Application/JSON; charset=utf-8"), 200),
            (Some("application/yaml"), 200),
            (Some("application/apply-patch+yaml"), 200),
            (Some("application/strategic-merge-patch+json"), 200),
            (Some("application/vnd.kubernetes.protobuf"), 200),
            (Some("text/plain"), 415),
            (Some("application/x-www-form-urlencoded"), 415),
            (Some("multipart/form-data"), 415),
            (None, 415),
        ] {
            let mut headers = vec![("host", "localhost")];
            headers.extend(content_type.map(|value| ("content-type", value)));
            for method in ["POST", "PUT", "PATCH"] {
                assert_eq!(code(true, method, &headers), expected, "{method} {content_type:?}");
            }
            assert_eq!(code(true, "GET", &headers), 200);
            assert_eq!(code(true, "DELETE", &headers), 200, "a page must ask first");
        }
    }
}
