//! References of an object to others, which may not exist.
//!
//! A reference that does not resolve is no error: the other object may follow. The caller knows which objects exist.

use std::sync::Arc;

use config::istio::{Destination, Gateway, HttpRoute, VirtualService};
use config::{AnyObject, Diagnostic, FieldPath, ObjectKey};

/// A reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The field.
    pub path: FieldPath,
    /// The object that it refers to.
    pub target: Target,
}

/// The target of a reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A Gateway of Istio's API.
    Gateway {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A delegate.
    VirtualService {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A Secret of a gateway, in the namespace of its proxies.
    Secret {
        /// Its name.
        name: Arc<str>,
    },
    /// A host of a Service or ServiceEntry.
    Host(Host),
}

/// A host, with names in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The name.
    pub name: Arc<str>,
    /// The subset; may be empty.
    pub subset: Arc<str>,
}

impl Host {
    /// Completes a short name, which is that of a Service in the same namespace.
    fn new(name: &str, subset: &Arc<str>, namespace: &str) -> Host {
        let full =
            if name.contains('.') { name.into() } else { format!("{name}.{namespace}.svc.cluster.local").into() };
        Host { name: full, subset: subset.clone() }
    }

    /// The namespace and name of the Service that the host can be.
    pub fn service(&self) -> Option<(&str, &str)> {
        let mut labels = self.name.split('.');
        let (name, namespace) = (labels.next()?, labels.next()?);
        (labels.next() == Some("svc")).then_some((namespace, name))
    }

    /// Whether a host of a ServiceEntry or DestinationRule, which may be short or have a wildcard, is or covers this one.
    pub fn is_covered_by(&self, other: &str, namespace: &str) -> bool {
        if other == "*" {
            return true;
        }
        let other = Host::new(other, &"".into(), namespace).name;
        match other.strip_prefix('*') {
            Some(suffix) => self.name.len() > suffix.len() && self.name.ends_with(suffix),
            None => self.name == other,
        }
    }
}

impl Reference {
    /// The warning that it does not resolve.
    pub fn unresolved(&self, object: ObjectKey) -> Diagnostic {
        let (message, hint) = match &self.target {
            Target::Gateway { namespace, name } => {
                (format!("there is no Gateway {namespace}/{name}"), "create it, or correct the name and namespace")
            }
            Target::VirtualService { namespace, name } => (
                format!("there is no VirtualService {namespace}/{name}"),
                "create it, or correct the name and namespace",
            ),
            Target::Secret { name } => (
                format!("there is no Secret {name:?}"),
                "create it in the namespace of the gateway's proxies; until then, the server accepts no connections",
            ),
            Target::Host(host) if !host.subset.is_empty() => (
                format!("no DestinationRule defines the subset {:?} of the host {}", &*host.subset, host.name),
                "define it; until then, requests to it get 503",
            ),
            Target::Host(host) => (
                format!("there is no Service or ServiceEntry with the host {}", host.name),
                "create it, or write the full name of the host; until then, requests to it get 503",
            ),
        };
        Diagnostic::warning(object, Diagnostic::MISSING_REFERENCE, self.path.clone(), message, hint)
    }
}

/// The references of an object, in the order of its fields. A destination with a subset gives two: to its host and to the
/// subset.
pub fn references(object: &AnyObject) -> Vec<Reference> {
    let mut out = Vec::new();
    let namespace = object.meta().namespace.clone();
    match object {
        AnyObject::VirtualService(object) => of_virtual_service(&object.spec, &namespace, &mut out),
        AnyObject::Gateway(object) => of_gateway(&object.spec, &mut out),
        _ => {}
    }
    out
}

fn of_virtual_service(spec: &VirtualService, namespace: &Arc<str>, out: &mut Vec<Reference>) {
    let at = |field: &str, index| FieldPath::spec().field(field).index(index);
    let gateways = spec.gateways.iter().enumerate().filter(|(_, gateway)| &***gateway != VirtualService::MESH);
    out.extend(gateways.map(|(index, gateway)| {
        let (namespace, name) = match gateway.split_once('/') {
            Some((namespace, name)) => (namespace.into(), name.into()),
            None => (namespace.clone(), gateway.clone()),
        };
        Reference { path: at("gateways", index), target: Target::Gateway { namespace, name } }
    }));
    for (index, route) in spec.http.iter().enumerate() {
        of_http_route(route, &at("http", index), namespace, out);
    }
    let tls = spec.tls.iter().map(|route| &route.route).enumerate().map(|(index, routes)| ("tls", index, routes));
    let tcp = spec.tcp.iter().map(|route| &route.route).enumerate().map(|(index, routes)| ("tcp", index, routes));
    for (field, index, routes) in tls.chain(tcp) {
        for (number, route) in routes.iter().enumerate() {
            let path = at(field, index).field("route").index(number).field("destination");
            of_destination(&route.destination, &path, namespace, out);
        }
    }
}

