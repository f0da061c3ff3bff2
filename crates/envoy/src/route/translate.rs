//! Translates the HTTP rules of a VirtualService to routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::MeshConfig;
use config::istio::{Destination, HttpAction, HttpMatchRequest, HttpRoute, VirtualService};
use flow::Reads;
use model::audience::RoutesKey;
use model::service::ObjectId;
use model::session::Session;
use names::Hostname;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy};
use protos::envoy::config::route::v3::{Decorator, Route};
use registry::Services;
use traffic::policy::{DestinationPolicy, effective, merged};
use traffic::virtual_service::Guard;

use super::headers::Operations;
use super::{action, faults, hash, matching, sessions};
use crate::parts::{istio_metadata, origin};

/// Istio's cluster name for a destination without a host.
const UNKNOWN_SERVICE: &str = "UnknownService";

/// The context of translation.
pub(crate) struct Context<'a> {
    /// The VirtualService.
    pub(crate) id: &'a ObjectId,
    /// The clients of the routes.
    pub(crate) key: &'a RoutesKey,
    /// The mesh's defaults.
    pub(crate) config: &'a MeshConfig,
    /// The services of destination hosts.
    pub(crate) destinations: &'a Destinations,
}

/// The services of destination hosts, as the client sees them.
#[derive(Default)]
pub(crate) struct Destinations {
    /// The port of the listener.
    port: u16,
    known: BTreeMap<Arc<str>, Known>,
}

/// The facts of a host.
#[derive(Default)]
struct Known {
    /// The hostname of the destination's service, which differs for an alias.
    hostname: Option<Arc<str>>,
    /// The port of the service, if it has only one.
    only_port: Option<u16>,
    policy: Option<Arc<DestinationPolicy>>,
    /// Session affinity settings, if the service uses them.
    session: Option<Session>,
}

/// The routes of a VirtualService, in order. Conditions that cannot hold for this client are left out.
pub(crate) fn routes<'a>(spec: &'a VirtualService, context: &'a Context<'_>) -> impl Iterator<Item = Route> + 'a {
    spec.http
        .iter()
        .flat_map(move |rule| conditions(rule, context).map(move |condition| route(rule, condition, context)))
}

impl Destinations {
    /// Reads the facts that the rules of a VirtualService, or the default route, depend on.
    pub(crate) fn read(cx: &Reads<'_>, key: &RoutesKey, spec: Option<&VirtualService>) -> Destinations {
        let mut known: BTreeMap<Arc<str>, Known> = BTreeMap::new();
        let rules = spec.map(|spec| &spec.http[..]).unwrap_or_default();
        for destination in rules.iter().flat_map(all_destinations) {
            let Some(reference) = lookup(key, &destination.host) else {
                continue;
            };
            let entry = known.entry(destination.host.clone()).or_insert_with(|| Known {
                hostname: reference.service.as_ref().map(|key| key.hostname.as_arc().clone()),
                only_port: None,
                session: reference.service.as_ref().and_then(|key| traffic::sessions::of(cx, key)),
                policy: merged(cx, reference.policy.as_ref()),
            });
            // The ports of the service matter only in this case.
            if destination.port.is_none() && entry.only_port.is_none() {
                let service = reference.service.as_ref().and_then(|service| cx.get::<Services>(service));
                entry.only_port = service.and_then(|service| match &service.ports[..] {
                    [port] => Some(port.number),
                    _ => None,
                });
            }
        }
        if spec.is_none() {
            let policy = key.destinations.get(&key.host).and_then(|reference| reference.policy.as_ref());
            known.insert(
                key.host.as_arc().clone(),
                Known {
                    hostname: None,
                    only_port: None,
                    policy: merged(cx, policy),
                    // The virtual host has these settings.
                    session: None,
                },
            );
        }
        Destinations { port: key.port, known }
    }

    /// The cluster of a destination: `outbound|PORT|SUBSET|HOST`. The default port is the service's only one, or else
    /// the listener's.
    pub(crate) fn cluster(&self, destination: &Destination) -> String {
        if destination.host.is_empty() {
            return UNKNOWN_SERVICE.to_owned();
        }
        let known = self.known.get(&destination.host);
        let meant = known.and_then(|known| known.hostname.as_ref());
        format!("outbound|{}|{}|{}", self.port_of(destination), destination.subset, meant.unwrap_or(&destination.host))
    }

    pub(crate) fn hash(&self, destination: &Destination) -> Option<HashPolicy> {
        let port = u16::try_from(self.port_of(destination)).ok()?;
        self.hash_of(&destination.host, &destination.subset, port)
    }

    /// The hash policies of a service's endpoints at the listener's port.
    pub(crate) fn hash_of_default(&self, host: &Hostname) -> Option<HashPolicy> {
        self.hash_of(host.as_str(), "", self.port)
    }

