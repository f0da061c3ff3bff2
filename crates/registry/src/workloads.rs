//! Workloads: pods and WorkloadEntries in one form, indexed by labels.

use std::net::IpAddr;
use std::sync::Arc;

use config::core::Pod;
use config::istio::WorkloadEntry;
use config::{Meta, Object, parse_bool};
use flow::Reads;
use model::mtls::labelled;
use model::proxy::{Labels, Locality, selects};
use model::service::{EndpointAddress, Health, ObjectId, Workload};

use crate::inputs::{Mesh, Nodes, WorkloadObject, WorkloadObjectKey, WorkloadObjects};
use crate::networks::place_of;

/// Pod labels that state the locality, in order of preference; `.` stands for `/`.
const LOCALITY_LABELS: [&str; 2] = ["topology.istio.io/locality", "istio-locality"];
/// Label of draining pods and WorkloadEntries, which finish their requests and get no new ones.
const DRAINING_LABEL: &str = "istio.io/draining";
/// Annotation of WorkloadEntries whose proxies report the health of the workload.
const HEALTH_CHECKED: &str = "proxy.istio.io/health-checks-enabled";
/// Node labels with region and zone, deprecated ones last.
const REGION_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const SUB_ZONE_LABELS: [&str; 1] = ["topology.istio.io/subzone"];

flow::rule! {
    /// Workloads that have an address.
    pub Workloads: WorkloadObjectKey => Arc<Workload> = "workloads", derive_workloads;
}

fn derive_workloads(cx: &Reads<'_>, key: &WorkloadObjectKey) -> Option<Arc<Workload>> {
    match &*cx.get::<WorkloadObjects>(key)? {
        WorkloadObject::Pod(pod) => from_pod(cx, key, pod),
        WorkloadObject::Entry(entry) => {
            let mut workload = from_entry(cx, &key.cluster, &key.id, &entry.spec, &entry.meta.labels);
            if workload.health == Health::Healthy && !is_healthy(cx, &entry.meta) {
                workload.health = Health::Unhealthy;
            }
            Some(workload)
        }
    }
    .map(Arc::new)
}

/// Index key of workloads.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Selectable {
    /// All workloads of a namespace.
    Namespace(Arc<str>),
    /// Workloads with this label.
    Label(Arc<str>, Arc<str>, Arc<str>),
}

flow::index! {
    /// Workloads by namespace and each of their labels.
    pub WorkloadsBySelectable: Selectable => members of Workloads = "workloads by label", workloads_by_selectable_keys;
}

fn workloads_by_selectable_keys(key: &WorkloadObjectKey, row: &Arc<Workload>) -> Vec<Selectable> {
    let namespace = &key.id.namespace;
    let labels = row.labels.iter().map(|(k, v)| Selectable::Label(namespace.clone(), k.clone(), v.clone()));
    labels.chain([Selectable::Namespace(namespace.clone())]).collect()
}

flow::index! {
    /// Pods by address, for endpoints without a reference to their pod.
    pub PodsByAddress: IpAddr => members of Workloads = "pods by address", pods_by_address_keys;
}

fn pods_by_address_keys(_: &WorkloadObjectKey, row: &Arc<Workload>) -> Vec<IpAddr> {
    // WorkloadEntries have no EndpointSlices.
    row.ips().filter(|_| row.pod).collect()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Workloads, WorkloadObjects>();
    b.index::<WorkloadsBySelectable>();
    b.index::<PodsByAddress>();
}

/// The workloads of a namespace with all these labels, ascending by key.
pub(crate) fn select(cx: &Reads<'_>, namespace: &Arc<str>, selector: &Labels) -> Vec<Arc<Workload>> {
    // The index of one label narrows the reads; the other labels are compared. Changes of other workloads then do not
    // affect the reader.
    let by = match selector.iter().next() {
        Some((k, v)) => Selectable::Label(namespace.clone(), k.clone(), v.clone()),
        None => Selectable::Namespace(namespace.clone()),
    };
    let found = cx.get::<WorkloadsBySelectable>(&by);
    let keys = found.iter().flat_map(|members| members.iter());
    keys.filter_map(|key| cx.get::<Workloads>(key).map(|w| (*w).clone()))
        .filter(|w| selects(selector, &w.labels))
        .collect()
}

/// Parses an endpoint's address: `unix://PATH`, an IP address or a DNS name.
pub(crate) fn parse_address(text: &str) -> EndpointAddress {
    if let Some(path) = text.strip_prefix("unix://") {
        return EndpointAddress::Unix(path.into());
    }
    match text.parse() {
        Ok(ip) => EndpointAddress::Ip(ip),
        Err(_) => EndpointAddress::Hostname(text.into()),
    }
}

