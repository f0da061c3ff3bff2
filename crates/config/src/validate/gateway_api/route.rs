//! Routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{filter, regular_expression, service_port};
use crate::diagnostic::FieldPath;
use crate::gateway_api::grpc_route::{GrpcMethodMatch, GrpcRoute, GrpcRouteRule};
use crate::gateway_api::http_route::*;
use crate::gateway_api::l4_route::{L4RouteRule, TcpRoute, TlsRoute, UdpRoute};
use crate::gateway_api::reference::ParentReference;
use crate::validate::Report;
use crate::validate::gateway_api::policy::session;

/// The most matches of all rules of a route together.
const MOST_MATCHES: usize = 128;

pub(crate) fn check_http(r: &mut Report, spec: &HttpRoute) {
    let path = FieldPath::spec();
    parents(r, &path.field("parentRefs"), &spec.parent_refs);
    rule_names(
        r,
        &path.field("rules"),
        spec.rules.iter().map(|rule| rule.name.as_ref()),
    );
    matches_in_all(
        r,
        &path.field("rules"),
        spec.rules.iter().map(|rule| rule.matches.len()).sum(),
    );
    for (index, rule) in spec.rules.iter().enumerate() {
        http_rule(r, &path.field("rules").index(index), rule);
    }
}

pub(crate) fn check_grpc(r: &mut Report, spec: &GrpcRoute) {
    let path = FieldPath::spec();
    parents(r, &path.field("parentRefs"), &spec.parent_refs);
    rule_names(
        r,
        &path.field("rules"),
        spec.rules.iter().map(|rule| rule.name.as_ref()),
    );
    matches_in_all(
        r,
        &path.field("rules"),
        spec.rules.iter().map(|rule| rule.matches.len()).sum(),
    );
    for (index, rule) in spec.rules.iter().enumerate() {
        grpc_rule(r, &path.field("rules").index(index), rule);
    }
}

pub(crate) fn check_tls(r: &mut Report, spec: &TlsRoute) {
    let path = FieldPath::spec();
    for (index, host) in spec.hostnames.iter().enumerate() {
        if host.parse::<std::net::IpAddr>().is_ok() {
            let message = format!("{:?} is an IP address, which is no server name", &**host);
            r.error(&path.field("hostnames").index(index), "bad-host", message);
        }
    }
    l4(r, &spec.parent_refs, &spec.rules);
}

pub(crate) fn check_tcp(r: &mut Report, spec: &TcpRoute) {
    l4(r, &spec.parent_refs, &spec.rules);
}

pub(crate) fn check_udp(r: &mut Report, spec: &UdpRoute) {
    l4(r, &spec.parent_refs, &spec.rules);
}

fn l4(r: &mut Report, parent_refs: &[ParentReference], rules: &[L4RouteRule]) {
    let path = FieldPath::spec();
    parents(r, &path.field("parentRefs"), parent_refs);
    for (index, rule) in rules.iter().enumerate() {
        for (number, backend) in rule.backend_refs.iter().enumerate() {
            let at = path.field("rules").index(index).field("backendRefs").index(number);
            service_port(r, &at, &backend.group, &backend.kind, backend.port.is_some());
        }
    }
}

/// A parent that is there more than once is told apart by section or port.
fn parents(r: &mut Report, path: &FieldPath, parents: &[ParentReference]) {
    fn whole(p: &ParentReference) -> (&str, &str, Option<&str>, &str) {
        (&p.group, &p.kind, p.namespace.as_deref(), &p.name)
    }
    for (index, parent) in parents.iter().enumerate() {
        let earlier = parents[..index].iter().find(|other| whole(other) == whole(parent));
        let Some(earlier) = earlier else {
            continue;
        };
        let at = path.index(index);
        let has_part = |p: &ParentReference| (p.section_name.is_some(), p.port.is_some());
        if has_part(earlier) != has_part(parent) {
            let message = format!(
                "{} {} is named more than once, and needs sectionName or port each time",
                parent.kind, parent.name
            );
            r.error(&at, "ambiguous", message);
        } else if parents[..index].contains(parent) {
            let message = format!("the same part of {} {} is named twice", parent.kind, parent.name);
            r.error(&at, "duplicate", message);
        }
    }
}

fn rule_names<'n>(r: &mut Report, path: &FieldPath, names: impl Iterator<Item = Option<&'n Arc<str>>>) {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if let Some(name) = name.filter(|name| !seen.insert(*name)) {
            let message = format!("there are two rules {:?}", &**name);
            r.error(&path.index(index).field("name"), "duplicate", message);
        }
    }
}

fn matches_in_all(r: &mut Report, path: &FieldPath, count: usize) {
    if count > MOST_MATCHES {
        let message = format!("the rules together have {count} matches, and may have {MOST_MATCHES}");
        r.error(path, "out-of-range", message);
    }
}

