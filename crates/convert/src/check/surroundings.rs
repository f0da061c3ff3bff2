//! Objects that a comparison needs beside the given ones: namespaces, Secrets, Services, and the endpoint that makes a
//! simulated proxy one of a Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::core::service::{ServicePort, TargetPort};
use config::core::{CertificatePair, Content, Endpoint, EndpointPort, EndpointSlice, Namespace, Secret, Service};
use config::gateway_api::l4_route::L4RouteRule;
use config::gateway_api::{Gateway as KubeGateway, GatewayClass, HttpRoute};
use config::istio::{self, Gateway, ServiceEntry};
use config::{AnyObject, Kind, Object, Resource};
use model::service::ObjectId;
use model::standing::CONTROLLERS;

use super::proxy::ADDRESS;
use crate::{Conversion, Options};

/// A further port of simulated services. A destination without a port means the only port of its service, if it has one.
const FURTHER_PORT: u16 = 65535;
/// The class that exists without an object.
const BUILT_IN: &str = "istio";

/// The objects to add to both worlds.
pub(super) fn all(objects: &[AnyObject], conversion: &Conversion, options: &Options) -> Vec<AnyObject> {
    let needs = Needs { objects, conversion };
    let mut out = needs.namespaces();
    out.extend(needs.class(&options.gateway_class));
    out.extend(needs.secrets());
    out.extend(needs.destinations());
    if let Some(service) = &options.service {
        out.extend(needs.proxies(service));
    }
    out
}

struct Needs<'a> {
    objects: &'a [AnyObject],
    conversion: &'a Conversion,
}

impl<'a> Needs<'a> {
    fn all(&self) -> impl Iterator<Item = &'a AnyObject> + use<'a> {
        self.objects.iter().chain(&self.conversion.objects)
    }

    fn is_missing(&self, kind: Kind, id: &ObjectId) -> bool {
        let is_it = |object: &AnyObject| {
            let meta = object.meta();
            object.kind() == kind && meta.namespace == id.namespace && meta.name == id.name
        };
        !id.name.is_empty() && !self.all().any(is_it)
    }

    fn namespaces(&self) -> Vec<AnyObject> {
        let names: BTreeSet<&Arc<str>> = self.all().map(|object| &object.meta().namespace).collect();
        let ids = names.into_iter().map(|name| ObjectId { namespace: Arc::default(), name: name.clone() });
        ids.filter(|id| self.is_missing(Kind::Namespace, id)).map(|id| object(id, Namespace::default())).collect()
    }

    /// The class of new Gateways. The class `istio` needs no object.
    fn class(&self, name: &Arc<str>) -> Option<AnyObject> {
        let id = ObjectId { namespace: Arc::default(), name: name.clone() };
        let missing = &**name != BUILT_IN && self.is_missing(Kind::GatewayClass, &id);
        let class = || GatewayClass { controller_name: CONTROLLERS[0].into(), ..GatewayClass::default() };
        missing.then(|| object(id, class()))
    }

    /// The Secrets of listeners and servers.
    fn secrets(&self) -> Vec<AnyObject> {
        let mut ids: BTreeSet<ObjectId> = BTreeSet::new();
        for gateway in self.all().filter_map(KubeGateway::from_any) {
            let tls = gateway.spec.listeners.iter().filter_map(|one| one.tls.as_ref());
            ids.extend(tls.flat_map(|tls| &tls.certificate_refs).map(|reference| ObjectId {
                namespace: reference.namespace.as_ref().unwrap_or(&gateway.meta.namespace).clone(),
                name: reference.name.clone(),
            }));
        }
        for gateway in self.objects.iter().filter_map(Gateway::from_any) {
            for group in self.conversion.groups.iter().filter(|group| group.labels == gateway.spec.selector) {
                let tls = gateway.spec.servers.iter().filter_map(|server| server.tls.as_ref());
                let names = tls.flat_map(|tls| std::iter::once(&tls.credential_name).chain(&tls.credential_names));
                ids.extend(names.map(|name| ObjectId { namespace: group.namespace.clone(), name: name.clone() }));
            }
        }
        ids.into_iter().filter(|id| self.is_missing(Kind::Secret, id)).map(|id| object(id, secret())).collect()
    }

    /// The Services and ServiceEntries that new routes refer to.
    fn destinations(&self) -> Vec<AnyObject> {
        let mut services: BTreeMap<ObjectId, BTreeSet<u16>> = BTreeMap::new();
        let mut hosts: BTreeMap<Arc<str>, BTreeSet<u16>> = BTreeMap::new();
        for route in &self.conversion.objects {
            for (kind, namespace, name, port) in references(route) {
                let namespace = namespace.unwrap_or(&route.meta().namespace).clone();
                let ports = match kind {
                    "Service" => services.entry(ObjectId { namespace, name: name.clone() }).or_default(),
                    _ => hosts.entry(name.clone()).or_default(),
                };
                ports.extend(port);
                ports.insert(FURTHER_PORT);
            }
        }
        services.retain(|id, _| self.is_missing(Kind::Service, id));
        hosts.retain(|host, _| {
            let mut entries = self.objects.iter().filter_map(ServiceEntry::from_any);
            !entries.any(|entry| entry.spec.hosts.contains(host))
        });
        let services = services.into_iter().map(|(id, ports)| object(id, service(&ports)));
        services.chain(hosts.into_iter().map(|(host, ports)| entry(host, &ports))).collect()
    }

