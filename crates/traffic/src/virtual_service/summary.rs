//! Summaries of VirtualServices: the fields that decide whether and where they apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{
    Destination, HttpMatchRequest, HttpRoute, L4MatchAttributes, StringMatch, TlsMatchAttributes, VirtualService,
};
use config::{Object, Timestamp};
use flow::Reads;
use model::audience::Source;
use model::proxy::{Labels, selects};
use model::service::{ExportTo, ObjectId};
use names::Hostname;
use registry::inputs::Mesh;

use super::EffectiveVirtualServices;

flow::rule! {
    /// The summary of each VirtualService that has hosts.
    pub VirtualServiceSummaries: ObjectId => Arc<Summary> = "virtual service summaries", derive_virtual_service_summaries;
}

flow::index! {
    /// VirtualServices of sidecars with TCP or TLS routes. Most meshes have few or none.
    pub L4VirtualServices: () => members of VirtualServiceSummaries = "virtual services with tcp or tls routes", l4_virtual_services_keys;
}

fn l4_virtual_services_keys(_: &ObjectId, row: &Arc<Summary>) -> Vec<()> {
    if row.applies_to_mesh() && (row.has_tcp || row.has_tls) { vec![()] } else { Vec::new() }
}

fn derive_virtual_service_summaries(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Summary>> {
    let object = cx.get::<EffectiveVirtualServices>(key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let default = &mesh.config.default_virtual_service_export_to;
    let export_to = registry::services::export_to(&object.spec.export_to, default, &key.namespace);
    Some(Arc::new(Summary::of(key.clone(), &object, export_to)))
}

/// The fields that decide whether and where a VirtualService applies.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The VirtualService.
    pub id: ObjectId,
    /// Its creation time.
    pub created: Option<Timestamp>,
    /// Its hosts, in their written order.
    pub hosts: Vec<Hostname>,
    /// Its gateways; never empty.
    pub gateways: Vec<Binding>,
    /// Its visibility.
    pub export_to: ExportTo,
    /// The static conditions of its HTTP routes: one per route and match.
    pub http: Vec<Guard>,
    /// Destinations of its HTTP routes and mirrors.
    pub http_destinations: BTreeSet<Hostname>,
    /// All destinations of HTTP, TCP and TLS routes, sorted.
    pub destinations: Vec<DestinationUse>,
    /// It has TCP routes.
    pub has_tcp: bool,
    /// It has TLS routes.
    pub has_tls: bool,
}

/// A gateway that a VirtualService is bound to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Binding {
    /// All sidecars.
    Mesh,
    /// A gateway.
    Gateway(ObjectId),
}

impl Binding {
    /// Parses a full name: `mesh` or `namespace/name`.
    pub fn parse(text: &str) -> Option<Binding> {
        if text == VirtualService::MESH {
            return Some(Binding::Mesh);
        }
        let (namespace, name) = text.split_once('/')?;
        Some(Binding::Gateway(ObjectId { namespace: namespace.into(), name: name.into() }))
    }

    /// Whether it is this gateway; none means `mesh`.
    pub fn is(&self, gateway: Option<&ObjectId>) -> bool {
        match self {
            Binding::Mesh => gateway.is_none(),
            Binding::Gateway(id) => gateway == Some(id),
        }
    }
}

/// A reference to a destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DestinationUse {
    /// The host.
    pub host: Hostname,
    /// The port, if set.
    pub port: Option<u16>,
    /// The namespaces whose clients can reach it (`sourceNamespace`); empty for all.
    pub namespaces: BTreeSet<Arc<str>>,
}

/// The static part of a condition, which is decided when routes are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// The listener's port.
    pub port: Option<u16>,
    /// Gateways; empty for all of the VirtualService.
    pub gateways: Vec<Binding>,
    /// Labels of the client.
    pub source_labels: Labels,
    /// The client's namespace.
    pub source_namespace: Option<Arc<str>>,
    /// The largest program of the condition's and the route's regular expressions, if not every Envoy accepts it.
    pub program: Option<u32>,
}

