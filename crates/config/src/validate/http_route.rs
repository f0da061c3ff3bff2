//! Validation of the HTTP routes of a VirtualService.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::*;
use crate::validate::virtual_service::weights;
use crate::validate::{Report, common, headers, hosts, http_policy, regex};

pub(super) fn check(r: &mut Report, path: &FieldPath, route: &HttpRoute, in_delegate: bool) {
    conflicts(r, path, route, in_delegate);
    for (index, condition) in route.matches.iter().enumerate() {
        condition_of(r, &path.field("match").index(index), condition);
    }
    headers::operations(r, &path.field("headers"), route.headers.as_ref());
    for (index, destination) in route.route.iter().enumerate() {
        let at = path.field("route").index(index);
        common::destination(r, &at.field("destination"), &destination.destination);
        headers::operations(r, &at.field("headers"), destination.headers.as_ref());
    }
    weights(r, &path.field("route"), route.route.iter().map(|d| d.weight));
    if let Some(redirect) = &route.redirect {
        self::redirect(r, &path.field("redirect"), redirect, &route.matches);
    }
    if let Some(response) = &route.direct_response {
        direct_response(r, &path.field("directResponse"), response);
    }
    if let Some(rewrite) = &route.rewrite {
        self::rewrite(r, &path.field("rewrite"), rewrite);
    }
    authority(r, path, route);
    common::duration(r, &path.field("timeout"), route.timeout);
    http_policy::retries(r, &path.field("retries"), route.retries.as_ref());
    http_policy::fault(r, &path.field("fault"), route.fault.as_ref());
    http_policy::mirrors(r, path, route);
    if let Some(policy) = &route.cors_policy {
        http_policy::cors(r, &path.field("corsPolicy"), policy);
    }
}

/// Checks that a rule has exactly one action.
fn conflicts(r: &mut Report, path: &FieldPath, route: &HttpRoute, in_delegate: bool) {
    let has = [
        ("route", !route.route.is_empty()),
        ("redirect", route.redirect.is_some()),
        ("directResponse", route.direct_response.is_some()),
        ("delegate", route.delegate.is_some()),
    ];
    let set: Vec<&str> = has.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    match set[..] {
        [] => r.error(
            path,
            "missing-field",
            "one of route, redirect, directResponse and delegate is required",
        ),
        [_] => {}
        [first, second, ..] => {
            let message = format!("only one of {first} and {second} may be set");
            r.error(&path.field(second), "exclusive-fields", message);
        }
    }
    if in_delegate && route.delegate.is_some() {
        r.error(
            &path.field("delegate"),
            "exclusive-fields",
            "a delegate must not delegate to another VirtualService",
        );
    }
    let answers = set.iter().find(|name| matches!(**name, "redirect" | "directResponse"));
    if let Some(answer) = answers {
        for (name, set) in [("fault", route.fault.is_some()), ("rewrite", route.rewrite.is_some())] {
            if set {
                let message = format!("{name} cannot be combined with {answer}");
                r.error(&path.field(name), "exclusive-fields", message);
            }
        }
    }
}

fn condition_of(r: &mut Report, path: &FieldPath, condition: &HttpMatchRequest) {
    if let Some(StringMatch::Regex(text)) = &condition.uri {
        regex::check(r, &path.field("uri").field("regex"), text);
    }
    let texts = [
        ("scheme", &condition.scheme),
        ("method", &condition.method),
        ("authority", &condition.authority),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            string_match(r, &path.field(field), text);
        }
    }
    header_matches(r, &path.field("headers"), &condition.headers, |_| false);
    // Istio treats this invalid regular expression as a presence match.
    let is_star = |text: &StringMatch| matches!(text, StringMatch::Regex(star) if &**star == "*");
    header_matches(r, &path.field("withoutHeaders"), &condition.without_headers, is_star);
    for (name, text) in &condition.query_params {
        let at = path.field("queryParams").key(name.clone());
        if name.is_empty() {
            r.error(&at, "bad-value", "the name of a query parameter must not be empty");
        }
        string_match(r, &at, text);
    }
    if condition.port != 0 {
        common::port(r, &path.field("port"), condition.port);
    }
    common::labels(r, &path.field("sourceLabels"), &condition.source_labels);
    hosts::gateway_names(r, &path.field("gateways"), &condition.gateways);
    let namespace = &condition.source_namespace;
    if !namespace.is_empty() && !hosts::is_label(namespace) {
        r.error(
            &path.field("sourceNamespace"),
            "bad-value",
            format!("{namespace:?} is not a valid namespace name"),
        );
    }
    if condition.ignore_uri_case && matches!(condition.uri, None | Some(StringMatch::Regex(_))) {
        let message = "ignoreUriCase applies only to exact and prefix matches of uri";
        r.warning(&path.field("ignoreUriCase"), "no-effect", message);
    }
}

fn header_matches(
    r: &mut Report,
    path: &FieldPath,
    matches: &BTreeMap<Arc<str>, StringMatch>,
    is_exempt: impl Fn(&StringMatch) -> bool,
) {
    for (name, text) in matches {
        let at = path.key(name.clone());
        headers::match_name(r, &at, name);
        if !is_exempt(text) {
            string_match(r, &at, text);
        }
    }
}

