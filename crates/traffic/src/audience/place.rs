//! Where a proxy is, cut down to what somebody in the mesh asks: proxies of all nodes and zones share their endpoints as
//! long as no service, rule or network makes a difference between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::istio::{DestinationRule, LoadBalancerSettings, OutlierDetection, ZoneAwareLoadBalancerSetting};
use flow::{Index, Members, Reads, Relation};
use model::audience::{OwnWorkload, Place, TEMPLATE_LABELS};
use model::proxy::{Labels, Locality, Proxy};
use model::service::{Distribution, ObjectId, Resolution, Service, ServiceKey, Workload};
use registry::inputs::{DestinationRules, MeshSettings, ServiceObject, ServiceObjectKey, ServiceObjects};
use registry::{NetworkGateways, Services};

use crate::policy::preference::{is_known, label_of};

/// Something that endpoints may be chosen by.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Facet {
    /// The client's node.
    Node,
    /// The client's region, zone and sub-zone.
    Locality,
    /// A label of the client.
    Label(Arc<str>),
}

/// Services by what their endpoints are chosen by.
pub struct ServicesByFacet;

impl Relation for ServicesByFacet {
    const NAME: &'static str = "services by facet";
    type Key = Facet;
    type Row = Members<ServiceKey>;
}

impl Index for ServicesByFacet {
    type Of = Services;
    fn keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<Facet> {
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
}

/// DestinationRules by what they choose endpoints by.
pub struct RulesByFacet;

impl Relation for RulesByFacet {
    const NAME: &'static str = "destination rules by facet";
    type Key = Facet;
    type Row = Members<ObjectId>;
}

impl Index for RulesByFacet {
    type Of = DestinationRules;
    fn keys(_: &ObjectId, row: &Arc<Object<DestinationRule>>) -> Vec<Facet> {
        let mut facets = BTreeSet::new();
        let subsets = row.spec.subsets.iter().filter_map(|s| s.traffic_policy.as_ref());
        for policy in row.spec.traffic_policy.iter().chain(subsets) {
            add(
                &mut facets,
                policy.outlier_detection.as_ref(),
                policy.load_balancer.as_ref(),
            );
            for port in &policy.port_level_settings {
                add(
                    &mut facets,
                    port.outlier_detection.as_ref(),
                    port.load_balancer.as_ref(),
                );
            }
        }
        facets.into_iter().collect()
    }
}

/// Services whose endpoints come with their cluster, as Envoy itself resolves their names.
pub struct ServicesByDns;

impl Relation for ServicesByDns {
    const NAME: &'static str = "services resolved by dns";
    type Key = ();
    type Row = Members<ServiceKey>;
}

impl Index for ServicesByDns {
    type Of = Services;
    fn keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
        match row.resolution {
            Resolution::Dns => vec![()],
            _ => Vec::new(),
        }
    }
}

/// Services that were assigned addresses; to know whether there are any.
pub struct ServicesWithAssigned;

impl Relation for ServicesWithAssigned {
    const NAME: &'static str = "services with assigned addresses";
    type Key = ();
    type Row = Members<ServiceKey>;
}

impl Index for ServicesWithAssigned {
    type Of = Services;
    fn keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
        match row.assigned.is_empty() {
            true => Vec::new(),
            false => vec![()],
        }
    }
}

/// Clusters by the services that they define; to know whether there are several.
pub struct ClustersOfServices;

impl Relation for ClustersOfServices {
    const NAME: &'static str = "clusters of services";
    type Key = Arc<str>;
    type Row = Members<ServiceObjectKey>;
}

impl Index for ClustersOfServices {
    type Of = ServiceObjects;
    fn keys(key: &ServiceObjectKey, _: &ServiceObject) -> Vec<Arc<str>> {
        // Most meshes have one cluster, of which nothing needs to be known.
        Some(key.cluster.clone())
            .filter(|c| !c.is_empty())
            .into_iter()
            .collect()
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<ServicesByFacet>();
    b.index::<ServicesByDns>();
    b.index::<ServicesWithAssigned>();
    b.index::<RulesByFacet>();
    b.index::<ClustersOfServices>();
}

/// The id of a proxy's cluster; empty while all services are of one cluster.
pub(super) fn cluster(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshSettings) -> Arc<str> {
    if cx.keys::<ClustersOfServices>().is_empty() {
        return Arc::default();
    }
    match proxy.cluster_id.is_empty() {
        true => mesh.cluster_id.clone(),
        false => proxy.cluster_id.clone(),
    }
}

/// That part of a proxy's place which its clusters may depend on: nothing, unless some have their endpoints with them.
pub(super) fn of_clusters(cx: &Reads<'_>, place: &Place) -> Place {
    if cx.keys::<ServicesByDns>().is_empty() {
        return Place::default();
    }
    Place {
        locality: place.locality.clone(),
        labels: place.labels.clone(),
        ..Place::default()
    }
}

/// What `local_cluster` is to a proxy that asks for it: the instances of its own workload, of the service that leads to
/// it first.
pub(super) fn own(
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

/// Where a proxy is; what its pod says goes before what it says itself.
pub(super) fn of(cx: &Reads<'_>, proxy: &Proxy, pod: Option<&Workload>, mesh: &MeshSettings) -> Place {
    let facets = asked(cx, mesh);
    let networks = cx
        .get::<NetworkGateways>(&())
        .is_some_and(|gateways| !gateways.is_empty());
    let mut place = Place {
        networks: proxy.network_view.clone(),
        ..Place::default()
    };
    if networks || facets.contains(&Facet::Locality) {
        place.network = proxy.network.clone();
    }
    if facets.contains(&Facet::Node) {
        let known = pod.map(|pod| &pod.node).filter(|node| !node.is_empty());
        place.node = known.unwrap_or(&proxy.node).clone();
    }
    if facets.contains(&Facet::Locality) {
        place.locality = locality(proxy, pod).clone();
    }
    let labels = pod.map_or(&proxy.labels, |pod| &pod.labels);
    let named = facets.iter().filter_map(|facet| match facet {
        Facet::Label(name) => labels.get_key_value(name),
        _ => None,
    });
    place.labels = named
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Labels>();
    place
}

/// The locality of a proxy: its pod's, else what it says itself.
fn locality<'a>(proxy: &'a Proxy, pod: Option<&'a Workload>) -> &'a Locality {
    let known = pod.map(|pod| &pod.locality).filter(|locality| !locality.is_empty());
    known.unwrap_or(&proxy.locality)
}

/// All that endpoints are chosen by anywhere in the mesh.
fn asked(cx: &Reads<'_>, mesh: &MeshSettings) -> BTreeSet<Facet> {
    let mut facets: BTreeSet<Facet> = cx.keys::<ServicesByFacet>().iter().cloned().collect();
    facets.extend(cx.keys::<RulesByFacet>().iter().cloned());
    let config = &mesh.config;
    let outlier = config
        .default_traffic_policy
        .as_ref()
        .and_then(|p| p.outlier_detection.as_ref());
    add(&mut facets, outlier, None);
    if let Some(setting) = &config.locality_lb_setting {
        add_setting(&mut facets, setting);
    }
    if let Some(setting) = &config.zone_aware_lb_setting {
        add_zone_aware(&mut facets, setting);
    }
    facets
}

fn add(facets: &mut BTreeSet<Facet>, outlier: Option<&OutlierDetection>, lb: Option<&LoadBalancerSettings>) {
    // Whoever notices what fails can turn to other localities.
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