impl Guard {
    /// The guards of an HTTP route: one for each of its conditions, or one if it has none.
    pub fn of_route(route: &HttpRoute) -> Vec<Guard> {
        let own = largest(route_expressions(route));
        let with = |guard: Guard, program| Guard { program: own.max(program), ..guard };
        match &route.matches[..] {
            [] => vec![with(Guard::default(), None)],
            matches => matches.iter().map(|m| with(Guard::of_http(m), largest(match_expressions(m)))).collect(),
        }
    }

    /// The guard of an HTTP condition. As in Istio, one with gateways ignores the client's labels and namespace.
    fn of_http(condition: &HttpMatchRequest) -> Guard {
        let guard = Guard::new(condition.port, &condition.gateways);
        match condition.gateways.is_empty() {
            true => guard.for_clients(&condition.source_labels, &condition.source_namespace),
            false => guard,
        }
    }

    /// The guard of a TCP condition.
    pub fn of_tcp(condition: &L4MatchAttributes) -> Guard {
        Guard::new(condition.port, &condition.gateways)
            .for_clients(&condition.source_labels, &condition.source_namespace)
    }

    /// The guard of a TLS condition.
    pub fn of_tls(condition: &TlsMatchAttributes) -> Guard {
        Guard::new(condition.port, &condition.gateways)
            .for_clients(&condition.source_labels, &condition.source_namespace)
    }

    fn new(number: u32, gateways: &[Arc<str>]) -> Guard {
        Guard { port: port(number), gateways: bindings(gateways), ..Guard::default() }
    }

    fn for_clients(self, labels: &Labels, namespace: &Arc<str>) -> Guard {
        let source_namespace = (!namespace.is_empty()).then(|| namespace.clone());
        Guard { source_labels: labels.clone(), source_namespace, ..self }
    }

    /// Whether the condition can match for a client at a listener of this port; `gateway` is none for sidecars.
    pub fn admits(&self, port: u16, gateway: Option<&ObjectId>, source: &Source) -> bool {
        self.concerns(port, gateway)
            && self.source_namespace.as_ref().is_none_or(|n| *n == source.namespace)
            && selects(&self.source_labels, &source.labels)
            && self.program.is_none_or(|size| source.regex_limit.is_some_and(|limit| size <= limit))
    }

    /// Whether the condition can match for some client there.
    fn concerns(&self, port: u16, gateway: Option<&ObjectId>) -> bool {
        self.port.is_none_or(|p| p == port) && (self.gateways.is_empty() || self.gateways.iter().any(|g| g.is(gateway)))
    }
}

impl Summary {
    /// The summary of an effective VirtualService.
    pub fn of(id: ObjectId, object: &Object<VirtualService>, export_to: ExportTo) -> Summary {
        let spec = &object.spec;
        let http = spec.http.iter().flat_map(Guard::of_route).collect();
        let http_uses: Vec<DestinationUse> = spec.http.iter().flat_map(http_uses).collect();
        let tcp = spec.tcp.iter().flat_map(|r| &r.route);
        let tls = spec.tls.iter().flat_map(|r| &r.route);
        let l4_uses = tcp.chain(tls).filter_map(|r| used(&r.destination, &BTreeSet::new()));
        let http_destinations = http_uses.iter().map(|u| u.host.clone()).collect();
        let destinations: BTreeSet<DestinationUse> = l4_uses.chain(http_uses).collect();
        let gateways = if spec.gateways.is_empty() { vec![Binding::Mesh] } else { bindings(&spec.gateways) };
        Summary {
            id,
            created: object.meta.creation_timestamp,
            hosts: spec.hosts.iter().filter_map(|h| Hostname::parse(h).ok()).collect(),
            gateways,
            export_to,
            http,
            http_destinations,
            destinations: destinations.into_iter().collect(),
            has_tcp: !spec.tcp.is_empty(),
            has_tls: !spec.tls.is_empty(),
        }
    }

