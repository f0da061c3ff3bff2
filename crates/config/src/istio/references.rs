//! References of VirtualServices, DestinationRules and Gateways to other objects.
//!
//! A reference that does not resolve is no error: the other object may follow. The caller knows the other objects and
//! decides. The status, the API and `validate` share the references and their messages.

use std::sync::Arc;

use names::Hostname;

use super::{Destination, DestinationRule, Gateway, HttpRoute, VirtualService};
use crate::{AnyObject, Diagnostic, FieldPath, ObjectKey};

/// A reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The field.
    pub path: FieldPath,
    /// The object, or the part of it, that the field refers to.
    pub target: Target,
}

/// The target of a reference. [`Target::Port`] and [`Target::Subset`] follow the [`Target::Host`] of the same destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A Gateway of Istio's API.
    Gateway {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A VirtualService without hosts.
    Delegate {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A certificate, or CA certificates, for the proxies of a Gateway.
    Credential {
        /// The name as written, with its scheme.
        name: Arc<str>,
        /// Whether it is a name of CA certificates.
        authorities: bool,
    },
    /// A service.
    Host {
        /// Its full name.
        host: Hostname,
        /// The effect of its absence.
        effect: &'static str,
    },
    /// A port of a service.
    Port {
        /// The service.
        host: Hostname,
        /// The number.
        number: u32,
    },
    /// A subset of a service.
    Subset {
        /// The service.
        host: Hostname,
        /// The name.
        name: Arc<str>,
        /// Whether it gets requests: its weight is not 0.
        used: bool,
    },
}

/// The effect of a destination that does not exist.
const UNAVAILABLE: &str = "requests to it get 503";

/// Returns the references of an object, in the order of its fields. `domain` is the cluster's DNS domain.
pub fn references(object: &AnyObject, domain: &str) -> Vec<Reference> {
    let namespace = &object.meta().namespace;
    match object {
        AnyObject::VirtualService(object) => of_virtual_service(&object.spec, namespace, domain),
        AnyObject::DestinationRule(object) => {
            of_destination_rule(&object.spec, namespace, domain).into_iter().collect()
        }
        AnyObject::Gateway(object) => of_gateway(&object.spec),
        _ => Vec::new(),
    }
}

/// Leaves out references that only repeat that a host is missing: a port or a subset follows its host, and one warning is
/// enough.
#[derive(Default, Debug)]
pub struct Following {
    host_is_missing: bool,
}

impl Following {
    /// Whether the caller must find out if the next reference resolves.
    pub fn needs(&self, target: &Target) -> bool {
        !(self.host_is_missing && matches!(target, Target::Port { .. } | Target::Subset { .. }))
    }

    /// Takes the answer for a reference that it needs.
    pub fn answer(&mut self, target: &Target, missing: bool) {
        self.host_is_missing = missing && matches!(target, Target::Host { .. } | Target::Port { .. });
    }
}

impl Reference {
    /// The warning that the target does not exist.
    pub fn missing(&self, object: ObjectKey) -> Diagnostic {
        let (message, hint) = match &self.target {
            Target::Gateway { namespace, name } => (
                format!("there is no Gateway {namespace}/{name}: no gateway has these routes"),
                "create the Gateway, or correct its name",
            ),
            Target::Delegate { namespace, name } => (
                format!("there is no VirtualService {namespace}/{name}: the route is left out"),
                "create the VirtualService, or correct its name and namespace",
            ),
            Target::Credential { name, .. } => (
                format!("there is no Secret {name}: connections to the server fail"),
                "create it in the namespace of the gateway's proxies",
            ),
            Target::Host { host, effect } => (
                format!("there is no service {host}: {effect}"),
                "create the Service or ServiceEntry, or correct the name",
            ),
            Target::Port { host, number } => {
                (format!("{host} has no TCP port {number}: {UNAVAILABLE}"), "correct the number, or add the port")
            }
            Target::Subset { host, name, .. } => (
                format!("no DestinationRule for {host} has the subset {name}: {UNAVAILABLE}"),
                "add the subset to a DestinationRule that the clients see, or correct its name",
            ),
        };
        Diagnostic::warning(object, Diagnostic::MISSING_REFERENCE, self.path.clone(), message, hint)
    }
}

impl Target {
    /// Whether this object is the target or defines it.
    pub fn is_defined_by(&self, object: &AnyObject, domain: &str) -> bool {
        let meta = object.meta();
        let has_host = |names: &[Arc<str>], host: &Hostname| {
            names.iter().any(|name| Hostname::resolve(name, &meta.namespace, domain).is_ok_and(|name| name == *host))
        };
        match (self, object) {
            (Target::Gateway { namespace, name }, AnyObject::Gateway(_))
            | (Target::Delegate { namespace, name }, AnyObject::VirtualService(_)) => {
                meta.namespace == *namespace && meta.name == *name
            }
            (Target::Credential { .. }, AnyObject::Secret(_)) => self.is_secret(&meta.name),
            (Target::Host { host, .. }, AnyObject::Service(_)) => {
                service_of(host) == Some((&*meta.namespace, &*meta.name))
            }
            (Target::Host { host, .. }, AnyObject::ServiceEntry(entry)) => has_host(&entry.spec.hosts, host),
            (Target::Port { host, number }, AnyObject::Service(service)) => {
                let mut ports = service.spec.ports.iter().filter(|port| &*port.protocol != "UDP");
                service_of(host) == Some((&*meta.namespace, &*meta.name))
                    && ports.any(|port| u32::from(port.port) == *number)
            }
            (Target::Port { host, number }, AnyObject::ServiceEntry(entry)) => {
                has_host(&entry.spec.hosts, host) && entry.spec.ports.iter().any(|port| port.number == *number)
            }
            (Target::Subset { host, name, .. }, AnyObject::DestinationRule(rule)) => {
                let own = Hostname::resolve(&rule.spec.host, &meta.namespace, domain);
                own.is_ok_and(|own| host.subset_of(&own)) && rule.spec.subsets.iter().any(|subset| subset.name == *name)
            }
            _ => false,
        }
    }

    /// Whether a Secret of this name can be the credential.
    pub fn is_secret(&self, secret: &str) -> bool {
        let Target::Credential { name, authorities } = self else { return false };
        secret == &**name || *authorities && secret.strip_suffix("-cacert") == Some(name)
    }

    /// The namespace and name of the Service that a host can be.
    pub fn service(&self) -> Option<(&str, &str)> {
        match self {
            Target::Host { host, .. } | Target::Port { host, .. } => service_of(host),
            _ => None,
        }
    }
}

/// The namespace and name of the Service with this hostname, in the cluster's domain or that of a set of clusters.
fn service_of(host: &Hostname) -> Option<(&str, &str)> {
    let mut labels = host.as_str().split('.');
    let (name, namespace) = (labels.next()?, labels.next()?);
    (labels.next() == Some("svc")).then_some((namespace, name))
}

/// The references of a VirtualService in this namespace: gateways, destinations and delegates.
pub fn of_virtual_service(spec: &VirtualService, namespace: &Arc<str>, domain: &str) -> Vec<Reference> {
    let mut out = Vec::new();
    let at = |list: &str, index| FieldPath::spec().field(list).index(index);
    for (index, name) in spec.gateways.iter().enumerate() {
        let full = VirtualService::full_gateway(name, namespace);
        if let Some((namespace, name)) = full.split_once('/') {
            let target = Target::Gateway { namespace: namespace.into(), name: name.into() };
            out.push(Reference { path: at("gateways", index), target });
        }
    }
    let mut destinations = Destinations { namespace, domain, out };
    for (index, route) in spec.http.iter().enumerate() {
        destinations.http(route, &at("http", index));
    }
    let tcp = spec.tcp.iter().enumerate().map(|(index, route)| (at("tcp", index), &route.route));
    let tls = spec.tls.iter().enumerate().map(|(index, route)| (at("tls", index), &route.route));
    for (path, routes) in tcp.chain(tls) {
        let weighted = routes.iter().map(|to| (&to.destination, routes.len() == 1 || to.weight > 0));
        destinations.routes(weighted, &path);
    }
    destinations.out
}

/// Collects the references of destinations.
struct Destinations<'a> {
    namespace: &'a Arc<str>,
    domain: &'a str,
    out: Vec<Reference>,
}

