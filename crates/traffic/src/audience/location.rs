//! Location of a proxy, reduced to the facts that endpoints depend on: without such a dependency, proxies of all nodes and
//! zones share their endpoints.
//!
//! A fact that only a few services need is no part of the location by which the proxies of the mesh share the endpoints of
//! all others ([`Locations`]). One service with endpoints on the client's node costs one resource per node, whatever the
//! number of services.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::istio::{DestinationRule, LoadBalancerSettings, OutlierDetection, ZoneAwareLoadBalancerSetting};
use flow::Reads;
use model::audience::{ClientLocation, OwnWorkload, TEMPLATE_LABELS};
use model::proxy::{Labels, Locality, Proxy};
use model::service::{Distribution, ObjectId, Resolution, Service, ServiceKey, Workload};
use names::Hostname;
use registry::inputs::{DestinationRules, Mesh, MeshSettings, ServiceObject, ServiceObjectKey, ServiceObjects};
use registry::{NetworkGateways, Services, ServicesByHost};

use crate::clusters::by_dns;
use crate::policy::DestinationRuleSummaries;
use crate::policy::preference::{is_known, label_of};

/// The maximum number of hosts that need a fact for which it is not part of the location of all endpoints.
const FEW: usize = 32;

/// A client fact by which endpoints may be selected or prioritized.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Facet {
    /// The client's node.
    Node,
    /// The client's region, zone and sub-zone.
    Locality,
    /// A label of the client.
    Label(Arc<str>),
}

flow::index! {
    /// Services by the client facts that their endpoints depend on.
    pub ServicesByFacet: Facet => members of Services = "services by facet", services_by_facet_keys;
}

fn services_by_facet_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<Facet> {
    let mut facets = match row.distribution {
        Distribution::Any => Vec::new(),
        Distribution::SameZone => vec![Facet::Locality],
        Distribution::SameNode => vec![Facet::Locality, Facet::Node],
    };
    if row.node_local && row.distribution != Distribution::SameNode {
        facets.push(Facet::Node);
    }
    facets
}

flow::index! {
    /// DestinationRules by the client facts that their load balancing depends on.
    pub RulesByFacet: Facet => members of DestinationRules = "destination rules by facet", rules_by_facet_keys;
}

fn rules_by_facet_keys(_: &ObjectId, row: &Arc<Object<DestinationRule>>) -> Vec<Facet> {
    let mut facets = BTreeSet::new();
    let subsets = row.spec.subsets.iter().filter_map(|s| s.traffic_policy.as_ref());
    for policy in row.spec.traffic_policy.iter().chain(subsets) {
        add(&mut facets, policy.outlier_detection.as_ref(), policy.load_balancer.as_ref());
        for port in &policy.port_level_settings {
            add(&mut facets, port.outlier_detection.as_ref(), port.load_balancer.as_ref());
        }
    }
    facets.into_iter().collect()
}

flow::index! {
    /// Services that Envoy resolves by DNS, whose endpoints are part of the cluster.
    pub ServicesByDns: () => members of Services = "services resolved by dns", services_by_dns_keys;
}

fn services_by_dns_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    match row.resolution {
        Resolution::Dns => vec![()],
        _ => Vec::new(),
    }
}

flow::index! {
    /// Cluster-local services that Envoy resolves by DNS, to know whether there are any.
    LocalServicesByDns: () => members of Services = "cluster-local services resolved by dns", local_services_by_dns_keys;
}

fn local_services_by_dns_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    match row.cluster_local && by_dns(row.resolution) {
        true => vec![()],
        false => Vec::new(),
    }
}

flow::index! {
    /// Services with automatically assigned addresses, to know whether there are any.
    pub ServicesWithAssigned: () => members of Services = "services with assigned addresses", services_with_assigned_keys;
}

fn services_with_assigned_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    match row.assigned.is_empty() {
        true => Vec::new(),
        false => vec![()],
    }
}

flow::index! {
    /// Clusters by the services that they define, to know whether there are several.
    pub ClustersOfServices: Arc<str> => members of ServiceObjects = "clusters of services", clusters_of_services_keys;
}

fn clusters_of_services_keys(key: &ServiceObjectKey, _: &ServiceObject) -> Vec<Arc<str>> {
    // The configuration cluster does not count.
    Some(key.cluster.clone()).filter(|c| !c.is_empty()).into_iter().collect()
}

flow::rule! {
    /// The client facts that endpoints of the mesh depend on.
    ClientFacets: () => Facets = "client facets", derive_client_facets;
}

