//! Workloads: pods and WorkloadEntries as one kind of thing, and who can be found by which label.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Index, Members, Reads, Relation, Rule};
use model::proxy::{Labels, Locality};
use model::service::{EndpointAddress, Health, ObjectId, Workload};
use resources::Object;
use resources::core::Pod;
use resources::istio::WorkloadEntry;

use crate::inputs::{Nodes, WorkloadObject, WorkloadObjectKey, WorkloadObjects};

/// Pod labels that state the locality, in order of preference; `.` stands for `/`.
const LOCALITY_LABELS: [&str; 2] = ["topology.istio.io/locality", "istio-locality"];
/// Label of pods and WorkloadEntries that names their network.
const NETWORK_LABEL: &str = "topology.istio.io/network";

/// Workloads that have an address.
pub struct Workloads;

impl Relation for Workloads {
    const NAME: &'static str = "workloads";
    type Key = WorkloadObjectKey;
    type Row = Arc<Workload>;
}

impl Rule for Workloads {
    fn derive(cx: &Reads<'_>, key: &WorkloadObjectKey) -> Option<Arc<Workload>> {
        match &*cx.get::<WorkloadObjects>(key)? {
            WorkloadObject::Pod(pod) => from_pod(cx, &key.id, pod),
            WorkloadObject::Entry(entry) => Some(from_entry(&key.id, &entry.spec, &entry.meta.labels)),
        }
        .map(Arc::new)
    }
}

/// What finds workloads: a namespace and a label, or a namespace alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Selectable {
    /// All of a namespace.
    Namespace(Arc<str>),
    /// Those of a namespace with this label.
    Label(Arc<str>, Arc<str>, Arc<str>),
}

/// Workloads by namespace and by each of their labels.
pub struct WorkloadsBySelectable;

impl Relation for WorkloadsBySelectable {
    const NAME: &'static str = "workloads by label";
    type Key = Selectable;
    type Row = Members<WorkloadObjectKey>;
}

impl Index for WorkloadsBySelectable {
    type Of = Workloads;
    fn keys(key: &WorkloadObjectKey, row: &Arc<Workload>) -> Vec<Selectable> {
        let namespace = &key.id.namespace;
        let labels = row
            .labels
            .iter()
            .map(|(k, v)| Selectable::Label(namespace.clone(), k.clone(), v.clone()));
        labels.chain([Selectable::Namespace(namespace.clone())]).collect()
    }
}

/// Pods by address, for endpoints that do not name their pod.
pub struct PodsByAddress;

impl Relation for PodsByAddress {
    const NAME: &'static str = "pods by address";
    type Key = IpAddr;
    type Row = Members<WorkloadObjectKey>;
}

impl Index for PodsByAddress {
    type Of = Workloads;
    fn keys(_: &WorkloadObjectKey, row: &Arc<Workload>) -> Vec<IpAddr> {
        match (row.pod, &row.address) {
            (true, EndpointAddress::Ip(ip)) => vec![*ip],
            _ => Vec::new(),
        }
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Workloads, WorkloadObjects>();
    b.index::<WorkloadsBySelectable>();
    b.index::<PodsByAddress>();
}

/// The workloads of a namespace that have all these labels, in order of their keys.
pub(crate) fn select(cx: &Reads<'_>, namespace: &Arc<str>, selector: &Labels) -> Vec<Arc<Workload>> {
    // One label narrows the reads; the rest is compared. Other workloads' changes then stay out of the reader.
    let by = match selector.iter().next() {
        Some((k, v)) => Selectable::Label(namespace.clone(), k.clone(), v.clone()),
        None => Selectable::Namespace(namespace.clone()),
    };
    let found = cx.get::<WorkloadsBySelectable>(&by);
    let keys = found.iter().flat_map(|members| members.iter());
    keys.filter_map(|key| cx.get::<Workloads>(key).map(|w| (*w).clone()))
        .filter(|w| selector.iter().all(|(k, v)| w.labels.get(k) == Some(v)))
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

/// What an entry says of a workload; `more` are the object's own labels, which the spec's override.
pub(crate) fn from_entry(id: &ObjectId, entry: &WorkloadEntry, more: &Labels) -> Workload {
    let mut labels = more.clone();
    labels.extend(entry.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
    let network = if entry.network.is_empty() {
        labels.get(NETWORK_LABEL).cloned().unwrap_or_else(|| "".into())
    } else {
        entry.network.clone()
    };
    Workload {
        id: id.clone(),
        address: parse_address(&entry.address),
        locality: locality_of(&entry.locality, &labels),
        labels: Arc::new(labels),
        ports: Arc::new(
            entry
                .ports
                .iter()
                .filter_map(|(name, port)| Some((name.clone(), u16::try_from(*port).ok()?)))
                .collect(),
        ),
        weight: entry.weight.max(1),
        network,
        service_account: entry.service_account.clone(),
        health: Health::Healthy,
        node: "".into(),
        pod: false,
    }
}

fn locality_of(stated: &str, labels: &Labels) -> Locality {
    if !stated.is_empty() {
        return Locality::parse(stated);
    }
    let labelled = LOCALITY_LABELS.iter().find_map(|name| labels.get(*name));
    labelled
        .map(|text| Locality::parse(&text.replace('.', "/")))
        .unwrap_or_default()
}

fn from_pod(cx: &Reads<'_>, id: &ObjectId, pod: &Object<Pod>) -> Option<Workload> {
    let (spec, labels) = (&pod.spec, &pod.meta.labels);
    // A pod that has ended keeps its address in the status although another pod may have it now.
    if spec.is_terminal() {
        return None;
    }
    let ip: IpAddr = spec.addresses().next()?.parse().ok()?;
    let mut locality = locality_of("", labels);
    if locality.is_empty()
        && let Some(node) = cx.get::<Nodes>(&spec.node_name)
    {
        let label = |name: &str| node.meta.labels.get(name).cloned().unwrap_or_else(|| "".into());
        locality = Locality {
            region: label("topology.kubernetes.io/region"),
            zone: label("topology.kubernetes.io/zone"),
            sub_zone: label("topology.istio.io/subzone"),
        };
    }
    let ports = spec
        .containers
        .iter()
        .flat_map(|c| &c.ports)
        .filter(|p| p.is_tcp() && !p.name.is_empty());
    Some(Workload {
        id: id.clone(),
        address: EndpointAddress::Ip(ip),
        labels: Arc::new(labels.clone()),
        ports: Arc::new(ports.map(|p| (p.name.clone(), p.container_port)).collect()),
        locality,
        weight: 1,
        network: labels.get(NETWORK_LABEL).cloned().unwrap_or_else(|| "".into()),
        service_account: spec.service_account(),
        health: if spec.is_ready() {
            Health::Healthy
        } else {
            Health::Unhealthy
        },
        node: spec.node_name.clone(),
        pod: true,
    })
}
