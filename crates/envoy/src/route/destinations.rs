//! The services of destination hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::{Destination, HttpRoute, VirtualService};
use flow::Reads;
use gateway_api::backends::{Target, UNKNOWN_SERVICE};
use model::audience::{DestinationRef, RoutesKey};
use model::session::Session;
use names::Hostname;
use protos::envoy::config::route::v3::route_action::HashPolicy;
use registry::Services;
use traffic::policy::{DestinationPolicy, effective, merged};

use super::hash;

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
            let policy = key.destination(&key.host).and_then(|reference| reference.policy.as_ref());
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

    /// Reads the facts of all hosts of a key. Their destinations have ports.
    pub(crate) fn of(cx: &Reads<'_>, port: u16, hosts: &BTreeMap<Hostname, DestinationRef>) -> Destinations {
        let fact = |(host, reference): (&Hostname, &DestinationRef)| {
            let known = Known {
                hostname: reference.service.as_ref().map(|key| key.hostname.as_arc().clone()),
                only_port: None,
                session: reference.service.as_ref().and_then(|key| traffic::sessions::of(cx, key)),
                policy: merged(cx, reference.policy.as_ref()),
            };
            (host.as_arc().clone(), known)
        };
        Destinations { port, known: hosts.iter().map(fact).collect() }
    }

    /// The cluster of a service's port, or of the service that it is an alias of.
    pub(crate) fn cluster_of(&self, target: &Target) -> String {
        let host = target.service.hostname.as_str();
        let meant = self.known.get(host).and_then(|known| known.hostname.as_deref());
        format!("outbound|{}||{}", target.port, meant.unwrap_or(host))
    }

    /// The hash policy of a service's port.
    pub(crate) fn hash_at(&self, target: &Target) -> Option<HashPolicy> {
        self.hash_of(target.service.hostname.as_str(), "", target.port)
    }

    /// The session affinity settings of a service.
    pub(crate) fn session_of(&self, target: &Target) -> Option<&Session> {
        self.known.get(target.service.hostname.as_str())?.session.as_ref()
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
    pub(super) fn session(&self, rule: &HttpRoute) -> Option<&Session> {
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

fn lookup<'k>(key: &'k RoutesKey, host: &str) -> Option<&'k DestinationRef> {
    key.destination(&Hostname::parse(host).ok()?)
}

/// The destinations that a rule names, including mirrors.
fn all_destinations(rule: &HttpRoute) -> impl Iterator<Item = &Destination> {
    let mirrors = rule.mirrors.iter().map(|mirror| &mirror.destination);
    rule.route.iter().map(|route| &route.destination).chain(&rule.mirror).chain(mirrors)
}