fn of_http_route(route: &HttpRoute, path: &FieldPath, namespace: &Arc<str>, out: &mut Vec<Reference>) {
    for (index, route) in route.route.iter().enumerate() {
        of_destination(&route.destination, &path.field("route").index(index).field("destination"), namespace, out);
    }
    if let Some(mirror) = &route.mirror {
        of_destination(mirror, &path.field("mirror"), namespace, out);
    }
    for (index, mirror) in route.mirrors.iter().enumerate() {
        of_destination(&mirror.destination, &path.field("mirrors").index(index).field("destination"), namespace, out);
    }
    if let Some(delegate) = &route.delegate {
        let own = if delegate.namespace.is_empty() { namespace } else { &delegate.namespace };
        let target = Target::VirtualService { namespace: own.clone(), name: delegate.name.clone() };
        out.push(Reference { path: path.field("delegate"), target });
    }
}

fn of_destination(destination: &Destination, path: &FieldPath, namespace: &str, out: &mut Vec<Reference>) {
    let host = Host::new(&destination.host, &destination.subset, namespace);
    let whole = Host { subset: "".into(), ..host.clone() };
    out.push(Reference { path: path.field("host"), target: Target::Host(whole) });
    if !host.subset.is_empty() {
        out.push(Reference { path: path.field("subset"), target: Target::Host(host) });
    }
}

fn of_gateway(spec: &Gateway, out: &mut Vec<Reference>) {
    for (index, server) in spec.servers.iter().enumerate() {
        let Some(tls) = &server.tls else { continue };
        let at = FieldPath::spec().field("servers").index(index).field("tls");
        let single = std::iter::once((at.field("credentialName"), &tls.credential_name));
        let several = tls.credential_names.iter().enumerate();
        let several = several.map(|(index, name)| (at.field("credentialNames").index(index), name));
        let named = single.chain(several);
        // Other schemes name ConfigMaps, or secrets that the agent provides.
        out.extend(
            named
                .filter(|(_, name)| !name.is_empty() && !name.contains("://"))
                .map(|(path, name)| Reference { path, target: Target::Secret { name: name.clone() } }),
        );
    }
}

#[cfg(test)]
mod tests {
    use config::{ParseOptions, parse_documents};

    use super::*;

    fn found(text: &str) -> Vec<String> {
        let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
        let object = parsed.objects.first().unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let all = references(object);
        all.iter().map(|one| one.unresolved(object.key())).map(|d| format!("{}: {}", d.path, d.message)).collect()
    }

    #[test]
    fn of_virtual_services() {
        let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: shop}, spec: {\
                    hosts: [a.com], gateways: [mesh, gw, infra/edge], http: [{route: [{destination: {host: reviews, \
                    subset: v1}}], mirror: {host: api.example.com}}], tcp: [{route: [{destination: {host: \
                    db}}]}]}}";
        assert_eq!(
            found(text),
            [
                "spec.gateways[1]: there is no Gateway shop/gw",
                "spec.gateways[2]: there is no Gateway infra/edge",
                "spec.http[0].route[0].destination.host: there is no Service or ServiceEntry with the host \
                 reviews.shop.svc.cluster.local",
                "spec.http[0].route[0].destination.subset: no DestinationRule defines the subset \"v1\" of the host \
                 reviews.shop.svc.cluster.local",
                "spec.http[0].mirror.host: there is no Service or ServiceEntry with the host api.example.com",
                "spec.tcp[0].route[0].destination.host: there is no Service or ServiceEntry with the host \
                 db.shop.svc.cluster.local",
            ]
        );
    }

    #[test]
    fn of_gateways() {
        let text = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}, spec: {servers: [{hosts: [a.com], \
                    port: {name: a, number: 443, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: a-cert}}]}}";
        assert_eq!(found(text), ["spec.servers[0].tls.credentialName: there is no Secret \"a-cert\""]);
    }

    #[test]
    fn hosts() {
        let host = Host::new("a.shop.svc.cluster.local", &"".into(), "x");
        assert_eq!(host.service(), Some(("shop", "a")));
        assert_eq!(Host::new("api.example.com", &"".into(), "x").service(), None);
        assert!(host.is_covered_by("a", "shop") && !host.is_covered_by("a", "other"));
        assert!(host.is_covered_by("*.svc.cluster.local", "other") && host.is_covered_by("*", "x"));
    }
}