/// Client facts that endpoints depend on.
#[derive(Clone, PartialEq, Debug, Default)]
struct Facets {
    /// Facts that the endpoints of many services depend on.
    many: BTreeSet<Facet>,
    /// All.
    all: BTreeSet<Facet>,
    /// The hosts whose endpoints depend on others than those of many services.
    hosts: Arc<BTreeSet<Arc<str>>>,
    /// Whether Envoy resolves one of these hosts by DNS.
    few_by_dns: bool,
}

fn derive_client_facets(cx: &Reads<'_>, (): &()) -> Option<Facets> {
    let mesh = cx.get::<Mesh>(&())?;
    let many = facets_of_settings(&mesh);
    let mut facets = Facets { all: many.clone(), many, ..Facets::default() };
    let mut hosts: BTreeSet<Hostname> = BTreeSet::new();
    for facet in cx.keys::<ServicesByFacet>().iter().chain(cx.keys::<RulesByFacet>().iter()) {
        if !facets.all.insert(facet.clone()) {
            continue;
        }
        match hosts_of(cx, facet) {
            None => drop(facets.many.insert(facet.clone())),
            Some(own) => hosts.extend(own),
        }
    }
    let by_dns = |key: &ServiceKey| {
        cx.with::<Services, _>(key, |service| service.is_some_and(|service| service.resolution == Resolution::Dns))
    };
    facets.few_by_dns =
        hosts.iter().filter_map(|host| cx.get::<ServicesByHost>(host)).any(|services| services.iter().any(by_dns));
    facets.hosts = Arc::new(hosts.iter().map(|host| host.as_arc().clone()).collect());
    Some(facets)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<ServicesByFacet>();
    b.index::<ServicesByDns>();
    b.index::<LocalServicesByDns>();
    b.index::<ServicesWithAssigned>();
    b.index::<RulesByFacet>();
    b.index::<ClustersOfServices>();
    b.view::<ClientFacets>();
}

/// The id of a proxy's cluster; empty while all services are in one cluster.
pub(super) fn cluster(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshSettings) -> Arc<str> {
    if cx.keys::<ClustersOfServices>().is_empty() {
        return Arc::default();
    }
    match proxy.cluster_id.is_empty() {
        true => mesh.cluster_id.clone(),
        false => proxy.cluster_id.clone(),
    }
}

/// Whether clusters that contain their endpoints depend on the cluster of the proxy.
pub(super) fn matters_to_clusters(cx: &Reads<'_>) -> bool {
    !cx.keys::<LocalServicesByDns>().is_empty()
}

/// The instances of a proxy's own workload for `local_cluster`, if the proxy requests it.
pub(super) fn own_workload(
    proxy: &Proxy,
    pod: Option<&Workload>,
    service: impl FnOnce() -> Option<(ServiceKey, u16)>,
) -> Option<OwnWorkload> {
    let workload = proxy.own_workload.clone()?;
    let (service, port) = service()?;
    let labels = pod.map_or(&proxy.labels, |pod| &pod.labels);
    let template = |name: &str| labels.get(name).cloned().unwrap_or_default();
    Some(OwnWorkload {
        service,
        port,
        workload,
        templates: TEMPLATE_LABELS.map(template),
        region: locality(proxy, pod).region.clone(),
    })
}

/// The location of a proxy, for the endpoints of different clusters.
pub(super) struct Locations {
    /// For most endpoints: the facts that many services depend on.
    pub(super) shared: Arc<ClientLocation>,
    /// For the endpoints of a few hosts, which depend on more facts. None if the proxy has no more facts.
    pub(super) own: Option<OwnLocation>,
    /// For clusters that contain their endpoints; empty unless there are some.
    pub(super) clusters: Arc<ClientLocation>,
}

/// The location of a proxy for the endpoints of a few hosts.
#[derive(Clone)]
pub(super) struct OwnLocation {
    pub(super) location: Arc<ClientLocation>,
    pub(super) hosts: Arc<BTreeSet<Arc<str>>>,
}

/// The location of a proxy. Facts of its pod override those that the proxy reports.
pub(super) fn of(cx: &Reads<'_>, proxy: &Proxy, pod: Option<&Workload>) -> Locations {
    let row = cx.get::<ClientFacets>(&());
    let none = Facets::default();
    let facets = row.as_deref().unwrap_or(&none);
    let shared = located(cx, proxy, pod, &facets.many);
    let own = located(cx, proxy, pod, &facets.all);
    let dns = !cx.keys::<ServicesByDns>().is_empty();
    let clusters = match (dns, facets.few_by_dns) {
        (false, _) => ClientLocation::default(),
        (true, false) => in_cluster(&shared),
        (true, true) => in_cluster(&own),
    };
    Locations {
        own: (own != shared).then(|| OwnLocation { location: Arc::new(own), hosts: facets.hosts.clone() }),
        shared: Arc::new(shared),
        clusters: Arc::new(clusters),
    }
}