/// The workload of a WorkloadEntry; `more` are the object's own labels, which the spec's labels override.
pub(crate) fn from_entry(
    cx: &Reads<'_>,
    cluster: &Arc<str>,
    id: &ObjectId,
    entry: &WorkloadEntry,
    more: &Labels,
) -> Workload {
    let mut labels = more.clone();
    labels.extend(entry.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
    let address = parse_address(&entry.address);
    let (cluster_id, network) = place_of(cx, cluster, &labels, &address);
    let network = if entry.network.is_empty() { network } else { entry.network.clone() };
    Workload {
        id: id.clone(),
        cluster: cluster.clone(),
        cluster_id,
        address,
        also: Vec::new(),
        // A workload with a service account has a sidecar unless a label says otherwise.
        mutual_tls: labelled(&labels).unwrap_or(!entry.service_account.is_empty()),
        health: drained(Health::Healthy, &labels),
        locality: locality_of(&entry.locality, &labels),
        labels: Arc::new(labels),
        ports: Arc::new(
            entry.ports.iter().filter_map(|(name, port)| Some((name.clone(), u16::try_from(*port).ok()?))).collect(),
        ),
        weight: entry.weight.max(1),
        network,
        service_account: entry.service_account.clone(),
        node: "".into(),
        pod: false,
    }
}

fn locality_of(stated: &str, labels: &Labels) -> Locality {
    if !stated.is_empty() {
        return Locality::parse(stated);
    }
    let labelled = LOCALITY_LABELS.iter().find_map(|name| labels.get(*name));
    labelled.map(|text| Locality::parse(&text.replace('.', "/"))).unwrap_or_default()
}

/// The health of a workload with these labels.
fn drained(health: Health, labels: &Labels) -> Health {
    match labels.get(DRAINING_LABEL) {
        Some(value) if !value.is_empty() => Health::Draining,
        _ => health,
    }
}

/// Whether a WorkloadEntry whose health is checked was reported as healthy. It is not before the first report.
fn is_healthy(cx: &Reads<'_>, meta: &Meta) -> bool {
    let checked = meta.annotation(HEALTH_CHECKED).and_then(parse_bool) == Some(true);
    !checked
        || meta.healthy() == Some(true)
        || cx.with::<Mesh, _>(&(), |mesh| mesh.is_some_and(|m| m.features.ignores_entry_health))
}

/// The locality of a node.
pub(crate) fn locality_of_node(cx: &Reads<'_>, cluster: &Arc<str>, node: &Arc<str>) -> Locality {
    if node.is_empty() {
        return Locality::default();
    }
    cx.with::<Nodes, _>(&(cluster.clone(), node.clone()), |node| {
        let label = |names: &[&str]| -> Arc<str> {
            let found = node.and_then(|node| names.iter().find_map(|name| node.meta.labels.get(*name)));
            found.cloned().unwrap_or_default()
        };
        Locality { region: label(&REGION_LABELS), zone: label(&ZONE_LABELS), sub_zone: label(&SUB_ZONE_LABELS) }
    })
}

fn from_pod(cx: &Reads<'_>, key: &WorkloadObjectKey, pod: &Object<Pod>) -> Option<Workload> {
    let (spec, labels) = (&pod.spec, &pod.meta.labels);
    // A terminated pod keeps its address in the status although another pod may use it now.
    if spec.is_terminal() {
        return None;
    }
    let mut ips = spec.addresses().filter_map(|ip| ip.parse::<IpAddr>().ok());
    let address = EndpointAddress::Ip(ips.next()?);
    let mut locality = locality_of("", labels);
    if locality.is_empty() {
        locality = locality_of_node(cx, &key.cluster, &spec.node_name);
    }
    let ports = spec.containers.iter().flat_map(|c| &c.ports).filter(|p| p.is_tcp() && !p.name.is_empty());
    let ready = if spec.is_ready() { Health::Healthy } else { Health::Unhealthy };
    let (cluster_id, network) = place_of(cx, &key.cluster, labels, &address);
    Some(Workload {
        id: key.id.clone(),
        cluster: key.cluster.clone(),
        network,
        cluster_id,
        address,
        also: ips.collect(),
        mutual_tls: labelled(labels) == Some(true),
        labels: Arc::new(labels.clone()),
        ports: Arc::new(ports.map(|p| (p.name.clone(), p.container_port)).collect()),
        locality,
        weight: 1,
        service_account: spec.service_account(),
        health: drained(ready, labels),
        node: spec.node_name.clone(),
        pod: true,
    })
}