    /// Whether it applies to sidecars.
    pub fn applies_to_mesh(&self) -> bool {
        self.gateways.contains(&Binding::Mesh)
    }

    /// Whether an HTTP route can match for this client at a listener of this port.
    pub fn routes(&self, port: u16, gateway: Option<&ObjectId>, source: &Source) -> bool {
        self.http.iter().any(|guard| guard.admits(port, gateway, source))
    }

    /// The namespaces whose clients may get other HTTP routes for this port than other clients; `None` if that depends
    /// on labels of clients, or on the regular expressions that they accept.
    pub fn particular_namespaces(&self, port: u16) -> Option<BTreeSet<Arc<str>>> {
        let asked = || self.http.iter().filter(|guard| guard.concerns(port, None));
        let by_fact = asked().any(|guard| !guard.source_labels.is_empty() || guard.program.is_some());
        (!by_fact).then(|| asked().filter_map(|guard| guard.source_namespace.clone()).collect())
    }

    /// The client, reduced to the facts that the HTTP routes of this port and gateway test.
    pub fn cut(&self, port: u16, gateway: Option<&ObjectId>, source: &Source) -> Source {
        let asked = || self.http.iter().filter(|guard| guard.concerns(port, gateway));
        let by_namespace = asked().any(|guard| guard.source_namespace.is_some());
        let by_program = asked().any(|guard| guard.program.is_some());
        let keys: BTreeSet<&Arc<str>> = asked().flat_map(|guard| guard.source_labels.keys()).collect();
        Source {
            namespace: if by_namespace { source.namespace.clone() } else { "".into() },
            labels: keys.into_iter().filter_map(|key| source.labels.get_key_value(key)).map(cloned).collect(),
            regex_limit: source.regex_limit.filter(|_| by_program),
        }
    }
}

fn cloned((key, value): (&Arc<str>, &Arc<str>)) -> (Arc<str>, Arc<str>) {
    (key.clone(), value.clone())
}

/// The size of the largest program of expressions, if not every Envoy accepts it. An expression that no Envoy accepts has
/// the largest size.
fn largest<'a>(expressions: impl Iterator<Item = &'a Arc<str>>) -> Option<u32> {
    let sizes = expressions.map(|text| config::regex_program_size(text).unwrap_or(u32::MAX));
    sizes.max().filter(|size| *size > config::DEFAULT_PROGRAM_SIZE)
}

fn expression(text: &StringMatch) -> Option<&Arc<str>> {
    match text {
        // Encoders write both in another way.
        StringMatch::Regex(regex) if regex.is_empty() || &**regex == "*" => None,
        StringMatch::Regex(regex) => Some(regex),
        _ => None,
    }
}

fn match_expressions(condition: &HttpMatchRequest) -> impl Iterator<Item = &Arc<str>> {
    let texts = [&condition.uri, &condition.scheme, &condition.method, &condition.authority];
    let maps = [&condition.headers, &condition.without_headers, &condition.query_params];
    texts.into_iter().flatten().chain(maps.into_iter().flat_map(|map| map.values())).filter_map(expression)
}

/// The expressions of a route apart from its conditions.
fn route_expressions(route: &HttpRoute) -> impl Iterator<Item = &Arc<str>> {
    let rewrite = route.rewrite.iter().filter_map(|rewrite| rewrite.uri_regex_rewrite.as_ref());
    let rewrite = rewrite.map(|rewrite| &rewrite.regex).filter(|regex| !regex.is_empty());
    let origins = route.cors_policy.iter().flat_map(|policy| &policy.allow_origins).filter_map(expression);
    rewrite.chain(origins)
}

fn http_uses(route: &HttpRoute) -> Vec<DestinationUse> {
    let namespaces: BTreeSet<Arc<str>> = match route.matches.iter().any(|m| m.source_namespace.is_empty()) {
        true => BTreeSet::new(),
        false => route.matches.iter().map(|m| m.source_namespace.clone()).collect(),
    };
    let routes = route.route.iter().map(|r| &r.destination);
    let mirrors = route.mirror.iter().chain(route.mirrors.iter().map(|m| &m.destination));
    routes.chain(mirrors).filter_map(|d| used(d, &namespaces)).collect()
}