fn http_rule(r: &mut Report, path: &FieldPath, rule: &HttpRouteRule) {
    for (index, matches) in rule.matches.iter().enumerate() {
        http_match(r, &path.field("matches").index(index), matches);
    }
    filter::http(r, &path.field("filters"), &rule.filters);
    if !rule.backend_refs.is_empty() && rule.filters.iter().any(|f| f.request_redirect.is_some()) {
        let message = "a rule with a RequestRedirect has no backendRefs";
        r.error(&path.field("backendRefs"), "exclusive-fields", message);
    }
    let one_prefix = matches!(&rule.matches[..], [only] if only.path.kind == PathMatchType::PathPrefix);
    let needs_prefix = "replacePrefixMatch needs exactly one match, of a path prefix";
    if !one_prefix && rule.filters.iter().any(filter::replaces_prefix) {
        r.error(&path.field("filters"), "exclusive-fields", needs_prefix);
    }
    for (index, backend) in rule.backend_refs.iter().enumerate() {
        let at = path.field("backendRefs").index(index);
        service_port(r, &at, &backend.group, &backend.kind, backend.port.is_some());
        filter::http(r, &at.field("filters"), &backend.filters);
        if !one_prefix && backend.filters.iter().any(filter::replaces_prefix) {
            r.error(&at.field("filters"), "exclusive-fields", needs_prefix);
        }
    }
    if let Some(HttpRouteTimeouts {
        request: Some(request),
        backend_request: Some(backend),
    }) = &rule.timeouts
        && !request.get().is_zero()
        && backend > request
    {
        let at = path.field("timeouts").field("backendRequest");
        r.error(
            &at,
            "out-of-range",
            "one attempt must not take longer than the whole request",
        );
    }
    session(r, &path.field("sessionPersistence"), rule.session_persistence.as_ref());
}

fn http_match(r: &mut Report, path: &FieldPath, matches: &HttpRouteMatch) {
    let (at, value) = (path.field("path").field("value"), &matches.path.value);
    if matches.path.kind == PathMatchType::RegularExpression {
        regular_expression(r, &at, value);
    } else if let Some(problem) = path_problem(value) {
        r.error(&at, "bad-value", format!("{:?} {problem}", &**value));
    }
    for (index, header) in matches.headers.iter().enumerate() {
        if header.kind == TextMatchType::RegularExpression {
            regular_expression(r, &path.field("headers").index(index).field("value"), &header.value);
        }
    }
    for (index, param) in matches.query_params.iter().enumerate() {
        if param.kind == TextMatchType::RegularExpression {
            regular_expression(r, &path.field("queryParams").index(index).field("value"), &param.value);
        }
    }
}

/// Why a text is no path to compare with.
fn path_problem(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return Some("does not begin with /".to_owned());
    }
    let inside = ["//", "/./", "/../", "%2f", "%2F", "#"];
    if let Some(found) = inside.into_iter().find(|found| path.contains(found)) {
        return Some(format!("has {found} in it, which a path that is compared cannot have"));
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        return Some("ends in . or .., which a path that is compared cannot".to_owned());
    }
    let mut percents = path.split('%').skip(1);
    let escaped = percents.all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&b);
    (!escaped || !path.bytes().all(plain)).then(|| "has characters that paths cannot have".to_owned())
}

fn grpc_rule(r: &mut Report, path: &FieldPath, rule: &GrpcRouteRule) {
    for (index, matches) in rule.matches.iter().enumerate() {
        let at = path.field("matches").index(index);
        if let Some(method) = &matches.method {
            grpc_method(r, &at.field("method"), method);
        }
        for (number, header) in matches.headers.iter().enumerate() {
            if header.kind == TextMatchType::RegularExpression {
                regular_expression(r, &at.field("headers").index(number).field("value"), &header.value);
            }
        }
    }
    filter::grpc(r, &path.field("filters"), &rule.filters);
    for (index, backend) in rule.backend_refs.iter().enumerate() {
        let at = path.field("backendRefs").index(index);
        service_port(r, &at, &backend.group, &backend.kind, backend.port.is_some());
        filter::grpc(r, &at.field("filters"), &backend.filters);
    }
    session(r, &path.field("sessionPersistence"), rule.session_persistence.as_ref());
}

fn grpc_method(r: &mut Report, path: &FieldPath, method: &GrpcMethodMatch) {
    if method.service.is_none() && method.method.is_none() {
        return r.error(path, "missing-field", "service or method is needed");
    }
    for (field, text) in [("service", &method.service), ("method", &method.method)] {
        let Some(text) = text else {
            continue;
        };
        let at = path.field(field);
        if method.kind == TextMatchType::RegularExpression {
            regular_expression(r, &at, text);
            continue;
        }
        let names = match field {
            "service" => text.strip_prefix('.').unwrap_or(text),
            _ => text,
        };
        let is_good = match field {
            "service" => names.split('.').all(is_identifier),
            _ => is_identifier(names),
        };
        if !is_good {
            r.error(&at, "bad-value", format!("{:?} is not the name of a {field}", &**text));
        }
    }
}

/// A name of protobuf: letters, digits and `_`.
fn is_identifier(text: &str) -> bool {
    let starts = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    starts && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