    /// The Service of existing proxies, with an endpoint that is the simulated one.
    fn proxies(&self, id: &ObjectId) -> Vec<AnyObject> {
        let mut out = Vec::new();
        let mut services = self.objects.iter().filter_map(Service::from_any);
        let given = services.find(|one| one.meta.namespace == id.namespace && one.meta.name == id.name);
        let spec = given.map(|given| given.spec.clone()).unwrap_or_else(|| {
            let gateways = self.all().filter_map(KubeGateway::from_any);
            let ports = gateways.flat_map(|gateway| gateway.spec.listeners.iter().map(|one| one.port));
            service(&ports.collect())
        });
        let port = |port: &ServicePort| EndpointPort {
            name: port.name.clone(),
            port: match port.target_port {
                Some(TargetPort::Number(number)) => Some(number),
                _ => Some(port.port),
            },
            ..EndpointPort::default()
        };
        let endpoint = Endpoint { addresses: vec![ADDRESS.into()], ..Endpoint::default() };
        let slice = EndpointSlice {
            endpoints: vec![endpoint],
            ports: spec.ports.iter().map(port).collect(),
            ..EndpointSlice::default()
        };
        let mut slice = Object::new(id.namespace.clone(), format!("{}-simulated", id.name), slice);
        slice.meta.labels.insert(EndpointSlice::SERVICE_LABEL.into(), id.name.clone());
        out.push(EndpointSlice::into_any(Arc::new(slice)));
        if given.is_none() {
            out.push(object(id.clone(), spec));
        }
        out
    }
}

/// A kind, a namespace, a name and a port.
type Referred<'r> = (&'r str, Option<&'r Arc<str>>, &'r Arc<str>, Option<u16>);

fn references(route: &AnyObject) -> Vec<Referred<'_>> {
    match route {
        AnyObject::HttpRoute(route) => of_requests(&route.spec),
        AnyObject::TlsRoute(route) => of_rules(&route.spec.rules),
        AnyObject::TcpRoute(route) => of_rules(&route.spec.rules),
        _ => Vec::new(),
    }
}

fn of_rules(rules: &[L4RouteRule]) -> Vec<Referred<'_>> {
    let backends = rules.iter().flat_map(|rule| &rule.backend_refs);
    backends.map(|one| (&*one.kind, one.namespace.as_ref(), &one.name, one.port)).collect()
}

fn of_requests(route: &HttpRoute) -> Vec<Referred<'_>> {
    let backends = route.rules.iter().flat_map(|rule| &rule.backend_refs);
    let backends = backends.map(|one| (&*one.kind, one.namespace.as_ref(), &one.name, one.port));
    let filters = route.rules.iter().flat_map(|rule| &rule.filters);
    let mirrors = filters.filter_map(|filter| filter.request_mirror.as_ref()).map(|mirror| &mirror.backend_ref);
    let mirrors = mirrors.map(|one| (&*one.kind, one.namespace.as_ref(), &one.name, one.port));
    backends.chain(mirrors).collect()
}

fn object<S: Resource>(id: ObjectId, spec: S) -> AnyObject {
    S::into_any(Arc::new(Object::new(id.namespace, id.name, spec)))
}

fn service(ports: &BTreeSet<u16>) -> Service {
    let port =
        |number: &u16| ServicePort { name: format!("http-{number}").into(), port: *number, ..ServicePort::default() };
    Service { ports: ports.iter().map(port).collect(), ..Service::default() }
}

fn entry(host: Arc<str>, ports: &BTreeSet<u16>) -> AnyObject {
    let port = |number: &u16| istio::ServicePort {
        number: (*number).into(),
        name: format!("http-{number}").into(),
        protocol: "HTTP".into(),
        ..istio::ServicePort::default()
    };
    let spec =
        ServiceEntry { hosts: vec![host.clone()], ports: ports.iter().map(port).collect(), ..ServiceEntry::default() };
    object(ObjectId { namespace: "default".into(), name: host }, spec)
}

/// A Secret that counts as valid. Its content is not used.
fn secret() -> Secret {
    let pair =
        CertificatePair { certificate: b"simulated".to_vec().into(), key: b"simulated".to_vec().into(), staple: None };
    let mut secret = Secret::default();
    secret.kind = "kubernetes.io/tls".into();
    secret.pair = Some(Content::Valid(pair));
    secret
}