impl Destinations<'_> {
    fn http(&mut self, route: &HttpRoute, path: &FieldPath) {
        let weighted = route.route.iter().map(|to| (&to.destination, route.route.len() == 1 || to.weight > 0));
        self.routes(weighted, path);
        if let Some(mirror) = &route.mirror {
            self.destination(mirror, &path.field("mirror"), true);
        }
        for (index, mirror) in route.mirrors.iter().enumerate() {
            self.destination(&mirror.destination, &path.field("mirrors").index(index).field("destination"), true);
        }
        if let Some(delegate) = &route.delegate {
            let own = if delegate.namespace.is_empty() { self.namespace } else { &delegate.namespace };
            let target = Target::Delegate { namespace: own.clone(), name: delegate.name.clone() };
            self.out.push(Reference { path: path.field("delegate"), target });
        }
    }

    fn routes<'d>(&mut self, routes: impl Iterator<Item = (&'d Destination, bool)>, path: &FieldPath) {
        for (index, (to, used)) in routes.enumerate() {
            self.destination(to, &path.field("route").index(index).field("destination"), used);
        }
    }

    /// Adds the host of a destination, its port and its subset. A host that is no hostname has been reported by validation.
    fn destination(&mut self, to: &Destination, path: &FieldPath, used: bool) {
        let Ok(host) = Hostname::resolve(&to.host, self.namespace, self.domain) else { return };
        let mut add = |path, target| self.out.push(Reference { path, target });
        add(path.field("host"), Target::Host { host: host.clone(), effect: UNAVAILABLE });
        if let Some(port) = &to.port {
            add(path.field("port").field("number"), Target::Port { host: host.clone(), number: port.number });
        }
        if !to.subset.is_empty() {
            add(path.field("subset"), Target::Subset { host, name: to.subset.clone(), used });
        }
    }
}