    fn hash_of(&self, host: &str, subset: &str, port: u16) -> Option<HashPolicy> {
        let policy = self.known.get(host)?.policy.as_deref();
        hash::policy(effective(policy, subset, port).load_balancer)
    }

    /// The session affinity settings of a rule: those of the first destination that has any.
    fn session(&self, rule: &HttpRoute) -> Option<&Session> {
        let hosts = rule.route.iter().map(|route| &route.destination.host);
        hosts.filter_map(|host| self.known.get(host)?.session.as_ref()).next()
    }

    fn port_of(&self, destination: &Destination) -> u32 {
        let only = self.known.get(&destination.host).and_then(|known| known.only_port);
        let given = destination.port.as_ref().map(|port| port.number);
        given.unwrap_or_else(|| u32::from(only.unwrap_or(self.port)))
    }
}

#[cfg(test)]
impl Destinations {
    /// Creates destinations without any known host.
    pub(crate) fn at(port: u16) -> Destinations {
        Destinations { port, known: BTreeMap::new() }
    }

    /// Adds the facts of a host.
    pub(crate) fn know(&mut self, host: &str, only_port: Option<u16>, policy: Option<DestinationPolicy>) {
        self.known
            .insert(host.into(), Known { hostname: None, only_port, policy: policy.map(Arc::new), session: None });
    }
}

fn lookup<'k>(key: &'k RoutesKey, host: &str) -> Option<&'k model::audience::DestinationRef> {
    key.destinations.get(&Hostname::parse(host).ok()?)
}

/// The destinations that a rule names, including mirrors.
fn all_destinations(rule: &HttpRoute) -> impl Iterator<Item = &Destination> {
    let mirrors = rule.mirrors.iter().map(|mirror| &mirror.destination);
    rule.route.iter().map(|route| &route.destination).chain(&rule.mirror).chain(mirrors)
}

/// The conditions of a rule that can hold for this client; a rule without any always holds.
fn conditions<'a>(
    rule: &'a HttpRoute,
    context: &'a Context<'_>,
) -> impl Iterator<Item = Option<&'a HttpMatchRequest>> + 'a {
    let key = context.key;
    let admitted =
        |condition: &&HttpMatchRequest| Guard::of_http(condition).admits(key.port, key.gateway.as_ref(), &key.source);
    let always = rule.matches.is_empty().then_some(None);
    always.into_iter().chain(rule.matches.iter().filter(admitted).map(Some))
}

fn route(rule: &HttpRoute, condition: Option<&HttpMatchRequest>, context: &Context<'_>) -> Route {
    let mut out = Route {
        name: route_name(rule, condition),
        r#match: Some(condition.map_or_else(matching::everything, matching::translate)),
        metadata: istio_metadata(vec![origin("virtual-service", context.id)]),
        stat_prefix: condition.map(|condition| condition.stat_prefix.to_string()).unwrap_or_default(),
        typed_per_filter_config: faults::filter_options(rule),
        ..Default::default()
    };
    let operations = Operations::of(rule.headers.as_ref());
    out.request_headers_to_add = operations.request_add;
    out.request_headers_to_remove = operations.request_remove;
    out.response_headers_to_add = operations.response_add;
    out.response_headers_to_remove = operations.response_remove;
    match rule.action() {
        HttpAction::Redirect(redirect) => out.action = Some(action::redirect(redirect, context.key.port)),
        HttpAction::DirectResponse(response) => out.action = Some(action::respond(response)),
        HttpAction::Route(_) | HttpAction::Delegate(_) => {
            action::forward(&mut out, rule, operations.authority, context.destinations, context.config);
            let session = context.destinations.session(rule).map(sessions::options);
            out.typed_per_filter_config.extend(session.map(|options| (sessions::FILTER.to_owned(), options)));
        }
    }
    let operation = operation(&out, context);
    out.decorator = Some(Decorator { operation, propagate: None });
    out
}

/// `RULE`, or `RULE.CONDITION`.
fn route_name(rule: &HttpRoute, condition: Option<&HttpMatchRequest>) -> String {
    match condition {
        Some(condition) if !condition.name.is_empty() => format!("{}.{}", rule.name, condition.name),
        _ => rule.name.to_string(),
    }
}

/// The name of the route in traces: `HOST:PORT/PATH` for one destination, otherwise `VIRTUAL_SERVICE:PORT/PATH`.
fn operation(route: &Route, context: &Context<'_>) -> String {
    let path = route.r#match.as_ref().map(matching::shown_path).unwrap_or_else(|| "/*".into());
    let cluster = match &route.action {
        Some(Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(cluster)) => names::ClusterName::parse(cluster).ok(),
            _ => None,
        },
        _ => None,
    };
    match cluster {
        Some(cluster) => format!("{}:{}{path}", cluster.host, cluster.port),
        None => format!("{}:{}{path}", context.id.name, context.key.port),
    }
}
