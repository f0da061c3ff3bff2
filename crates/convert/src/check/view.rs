//! Listeners and hosts of a proxy in a form that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use names::Hostname;
use serde_json::Value as Json;

use super::canonical::{self, Atom};
use super::proxy::Seen;

/// The start of the names of clusters of services.
const OUTBOUND: &str = "outbound|";

/// A port with a bind address (empty for all), and a server name (`*` for all).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) port: u64,
    pub(super) bind: String,
    pub(super) secure: bool,
    pub(super) sni: String,
}

/// The behavior of a proxy for the connections at a place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Service {
    /// Settings of the connection: TLS, HTTP, filters.
    pub(super) connection: Json,
    /// The routes of each host; none for connections that are not HTTP.
    pub(super) hosts: BTreeMap<String, Host>,
}

/// A virtual host.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Host {
    /// Its settings, without names and routes.
    pub(super) settings: Json,
    pub(super) routes: Vec<Atom>,
}

/// The behavior of proxies.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct View {
    pub(super) places: BTreeMap<Place, Service>,
    /// Clusters by name, without metadata.
    pub(super) clusters: BTreeMap<String, Json>,
}

impl View {
    /// The view of a proxy. Secrets without a namespace are those of the proxy's.
    pub(super) fn of(seen: &Seen, namespace: &str) -> View {
        let clusters = seen.clusters.iter();
        let clusters = clusters.map(|(name, cluster)| (name.to_string(), canonical::settings(cluster)));
        let mut view = View { places: BTreeMap::new(), clusters: clusters.collect() };
        for listener in &seen.listeners {
            let address = &listener["address"]["socketAddress"];
            let port = address["portValue"].as_u64().unwrap_or_default();
            let bind = match address["address"].as_str().unwrap_or_default() {
                "0.0.0.0" | "::" => "",
                bind => bind,
            };
            for chain in list(&listener["filterChains"]) {
                let tables = |name: &str| seen.tables.get(name);
                let secure = !chain["transportSocket"].is_null();
                let hosts = hosts(chain, secure, tables);
                let service = Service { connection: canonical::connection(chain, namespace), hosts };
                let names: Vec<&str> =
                    list(&chain["filterChainMatch"]["serverNames"]).iter().filter_map(Json::as_str).collect();
                let names = if names.is_empty() { vec!["*"] } else { names };
                for sni in names {
                    let place = Place { port, bind: bind.to_owned(), secure, sni: sni.to_owned() };
                    view.places.insert(place, service.clone());
                }
            }
        }
        view
    }

    /// Adds what other proxies do. Where both do something, the hosts are joined.
    pub(super) fn join(&mut self, other: View) {
        self.clusters.extend(other.clusters);
        for (place, service) in other.places {
            match self.places.get_mut(&place) {
                Some(own) => {
                    for (name, host) in service.hosts {
                        let known = own.hosts.entry(name).or_default();
                        if known.routes.is_empty() {
                            *known = host;
                        } else {
                            known.routes.extend(host.routes);
                        }
                    }
                }
                None => {
                    self.places.insert(place, service);
                }
            }
        }
    }

    /// The clusters that routes and connections use.
    pub(super) fn used_clusters(&self) -> BTreeSet<String> {
        let hosts = self.places.values().flat_map(|service| service.hosts.values());
        let mut names = BTreeSet::new();
        hosts.flat_map(|host| &host.routes).for_each(|atom| cluster_names(&atom.action, &mut names));
        self.places.values().for_each(|service| cluster_names(&service.connection, &mut names));
        names
    }

    /// The service at a place. If several server names cover that of the place, the most specific one counts.
    pub(super) fn at(&self, place: &Place) -> Option<&Service> {
        let same = |other: &&Place| (other.port, &other.bind, other.secure) == (place.port, &place.bind, place.secure);
        let names = self.places.keys().filter(same).map(|other| other.sni.as_str());
        let sni = most_specific(names, &place.sni)?.to_owned();
        self.places.get(&Place { sni, ..place.clone() })
    }
}

impl Service {
    /// The virtual host for requests to a host.
    pub(super) fn host(&self, name: &str) -> Host {
        let found = most_specific(self.hosts.keys().map(String::as_str), name);
        found.and_then(|name| self.hosts.get(name)).cloned().unwrap_or_default()
    }
}

/// The most specific of the hosts that cover this one.
fn most_specific<'n>(hosts: impl Iterator<Item = &'n str>, name: &str) -> Option<&'n str> {
    let wanted = Hostname::parse(name).ok()?;
    let parsed = hosts.filter_map(|host| Hostname::parse(host).ok().map(|parsed| (parsed, host)));
    let covering = parsed.filter(|(parsed, _)| wanted.subset_of(parsed));
    covering.min_by(|(a, _), (b, _)| a.by_specificity(b)).map(|(_, host)| host)
}

/// The virtual hosts of a filter chain. Requests for another host than the SNI are left out.
fn hosts<'s>(chain: &Json, secure: bool, tables: impl Fn(&str) -> Option<&'s Json>) -> BTreeMap<String, Host> {
    let filters = list(&chain["filters"]).iter().map(|filter| &filter["typedConfig"]);
    let managers = filters.filter_map(|config| config["rds"]["routeConfigName"].as_str());
    let mut out = BTreeMap::new();
    for table in managers.filter_map(tables) {
        for host in list(&table["virtualHosts"]) {
            let routes = match host["requireTls"].as_str() {
                Some("ALL") => vec![Atom::https_redirect()],
                _ => list(&host["routes"]).iter().flat_map(|route| canonical::atoms(route, secure)).collect(),
            };
            let one = Host { settings: canonical::settings(host), routes };
            for domain in list(&host["domains"]).iter().filter_map(Json::as_str) {
                out.insert(domain.to_owned(), one.clone());
            }
        }
    }
    out
}

/// The clusters that an action names.
fn cluster_names(value: &Json, names: &mut BTreeSet<String>) {
    match value {
        Json::Object(fields) => fields.values().for_each(|value| cluster_names(value, names)),
        Json::Array(items) => items.iter().for_each(|item| cluster_names(item, names)),
        Json::String(text) if text.starts_with(OUTBOUND) => drop(names.insert(text.clone())),
        _ => {}
    }
}

/// The items of a list; none if it is absent.
pub(super) fn list(value: &Json) -> &[Json] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
