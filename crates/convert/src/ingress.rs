//! Converts Ingresses: to one Gateway for all, and an HTTPRoute for each host of each Ingress.

use std::sync::Arc;

use config::core::ingress::{CLASS_ANNOTATION, gateway_label};
use config::core::{Ingress, IngressClass, IngressPath, PathType};
use config::gateway_api::listener::{ListenerTls, TlsMode};
use config::gateway_api::reference::SecretObjectReference;
use config::istio::{Destination, HttpRoute, HttpRouteDestination, PortSelector};
use config::{FieldPath, Kind, Object, StringMap};
use model::service::ObjectId;
use registry::ingress::{matches, on_uri};

use crate::context::Context;
use crate::gateway::{self, Placed};
use crate::listener::{Carries, Hosts, Listeners, dns_label};
use crate::routes::Source;

/// The name of the Gateway for Ingresses.
const NAME: &str = "ingress";
/// The namespace of the proxies, if no Service tells it.
const NAMESPACE: &str = "istio-system";

/// Converts all Ingresses that the mesh serves.
pub(crate) fn convert(cx: &mut Context<'_>) -> Option<Placed> {
    let all: Vec<Arc<Object<Ingress>>> = cx.all::<Ingress>().cloned().collect();
    let mut served: Vec<Arc<Object<Ingress>>> = all.into_iter().filter(|ingress| is_served(cx, ingress)).collect();
    served.sort_by(|a, b| a.meta.by_age(&b.meta));
    let first = served.first()?.key();
    let class_of = match served.first()?.meta.annotations.contains_key(CLASS_ANNOTATION) {
        true => FieldPath::root().field("metadata").field("annotations").key(CLASS_ANNOTATION),
        false => FieldPath::spec().field("ingressClassName"),
    };
    let labels = StringMap::from([("istio".into(), gateway_label(&cx.options.mesh))]);
    let proxies = cx.namespace_of_proxies(&labels).unwrap_or_else(|| NAMESPACE.into());
    let plain = ObjectId { namespace: proxies.clone(), name: NAME.into() };
    let id = match cx.is_taken(Kind::KubeGateway, &plain) {
        true => ObjectId { name: format!("{NAME}-of-ingresses").into(), ..plain },
        false => plain,
    };
    let mut listeners = Listeners::new(proxies.clone(), proxies.clone());
    listeners.add(&Hosts { number: 80, name: "http", tls: None, redirects: false, carries: Carries::Requests }, "*");
    for ingress in &served {
        secure(cx, ingress, &mut listeners);
    }
    let placed = Placed { source: id.clone(), id: None, labels, proxies, listeners: listeners.ports() };
    gateway::finish(cx, &first, &id, &placed, listeners);
    let message = format!("the GatewayClass {} takes the place of the IngressClass", cx.options.gateway_class);
    cx.note(&first, class_of, message, "");
    let placed = Placed { id: Some(id), ..placed };
    for ingress in &served {
        routes(cx, ingress, &placed);
    }
    Some(placed)
}

/// Whether the mesh serves an Ingress. Reports why not.
fn is_served(cx: &mut Context<'_>, ingress: &Object<Ingress>) -> bool {
    let classes: Vec<Arc<Object<IngressClass>>> = cx.all::<IngressClass>().cloned().collect();
    let class = |name: &str| classes.iter().find(|class| &*class.meta.name == name).map(|class| &class.spec);
    if ingress.spec.is_selected(&ingress.meta.annotations, &cx.options.mesh, class) {
        return true;
    }
    let spec = FieldPath::spec();
    let (at, message, hint) = match (ingress.meta.annotation(CLASS_ANNOTATION), &ingress.spec.ingress_class_name) {
        (Some(name), _) => {
            let at = FieldPath::root().field("metadata").field("annotations").key(CLASS_ANNOTATION);
            (at, format!("another controller serves the class {name}"), "Convert it with a tool for that controller")
        }
        (None, Some(name)) if class(name).is_none() => {
            let message = format!("IngressClass {name} is not among the files, so its controller is not known");
            (spec.field("ingressClassName"), message, "Add the IngressClass to the files")
        }
        (None, Some(name)) => {
            let message = format!("another controller serves the class {name}");
            (spec.field("ingressClassName"), message, "Convert it with a tool for that controller")
        }
        (None, None) => {
            let message = "the Ingress has no class, and the mesh serves such only with ingressControllerMode: DEFAULT";
            (FieldPath::root(), message.to_owned(), "Add the mesh configuration to the files, or set a class")
        }
    };
    cx.lost(&ingress.key(), at, message, hint);
    false
}

