//! Converts header changes and redirects.

use std::sync::Arc;

use config::gateway_api::filter::{HeaderFilter, HttpFilterType, HttpHeader, HttpRouteFilter, RequestRedirectFilter};
use config::istio::{HeaderOperations, Headers, HttpRedirect, RedirectPort, RedirectPortSelection};
use config::{FieldPath, StringMap, is_header_name};

use crate::listener::is_hostname;
use crate::rule::Rules;

/// The most headers of a list.
const MAX_HEADERS: usize = 16;

/// The filters for header changes.
pub(crate) fn headers(rules: &mut Rules<'_, '_>, found: Option<&Headers>, at: &FieldPath) -> Vec<HttpRouteFilter> {
    let Some(found) = found else { return Vec::new() };
    let request = found.request.as_ref().and_then(|one| operations(rules, one, &at.field("request")));
    let response = found.response.as_ref().and_then(|one| operations(rules, one, &at.field("response")));
    let request = request.map(|changes| HttpRouteFilter {
        kind: HttpFilterType::RequestHeaderModifier,
        request_header_modifier: Some(changes),
        ..HttpRouteFilter::default()
    });
    let response = response.map(|changes| HttpRouteFilter {
        kind: HttpFilterType::ResponseHeaderModifier,
        response_header_modifier: Some(changes),
        ..HttpRouteFilter::default()
    });
    request.into_iter().chain(response).collect()
}

fn operations(rules: &mut Rules<'_, '_>, found: &HeaderOperations, at: &FieldPath) -> Option<HeaderFilter> {
    let set = values(rules, &found.set, &at.field("set"));
    let add = values(rules, &found.add, &at.field("add"));
    let mut remove = found.remove.clone();
    if remove.len() > MAX_HEADERS {
        rules.lost(
            at.field("remove"),
            format!("a filter removes {MAX_HEADERS} headers at most"),
            "Remove fewer headers",
        );
        remove.truncate(MAX_HEADERS);
    }
    let changes = HeaderFilter { set, add, remove };
    (changes != HeaderFilter::default()).then_some(changes)
}

fn values(rules: &mut Rules<'_, '_>, found: &StringMap, at: &FieldPath) -> Vec<HttpHeader> {
    let mut out = Vec::new();
    for (name, value) in found {
        let name: Arc<str> = if name.eq_ignore_ascii_case(":authority") { "Host".into() } else { name.clone() };
        let spaces = value.starts_with(' ') || value.ends_with(' ') || value.contains("  ");
        let is_visible = !value.is_empty() && value.bytes().all(|c| (0x20..0x7f).contains(&c)) && !spaces;
        if !is_header_name(&name) || !is_visible || value.len() > 4096 {
            let message = "a header of a filter needs a plain name, and a value of visible characters";
            rules.lost(at.key(name), message, "Change the value, or let the application set the header");
            continue;
        }
        out.push(HttpHeader { name, value: value.clone() });
    }
    if out.len() > MAX_HEADERS {
        rules.lost(at.clone(), format!("a filter has {MAX_HEADERS} headers at most"), "Set fewer headers");
        out.truncate(MAX_HEADERS);
    }
    out
}

/// The filter of a redirect, and the path that replaces the whole path.
pub(crate) fn redirect(
    rules: &mut Rules<'_, '_>,
    found: &HttpRedirect,
    at: &FieldPath,
) -> (HttpRouteFilter, Option<Arc<str>>) {
    let scheme = (!found.scheme.is_empty()).then(|| found.scheme.clone());
    let own_scheme = if rules.secure { "https" } else { "http" };
    let redirect = RequestRedirectFilter {
        hostname: hostname(rules, &found.authority, &at.field("authority")),
        port: redirect_port(rules, found, scheme.as_deref().unwrap_or(own_scheme), at),
        status_code: if found.redirect_code == 0 { 301 } else { found.redirect_code },
        scheme,
        path: None,
    };
    let filter = HttpRouteFilter {
        kind: HttpFilterType::RequestRedirect,
        request_redirect: Some(redirect),
        ..HttpRouteFilter::default()
    };
    (filter, (!found.uri.is_empty()).then(|| found.uri.clone()))
}

/// The port of a redirect. Without one, a redirect names the port of the listener, or the default port of its scheme.
fn redirect_port(rules: &mut Rules<'_, '_>, found: &HttpRedirect, scheme: &str, at: &FieldPath) -> Option<u16> {
    let port = match found.port {
        Some(RedirectPort::Port(port)) => u16::try_from(port).ok(),
        Some(RedirectPort::Derive(RedirectPortSelection::FromRequestPort)) => Some(rules.port),
        Some(RedirectPort::Derive(RedirectPortSelection::FromProtocolDefault)) | None => None,
    };
    let default = if scheme == "https" { 443 } else { 80 };
    if port.is_none() && found.scheme.is_empty() && rules.port != default {
        let message = format!("a redirect without a scheme names the port of the listener, {}", rules.port);
        rules.lost(at.clone(), message, "Set the scheme of the redirect");
    }
    port
}

/// A hostname that replaces the request's. None, with a remark, if a filter cannot have it.
pub(crate) fn hostname(rules: &mut Rules<'_, '_>, authority: &Arc<str>, at: &FieldPath) -> Option<Arc<str>> {
    if authority.is_empty() {
        return None;
    }
    if is_hostname(authority) && !authority.starts_with('*') && !authority.bytes().any(|c| c.is_ascii_uppercase()) {
        return Some(authority.clone());
    }
    let message = format!("the hostname of a filter is a DNS name in lower case without a port, not {authority}");
    rules.lost(at.clone(), message, "Use a DNS name");
    None
}
