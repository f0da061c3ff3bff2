//! Converts destinations.

use config::gateway_api::filter::{Fraction, HttpFilterType, HttpRouteFilter, RequestMirrorFilter};
use config::gateway_api::http_route::HttpBackendRef;
use config::gateway_api::reference::{BackendObjectReference, BackendRef};
use config::istio::{Destination, HttpRoute, HttpRouteDestination, RouteDestination, ServiceEntry};
use config::{FieldPath, Kind};
use model::service::ObjectId;
use names::Hostname;

use crate::action;
use crate::rule::Rules;

/// The most backends of a rule.
const MAX_BACKENDS: usize = 16;
/// The denominator of fractions that no whole percentage expresses.
const MILLION: u32 = 1_000_000;

/// The backends of a rule.
pub(crate) fn all(rules: &mut Rules<'_, '_>, found: &[HttpRouteDestination], at: &FieldPath) -> Vec<HttpBackendRef> {
    let mut out = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let at = at.index(index);
        let Some(to) = reference(rules, &one.destination, &at.field("destination")) else { continue };
        let filters = action::headers(rules, one.headers.as_ref(), &at.field("headers"));
        let weight = weight(found.len(), one.weight);
        out.push(HttpBackendRef {
            group: to.group,
            kind: to.kind,
            name: to.name,
            namespace: to.namespace,
            port: to.port,
            weight,
            filters,
        });
    }
    limit(rules, &mut out, at);
    out
}

/// The backends of a rule for connections.
pub(crate) fn connections(rules: &mut Rules<'_, '_>, found: &[RouteDestination], at: &FieldPath) -> Vec<BackendRef> {
    let mut out = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let Some(to) = reference(rules, &one.destination, &at.index(index).field("destination")) else { continue };
        let weight = weight(found.len(), one.weight);
        let BackendObjectReference { group, kind, name, namespace, port } = to;
        out.push(BackendRef { group, kind, name, namespace, port, weight });
    }
    limit(rules, &mut out, at);
    out
}

/// The weight of one of several destinations. That of an only destination does not matter.
fn weight(count: usize, weight: i32) -> u32 {
    if count == 1 { 1 } else { u32::try_from(weight).unwrap_or_default() }
}

/// Leaves out backends that are too many.
fn limit<T>(rules: &mut Rules<'_, '_>, backends: &mut Vec<T>, at: &FieldPath) {
    if backends.len() > MAX_BACKENDS {
        let message = format!("a rule has {MAX_BACKENDS} backends at most; the others get no traffic");
        rules.lost(at.clone(), message, "Divide the rule");
        backends.truncate(MAX_BACKENDS);
    }
}

/// The filters that mirror requests.
pub(crate) fn mirrors(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath) -> Vec<HttpRouteFilter> {
    let percent = match (&rule.mirror_percentage, rule.mirror_percent) {
        (Some(percentage), _) => percentage.value,
        (None, percent) => f64::from(percent.unwrap_or(100)),
    };
    let old = rule.mirror.iter().map(|destination| (destination, percent, at.field("mirror")));
    let new = rule.mirrors.iter().enumerate().map(|(index, mirror)| {
        let percent = mirror.percentage.as_ref().map_or(100.0, |percentage| percentage.value);
        (&mirror.destination, percent, at.field("mirrors").index(index).field("destination"))
    });
    let all: Vec<_> = old.chain(new).filter(|(to, percent, _)| !to.host.is_empty() && *percent > 0.0).collect();
    let mut out = Vec::new();
    for (destination, percent, at) in all {
        let Some(backend_ref) = reference(rules, destination, &at) else { continue };
        // Between 0 and 1,000,000, because validation limits the percentage.
        let parts = (percent * f64::from(MILLION) / 100.0).round() as u32;
        let whole = parts.is_multiple_of(MILLION / 100);
        let mirror = RequestMirrorFilter {
            backend_ref,
            percent: (whole && parts < MILLION).then_some(parts / (MILLION / 100)),
            fraction: (!whole).then_some(Fraction { numerator: parts, denominator: MILLION }),
        };
        out.push(HttpRouteFilter {
            kind: HttpFilterType::RequestMirror,
            request_mirror: Some(mirror),
            ..HttpRouteFilter::default()
        });
    }
    out
}

/// The reference to a destination.
fn reference(rules: &mut Rules<'_, '_>, found: &Destination, at: &FieldPath) -> Option<BackendObjectReference> {
    let domain = rules.cx.options.domain.clone();
    let Ok(host) = Hostname::resolve(&found.host, &rules.object.namespace, &domain) else {
        rules.lost(at.field("host"), format!("{} is not a hostname; it gets no requests", found.host), "Correct it");
        return None;
    };
    if !found.subset.is_empty() {
        let message = format!("a backend is a whole Service; the subset {} gets no requests of its own", found.subset);
        let hint = "Create a Service whose selector has the labels of the subset, and name it here";
        rules.lost(at.field("subset"), message, hint);
    }
    let service = service_of(&host, &domain);
    let port = found.port.as_ref().and_then(|port| u16::try_from(port.number).ok());
    let port = port.or_else(|| only_port(rules, &host, service.as_ref()));
    let port = port.unwrap_or_else(|| {
        if !is_known(rules, &host, service.as_ref()) {
            let message = format!("the port of {host} is not known; that of the listener, {}, is used", rules.port);
            rules.lost(at.field("port"), message, "Set the port, or add the Service to the files");
        }
        rules.port
    });
    Some(match service {
        Some(service) => {
            rules.cx.refer(rules.kind, rules.namespace, Kind::Service, &service);
            BackendObjectReference {
                namespace: (service.namespace != *rules.namespace).then_some(service.namespace),
                name: service.name,
                port: Some(port),
                ..BackendObjectReference::default()
            }
        }
        None => BackendObjectReference {
            group: "networking.istio.io".into(),
            kind: "Hostname".into(),
            name: host.as_arc().clone(),
            namespace: None,
            port: Some(port),
        },
    })
}

/// The Kubernetes Service of a host `NAME.NAMESPACE.svc.DOMAIN`.
fn service_of(host: &Hostname, domain: &str) -> Option<ObjectId> {
    let name = host.as_str().strip_suffix(domain)?.strip_suffix(".svc.")?;
    let (name, namespace) = name.split_once('.')?;
    let plain = !name.contains('*') && !namespace.contains('.');
    plain.then(|| ObjectId { namespace: namespace.into(), name: name.into() })
}

/// The ports of the Service or ServiceEntry of a host, if it is among the files.
fn ports(rules: &Rules<'_, '_>, host: &Hostname, service: Option<&ObjectId>) -> Option<Vec<u16>> {
    if let Some(service) = service.and_then(|id| rules.cx.service(id)) {
        return Some(service.ports.iter().map(|port| port.port).collect());
    }
    let mut entries = rules.cx.all::<ServiceEntry>();
    let entry = entries.find(|entry| entry.spec.hosts.iter().any(|one| **one == *host.as_str()))?;
    Some(entry.spec.ports.iter().filter_map(|port| u16::try_from(port.number).ok()).collect())
}

fn is_known(rules: &Rules<'_, '_>, host: &Hostname, service: Option<&ObjectId>) -> bool {
    ports(rules, host, service).is_some()
}

fn only_port(rules: &Rules<'_, '_>, host: &Hostname, service: Option<&ObjectId>) -> Option<u16> {
    match ports(rules, host, service)?[..] {
        [only] => Some(only),
        _ => None,
    }
}