/// Adds the listeners for TLS. Their Secrets are in the namespace of the proxies.
fn secure(cx: &mut Context<'_>, ingress: &Object<Ingress>, listeners: &mut Listeners) {
    for (index, tls) in ingress.spec.tls.iter().enumerate() {
        let at = FieldPath::spec().field("tls").index(index);
        if tls.secret_name.is_empty() {
            cx.note(&ingress.key(), at, "an entry without a Secret has no effect", "");
            continue;
        }
        let secret = SecretObjectReference { name: tls.secret_name.clone(), ..SecretObjectReference::default() };
        let settings =
            ListenerTls { mode: TlsMode::Terminate, certificate_refs: vec![secret], options: StringMap::new() };
        let hosts =
            Hosts { number: 443, name: "https", tls: Some(&settings), redirects: false, carries: Carries::Requests };
        let everything: Arc<str> = "*".into();
        let all = if tls.hosts.is_empty() { std::slice::from_ref(&everything) } else { &tls.hosts[..] };
        for host in all {
            if !listeners.add(&hosts, host) {
                let message = format!("{host} is no hostname of a listener");
                cx.lost(&ingress.key(), at.field("hosts"), message, "Use a DNS name, or `*.` and a DNS name");
            }
        }
    }
}

/// Adds the routes of an Ingress: one for each host.
fn routes(cx: &mut Context<'_>, ingress: &Object<Ingress>, placed: &Placed) {
    let key = ingress.key();
    if ingress.spec.default_backend.is_some() {
        let message = "a default backend has no effect in a mesh, and is left out";
        cx.note(&key, FieldPath::spec().field("defaultBackend"), message, "Write a rule without a host");
    }
    let mut hosts: Vec<&str> = ingress.spec.rules.iter().map(|rule| host_of(&rule.host)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in &hosts {
        let mut rules: Vec<(usize, bool, HttpRoute, FieldPath)> = Vec::new();
        for (index, rule) in ingress.spec.rules.iter().enumerate().filter(|(_, rule)| host_of(&rule.host) == *host) {
            let at = FieldPath::spec().field("rules").index(index).field("http").field("paths");
            for (index, path) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
                let at = at.index(index);
                let Some(route) = destination(cx, ingress, path, &at) else { continue };
                let route = HttpRoute {
                    matches: matches(path).into_iter().map(on_uri).collect(),
                    route: vec![route],
                    ..HttpRoute::default()
                };
                rules.push((path.path.len(), path.path_type == PathType::Exact, route, at));
            }
        }
        rules.sort_by(|(a, a_exact, ..), (b, b_exact, ..)| (b, b_exact).cmp(&(a, a_exact)));
        let name: Arc<str> = match hosts.len() {
            1 => ingress.meta.name.clone(),
            _ => format!("{}-{}", ingress.meta.name, dns_label(&host.replace('*', "any"))).into(),
        };
        let own: Arc<str> = (*host).into();
        let source = Source {
            key: &key,
            namespace: &ingress.meta.namespace,
            name: &name,
            hosts: std::slice::from_ref(&own),
            rules: rules.iter().map(|(_, _, route, at)| (route, at.clone())).collect(),
        };
        source.convert(cx, &[placed]);
    }
}

fn host_of(host: &str) -> &str {
    if host.is_empty() { "*" } else { host }
}

/// The destination of a path. Reports why it has none.
fn destination(
    cx: &mut Context<'_>,
    ingress: &Object<Ingress>,
    path: &IngressPath,
    at: &FieldPath,
) -> Option<HttpRouteDestination> {
    let at = at.field("backend");
    let Some(backend) = &path.backend.service else {
        cx.lost(&ingress.key(), at, "a backend is a Service; the path is left out", "Use a Service");
        return None;
    };
    let id = ObjectId { namespace: ingress.meta.namespace.clone(), name: backend.name.clone() };
    let number = match backend.port.number {
        0 => {
            let ports = cx.service(&id).map(|service| &service.ports[..]).unwrap_or_default();
            let port = ports.iter().find(|port| port.name == backend.port.name).map(|port| u32::from(port.port));
            if port.is_none() {
                let message = format!("Service {id} with the port {} is not among the files", backend.port.name);
                let at = at.field("service").field("port");
                cx.lost(&ingress.key(), at, message, "Add the Service to the files, or write the number of the port");
            }
            port?
        }
        number => number,
    };
    let host = format!("{}.{}.svc.{}", id.name, id.namespace, cx.options.domain).into();
    let destination = Destination { host, port: Some(PortSelector { number }), ..Destination::default() };
    Some(HttpRouteDestination { destination, weight: 100, ..HttpRouteDestination::default() })
}