/// The host of a DestinationRule in this namespace. `None` for a wildcard, which may match nothing.
pub fn of_destination_rule(spec: &DestinationRule, namespace: &str, domain: &str) -> Option<Reference> {
    let host = Hostname::resolve(&spec.host, namespace, domain).ok().filter(|host| !host.is_wildcard())?;
    let target = Target::Host { host, effect: "the rule has no effect" };
    Some(Reference { path: FieldPath::spec().field("host"), target })
}

/// The credentials of a Gateway's servers. `credentialName` has no effect beside `credentialNames`.
pub fn of_gateway(spec: &Gateway) -> Vec<Reference> {
    let mut out = Vec::new();
    for (index, server) in spec.servers.iter().enumerate() {
        let Some(tls) = &server.tls else { continue };
        let path = FieldPath::spec().field("servers").index(index).field("tls");
        let mut add = |path, name: &Arc<str>, authorities| {
            if !name.is_empty() {
                out.push(Reference { path, target: Target::Credential { name: name.clone(), authorities } });
            }
        };
        if tls.credential_names.is_empty() {
            add(path.field("credentialName"), &tls.credential_name, false);
        }
        for (index, name) in tls.credential_names.iter().enumerate() {
            add(path.field("credentialNames").index(index), name, false);
        }
        add(path.field("caCertCredentialName"), &tls.ca_cert_credential_name, true);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, parse_documents};

    fn objects(text: &str) -> Vec<AnyObject> {
        let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
        assert!(!parsed.objects.is_empty(), "{:?}", parsed.diagnostics);
        parsed.objects
    }

    fn found(text: &str) -> Vec<String> {
        let object = &objects(text)[0];
        let all = references(object, "cluster.local");
        all.iter()
            .map(|one| one.missing(object.key()))
            .map(|found| format!("{}: {}", found.path, found.message))
            .collect()
    }

    #[test]
    fn virtual_services() {
        let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: shop}, spec: {\
                    hosts: [a.com], gateways: [mesh, gw.shop, infra/edge], http: [{match: [{uri: {prefix: /p}}], \
                    delegate: {name: part}}, {route: [{destination: {host: reviews, subset: v1, port: {number: 80}}}], \
                    mirror: {host: api.example.com}}], tcp: [{route: [{destination: {host: db}}]}]}}";
        assert_eq!(
            found(text),
            [
                "spec.gateways[1]: there is no Gateway shop/gw: no gateway has these routes",
                "spec.gateways[2]: there is no Gateway infra/edge: no gateway has these routes",
                "spec.http[0].delegate: there is no VirtualService shop/part: the route is left out",
                "spec.http[1].route[0].destination.host: there is no service reviews.shop.svc.cluster.local: requests to it \
                 get 503",
                "spec.http[1].route[0].destination.port.number: reviews.shop.svc.cluster.local has no TCP port 80: requests \
                 to it get 503",
                "spec.http[1].route[0].destination.subset: no DestinationRule for reviews.shop.svc.cluster.local has the \
                 subset v1: requests to it get 503",
                "spec.http[1].mirror.host: there is no service api.example.com: requests to it get 503",
                "spec.tcp[0].route[0].destination.host: there is no service db.shop.svc.cluster.local: requests to it get \
                 503",
            ]
        );
    }

    #[test]
    fn gateways_and_destination_rules() {
        let gateway = |tls: &str| {
            format!(
                "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: a}}, spec: {{servers: [{{hosts: [a.com], \
                 port: {{name: a, number: 443, protocol: HTTPS}}, tls: {tls}}}]}}}}"
            )
        };
        let one = "spec.servers[0].tls.credentialName: there is no Secret a-cert: connections to the server fail";
        assert_eq!(found(&gateway("{mode: SIMPLE, credentialName: a-cert}")), [one]);
        let authorities = found(&gateway("{mode: MUTUAL, credentialName: a-cert, caCertCredentialName: a-ca}"));
        assert_eq!(authorities[0], one);
        assert!(authorities[1].starts_with("spec.servers[0].tls.caCertCredentialName: "), "{authorities:?}");
        let rule = |host: &str| {
            format!(
                "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: a, namespace: shop}}, \
                 spec: {{host: {host:?}}}}}"
            )
        };
        assert_eq!(
            found(&rule("web")),
            ["spec.host: there is no service web.shop.svc.cluster.local: the rule has no effect"]
        );
        assert_eq!(found(&rule("*.example.com")), [""; 0]);
    }

    #[test]
    fn definitions() {
        let text = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: a, port: 80}, \
                    {name: dns, port: 53, protocol: UDP}]}}\n---\n\
                    {apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e, namespace: shop}, spec: {\
                    hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}}\n---\n\
                    {apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: d, namespace: shop}, spec: {\
                    host: '*.shop.svc.cluster.local', subsets: [{name: v1, labels: {version: v1}}]}}";
        let objects = objects(text);
        let is_defined = |target: Target| objects.iter().any(|object| target.is_defined_by(object, "cluster.local"));
        let host = |text: &str| Hostname::parse(text).unwrap();
        let service = |text: &str| is_defined(Target::Host { host: host(text), effect: "" });
        let port = |text: &str, number| is_defined(Target::Port { host: host(text), number });
        let subset = |name: &str| {
            is_defined(Target::Subset { host: host("web.shop.svc.cluster.local"), name: name.into(), used: true })
        };
        assert!(service("web.shop.svc.cluster.local") && service("api.example.com"));
        assert!(!service("web.other.svc.cluster.local") && !service("www.example.com"));
        assert!(port("web.shop.svc.cluster.local", 80) && port("api.example.com", 443));
        assert!(!port("web.shop.svc.cluster.local", 53) && !port("api.example.com", 80));
        assert!(subset("v1") && !subset("v2"));
    }

    #[test]
    fn full_names_of_gateways() {
        let cases = [
            ("mesh", "mesh"),
            ("gw", "ns/gw"),
            ("./gw", "ns/gw"),
            ("other/gw", "other/gw"),
            ("gw.other", "other/gw"),
            ("gw.other.svc.cluster.local", "other/gw"),
        ];
        for (text, want) in cases {
            assert_eq!(&*VirtualService::full_gateway(&text.into(), "ns"), want);
        }
    }
}