/// The part of a location that clusters with their endpoints depend on.
fn in_cluster(location: &ClientLocation) -> ClientLocation {
    ClientLocation { locality: location.locality.clone(), labels: location.labels.clone(), ..ClientLocation::default() }
}

/// The location of a proxy with these facts.
fn located(cx: &Reads<'_>, proxy: &Proxy, pod: Option<&Workload>, facets: &BTreeSet<Facet>) -> ClientLocation {
    let networks = cx.get::<NetworkGateways>(&()).is_some_and(|gateways| !gateways.is_empty());
    let mut location = ClientLocation { networks: proxy.network_view.clone(), ..ClientLocation::default() };
    if networks || facets.contains(&Facet::Locality) {
        location.network = proxy.network.clone();
    }
    if facets.contains(&Facet::Node) {
        let known = pod.map(|pod| &pod.node).filter(|node| !node.is_empty());
        location.node = known.unwrap_or(&proxy.node).clone();
    }
    if facets.contains(&Facet::Locality) {
        location.locality = locality(proxy, pod).clone();
    }
    let labels = pod.map_or(&proxy.labels, |pod| &pod.labels);
    let named = facets.iter().filter_map(|facet| match facet {
        Facet::Label(name) => labels.get_key_value(name),
        _ => None,
    });
    location.labels = named.map(|(name, value)| (name.clone(), value.clone())).collect::<Labels>();
    location
}

/// The locality of a proxy: its pod's, else the reported one.
fn locality<'a>(proxy: &'a Proxy, pod: Option<&'a Workload>) -> &'a Locality {
    let known = pod.map(|pod| &pod.locality).filter(|locality| !locality.is_empty());
    known.unwrap_or(&proxy.locality)
}

/// The client facts of the mesh's settings, on which all endpoints depend.
fn facets_of_settings(mesh: &MeshSettings) -> BTreeSet<Facet> {
    let mut facets = BTreeSet::new();
    let config = &mesh.config;
    let outlier = config.default_traffic_policy.as_ref().and_then(|p| p.outlier_detection.as_ref());
    add(&mut facets, outlier, None);
    if let Some(setting) = &config.locality_lb_setting {
        add_setting(&mut facets, setting);
    }
    if let Some(setting) = &config.zone_aware_lb_setting {
        add_zone_aware(&mut facets, setting);
    }
    facets
}

/// The hosts whose endpoints depend on a fact; `None` if there are many.
fn hosts_of(cx: &Reads<'_>, facet: &Facet) -> Option<BTreeSet<Hostname>> {
    let services = cx.get::<ServicesByFacet>(facet);
    let rules = cx.get::<RulesByFacet>(facet);
    if services.as_ref().map_or(0, |row| row.len()) + rules.as_ref().map_or(0, |row| row.len()) > FEW {
        return None;
    }
    let services = services.iter().flat_map(|row| row.iter()).map(|key| key.hostname.clone());
    let summaries = rules.iter().flat_map(|row| row.iter()).filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
    let hosts: BTreeSet<Hostname> = services.chain(summaries.map(|rule| rule.host.clone())).collect();
    // A rule for a wildcard is for many hosts.
    hosts.iter().all(|host| !host.is_wildcard()).then_some(hosts)
}

fn add(facets: &mut BTreeSet<Facet>, outlier: Option<&OutlierDetection>, lb: Option<&LoadBalancerSettings>) {
    // Outlier detection enables failover to other localities.
    if outlier.is_some() {
        facets.insert(Facet::Locality);
    }
    if let Some(setting) = lb.and_then(|lb| lb.locality_lb_setting.as_ref()) {
        add_setting(facets, setting);
    }
    if let Some(setting) = lb.and_then(|lb| lb.zone_aware_lb_setting.as_ref()) {
        add_zone_aware(facets, setting);
    }
}

fn add_zone_aware(facets: &mut BTreeSet<Facet>, setting: &ZoneAwareLoadBalancerSetting) {
    if setting.enabled != Some(false) {
        facets.insert(Facet::Locality);
        add_labels(facets, &setting.failover_priority);
    }
}

fn add_setting(facets: &mut BTreeSet<Facet>, setting: &config::istio::LocalityLoadBalancerSetting) {
    if !setting.distribute.is_empty() || !setting.failover.is_empty() {
        facets.insert(Facet::Locality);
    }
    add_labels(facets, &setting.failover_priority);
}

fn add_labels(facets: &mut BTreeSet<Facet>, priority: &[Arc<str>]) {
    for name in priority.iter().map(|text| label_of(text)) {
        match name {
            "kubernetes.io/hostname" => drop(facets.insert(Facet::Node)),
            name if is_known(name) => drop(facets.insert(Facet::Locality)),
            _ => {}
        }
        facets.insert(Facet::Label(name.into()));
    }
}