fn string_match(r: &mut Report, path: &FieldPath, text: &StringMatch) {
    match text {
        StringMatch::Prefix(prefix) if prefix.is_empty() => {
            r.error(&path.field("prefix"), "bad-value", "the prefix must not be empty");
        }
        StringMatch::Regex(text) => regex::check(r, &path.field("regex"), text),
        _ => {}
    }
}

fn redirect(r: &mut Report, path: &FieldPath, redirect: &HttpRedirect, matches: &[HttpMatchRequest]) {
    if !redirect.uri.is_empty() && !redirect.prefix_rewrite.is_empty() {
        r.error(
            &path.field("prefixRewrite"),
            "exclusive-fields",
            "only one of uri and prefixRewrite may be set",
        );
    }
    let by_prefix = |m: &HttpMatchRequest| matches!(m.uri, None | Some(StringMatch::Prefix(_)));
    if !redirect.prefix_rewrite.is_empty() && !matches.iter().all(by_prefix) {
        let message = "prefixRewrite requires that all matches of uri are prefix matches";
        r.error(&path.field("prefixRewrite"), "exclusive-fields", message);
    }
    let texts = [
        &redirect.uri,
        &redirect.prefix_rewrite,
        &redirect.authority,
        &redirect.scheme,
    ];
    if texts.iter().all(|text| text.is_empty()) && redirect.port.is_none() {
        r.error(
            path,
            "missing-field",
            "a redirect requires at least one of uri, prefixRewrite, authority, scheme and port",
        );
    }
    if !matches!(redirect.redirect_code, 0 | 301 | 302 | 303 | 307 | 308) {
        let message = format!(
            "the status code {} is not one of 301, 302, 303, 307 and 308",
            redirect.redirect_code
        );
        r.error(&path.field("redirectCode"), "out-of-range", message);
    }
    if !matches!(&*redirect.scheme, "" | "http" | "https") {
        r.error(&path.field("scheme"), "bad-value", "the scheme must be http or https");
    }
    common::one_line(r, &path.field("uri"), &redirect.uri);
    common::one_line(r, &path.field("prefixRewrite"), &redirect.prefix_rewrite);
    common::one_line(r, &path.field("authority"), &redirect.authority);
    if let Some(RedirectPort::Port(number)) = redirect.port {
        common::port(r, &path.field("port"), number);
    }
}

/// Maximum size of a body, and the size above which a warning is reported, in bytes.
const MAX_BODY: usize = 1 << 20;
const LARGE_BODY: usize = 100 << 10;

fn direct_response(r: &mut Report, path: &FieldPath, response: &HttpDirectResponse) {
    if !(200..600).contains(&response.status) {
        let message = format!("a status code must be between 200 and 599, not {}", response.status);
        r.error(&path.field("status"), "out-of-range", message);
    }
    let size = match &response.body {
        Some(HttpBody::Text(text)) => text.len(),
        Some(HttpBody::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    if size > MAX_BODY {
        r.error(&path.field("body"), "out-of-range", "the body must not exceed 1 MiB");
    } else if size > LARGE_BODY {
        r.warning(
            &path.field("body"),
            "costly",
            "a body larger than 100 KiB slows down configuration updates",
        );
    }
}

fn rewrite(r: &mut Report, path: &FieldPath, rewrite: &HttpRewrite) {
    common::one_line(r, &path.field("uri"), &rewrite.uri);
    common::one_line(r, &path.field("authority"), &rewrite.authority);
    if let Some(by_regex) = &rewrite.uri_regex_rewrite {
        let at = path.field("uriRegexRewrite");
        if !rewrite.uri.is_empty() {
            r.error(
                &at,
                "exclusive-fields",
                "only one of uri and uriRegexRewrite may be set",
            );
        }
        regex::check(r, &at.field("match"), &by_regex.regex);
        if by_regex.rewrite.is_empty() {
            r.error(&at.field("rewrite"), "missing-field", "rewrite is required");
        }
        common::one_line(r, &at.field("rewrite"), &by_regex.rewrite);
    } else if rewrite.uri.is_empty() && rewrite.authority.is_empty() {
        r.error(
            path,
            "missing-field",
            "a rewrite requires uri, uriRegexRewrite or authority",
        );
    }
}

/// Checks that the authority is set at most once, by a rewrite or by a header.
fn authority(r: &mut Report, path: &FieldPath, route: &HttpRoute) {
    let mut known = route
        .rewrite
        .as_ref()
        .is_some_and(|rewrite| !rewrite.authority.is_empty());
    let Some(request) = route.headers.as_ref().and_then(|headers| headers.request.as_ref()) else {
        return;
    };
    for (field, values) in [("set", &request.set), ("add", &request.add)] {
        for name in values.keys().filter(|name| headers::is_authority(name)) {
            if std::mem::replace(&mut known, true) {
                let at = path.field("headers").field("request").field(field).key(name.clone());
                r.error(&at, "duplicate", "the authority is set more than once");
            }
        }
    }
}