fn used(destination: &Destination, namespaces: &BTreeSet<Arc<str>>) -> Option<DestinationUse> {
    let host = Hostname::parse(&destination.host).ok()?;
    let port = destination.port.as_ref().and_then(|p| port(p.number));
    Some(DestinationUse { host, port, namespaces: namespaces.clone() })
}

fn bindings(gateways: &[Arc<str>]) -> Vec<Binding> {
    gateways.iter().filter_map(|g| Binding::parse(g)).collect()
}

/// 0 means any port. Invalid numbers match no listener.
fn port(number: u32) -> Option<u16> {
    (number != 0).then(|| u16::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(namespace: &str, labels: &[(&str, &str)]) -> Source {
        let labels = labels.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect();
        Source { namespace: namespace.into(), labels, regex_limit: None }
    }

    fn summary(matches: Vec<HttpMatchRequest>) -> Summary {
        let spec = VirtualService {
            hosts: vec!["a.b".into()],
            http: vec![HttpRoute { matches, ..Default::default() }],
            ..Default::default()
        };
        let id = ObjectId { namespace: "ns".into(), name: "vs".into() };
        Summary::of(id, &Object::new("ns", "vs", spec), ExportTo::All)
    }

    #[test]
    fn a_client_is_cut_down_to_what_is_asked() {
        let mut by_label = HttpMatchRequest { port: 80, ..Default::default() };
        by_label.source_labels.insert("app".into(), "x".into());
        let by_namespace = HttpMatchRequest { port: 90, source_namespace: "n".into(), ..Default::default() };
        let summary = summary(vec![by_label, by_namespace]);
        let client = source("n", &[("app", "x"), ("v", "1")]);
        assert_eq!(summary.cut(80, None, &client), source("", &[("app", "x")]));
        assert_eq!(summary.cut(90, None, &client), source("n", &[]));
        assert_eq!(summary.cut(70, None, &client), source("", &[]));
        assert!(summary.routes(80, None, &client) && summary.routes(90, None, &client));
        assert!(!summary.routes(80, None, &source("n", &[("app", "y")])));
        assert!(!summary.routes(90, None, &source("m", &[])));
        assert!(!summary.routes(70, None, &client));
    }

    #[test]
    fn a_large_expression_is_for_clients_that_accept_it() {
        let large =
            HttpMatchRequest { uri: Some(StringMatch::Regex("/[a-z]{1,64}/items".into())), ..Default::default() };
        let plain =
            HttpMatchRequest { uri: Some(StringMatch::Regex("/[a-z]+".into())), port: 90, ..Default::default() };
        let summary = summary(vec![large, plain]);
        let client = |limit| Source { regex_limit: Some(limit), ..source("n", &[]) };
        assert!(!summary.routes(80, None, &client(100)) && summary.routes(80, None, &client(32_768)));
        assert!(summary.routes(90, None, &client(100)));
        assert_eq!(summary.cut(80, None, &client(100)), Source { regex_limit: Some(100), ..source("", &[]) });
        assert_eq!(summary.particular_namespaces(80), None, "not shared with all clients");
    }

    #[test]
    fn a_condition_that_names_gateways_asks_nothing_of_the_client() {
        let mut condition = HttpMatchRequest { gateways: vec!["mesh".into(), "ns/gw".into()], ..Default::default() };
        condition.source_labels.insert("app".into(), "x".into());
        let summary = summary(vec![condition]);
        let gateway = ObjectId { namespace: "ns".into(), name: "gw".into() };
        let other = ObjectId { namespace: "ns".into(), name: "other".into() };
        assert!(summary.routes(80, None, &source("n", &[])));
        assert!(summary.routes(80, Some(&gateway), &source("n", &[])));
        assert!(!summary.routes(80, Some(&other), &source("n", &[])));
    }
}
