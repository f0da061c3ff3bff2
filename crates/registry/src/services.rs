//! Services: definitions per source object, merged per hostname and namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::istio::{Location, Resolution as EntryResolution, ServiceEntry};
use config::mesh::{Visibility, VisibilityMatch};
use config::multicluster::{ServiceImport, ServiceImportType};
use config::{Meta, Object, core};
use flow::{Index, Members, Reads, Relation, Rule};
use ipnet::IpNet;
use model::proxy::Labels;
use model::service::{Distribution, ExportTo, Registry, Resolution, Service, ServiceKey, ServicePort, TargetPort};
use names::Hostname;

use crate::cluster_local;
use crate::inputs::{Mesh, MeshSettings, Namespaces, ServiceObject, ServiceObjectKey, ServiceObjects};
use crate::joined::{joined, once_each};

/// Annotation of a core `Service` with the namespaces that may see it, comma separated.
const EXPORT_TO_ANNOTATION: &str = "networking.istio.io/exportTo";
/// How clients connect to a name that has several addresses.
const STRATEGY_ANNOTATION: &str = "istio.io/connect-strategy";
/// Annotation of a service or namespace with the endpoints that clients prefer.
const DISTRIBUTION_ANNOTATION: &str = "networking.istio.io/traffic-distribution";
/// Label of a ServiceEntry that wants no addresses.
const ASSIGN_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// The domain of services of the whole set of clusters.
const CLUSTER_SET: &str = "clusterset.local";

/// What one object defines: a service per hostname.
pub struct Definitions;

impl Relation for Definitions {
    const NAME: &'static str = "service definitions";
    type Key = ServiceObjectKey;
    type Row = Vec<Arc<Service>>;
}

impl Rule for Definitions {
    fn derive(cx: &Reads<'_>, key: &ServiceObjectKey) -> Option<Self::Row> {
        let object = cx.get::<ServiceObjects>(key)?;
        let mesh = cx.get::<Mesh>(&())?;
        let definitions = match &*object {
            ServiceObject::Kubernetes(o) => {
                let distribution = distribution(cx, key, &o.meta, &o.spec.traffic_distribution);
                from_kubernetes(key, o, &mesh, distribution).into_iter().collect()
            }
            ServiceObject::Import(o) => from_import(key, o, &mesh).into_iter().collect(),
            ServiceObject::Entry(o) => {
                let seen = (distribution(cx, key, &o.meta, ""), visibility(cx, key, &mesh));
                from_entry(key, o, &mesh, seen)
            }
        };
        Some(definitions)
    }
}

/// Objects that define a service of this hostname and namespace.
pub struct DefinitionsByService;

impl Relation for DefinitionsByService {
    const NAME: &'static str = "service definitions by service";
    type Key = ServiceKey;
    type Row = Members<ServiceObjectKey>;
}

impl Index for DefinitionsByService {
    type Of = Definitions;
    fn keys(_: &ServiceObjectKey, row: &Vec<Arc<Service>>) -> Vec<ServiceKey> {
        row.iter().map(|s| s.key.clone()).collect()
    }
}

/// All services. Of several definitions the one with [`Service::precedence`] holds; those of one Kubernetes service in
/// several clusters each have a say in what clients of their cluster dial, and ServiceEntries add their ports.
pub struct Services;

impl Relation for Services {
    const NAME: &'static str = "services";
    type Key = ServiceKey;
    type Row = Arc<Service>;
}

impl Rule for Services {
    fn derive(cx: &Reads<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
        let objects = cx.get::<DefinitionsByService>(key)?;
        let definitions = objects.iter().filter_map(|object| definition(cx, object, key));
        let mut all: Vec<Arc<Service>> = definitions.collect();
        all.sort_by(|a, b| a.precedence(b));
        let first = all.first()?.clone();
        if first.registry == Registry::ServiceEntry {
            return Some(joined(first, &all[1..]));
        }
        let same = all.iter().filter(|s| s.registry == Registry::Kubernetes);
        if first.registry != Registry::Kubernetes || same.clone().count() < 2 {
            return Some(first);
        }
        let mesh = cx.get::<Mesh>(&())?;
        let addresses = same.map(|s| (mesh.cluster_id_of(&s.cluster).clone(), s.addresses.clone()));
        let cluster_addresses: BTreeMap<_, _> = addresses.collect();
        // What has no address in one cluster may have one in another.
        let with_addresses = all.iter().find(|s| !s.addresses.is_empty()).filter(|_| !first.headless);
        Some(Arc::new(Service {
            addresses: with_addresses.map(|s| s.addresses.clone()).unwrap_or_default(),
            cluster_addresses: Arc::new(cluster_addresses),
            ..(*first).clone()
        }))
    }
}

/// Services of a hostname, in whatever namespace.
pub struct ServicesByHost;

impl Relation for ServicesByHost {
    const NAME: &'static str = "services by host";
    type Key = Hostname;
    type Row = Members<ServiceKey>;
}

impl Index for ServicesByHost {
    type Of = Services;
    fn keys(key: &ServiceKey, _: &Arc<Service>) -> Vec<Hostname> {
        vec![key.hostname.clone()]
    }
}

/// To whom services are exported.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Exported {
    /// To every namespace.
    All,
    /// To this namespace in particular.
    Namespace(Arc<str>),
}

/// Services by whom they are exported to.
pub struct ServicesByExport;

impl Relation for ServicesByExport {
    const NAME: &'static str = "services by export";
    type Key = Exported;
    type Row = Members<ServiceKey>;
}

impl Index for ServicesByExport {
    type Of = Services;
    fn keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<Exported> {
        match &row.export_to {
            ExportTo::All => vec![Exported::All],
            ExportTo::Namespaces(names) => names.iter().map(|n| Exported::Namespace(n.clone())).collect(),
        }
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Definitions, ServiceObjects>();
    b.index::<DefinitionsByService>();
    b.world::<Services, DefinitionsByService>();
    b.index::<ServicesByHost>();
    b.index::<ServicesByExport>();
}

/// Who may see an object: `values` as written (`*`, `.`, `~`, namespaces), or the mesh's default where empty.
pub fn export_to<S: AsRef<str>>(values: &[S], default: &[Arc<str>], namespace: &Arc<str>) -> ExportTo {
    let chosen: Vec<&str> = match values {
        [] => default.iter().map(|v| &**v).collect(),
        _ => values.iter().map(AsRef::as_ref).collect(),
    };
    if chosen.is_empty() || chosen.contains(&"*") {
        return ExportTo::All;
    }
    let named = chosen.into_iter().filter(|v| *v != "~");
    ExportTo::Namespaces(
        named
            .map(|v| if v == "." { namespace.clone() } else { Arc::from(v) })
            .collect(),
    )
}

/// What one object says of a service.
pub(crate) fn definition(cx: &Reads<'_>, object: &ServiceObjectKey, key: &ServiceKey) -> Option<Arc<Service>> {
    cx.with::<Definitions, _>(object, |all| all?.iter().find(|s| s.key == *key).cloned())
}

/// Which endpoints clients prefer: by the service's own field, else its annotation, else that of its namespace.
fn distribution(cx: &Reads<'_>, key: &ServiceObjectKey, meta: &Meta, field: &str) -> Distribution {
    let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
        "preferclose" | "prefersamezone" => Some(Distribution::SameZone),
        "prefersamenode" => Some(Distribution::SameNode),
        "any" => Some(Distribution::Any),
        _ => None,
    };
    let of_namespace = || {
        let namespace = (key.cluster.clone(), key.id.namespace.clone());
        cx.with::<Namespaces, _>(&namespace, |n| {
            n?.meta.annotation(DISTRIBUTION_ANNOTATION).and_then(parse)
        })
    };
    parse(field)
        .or_else(|| meta.annotation(DISTRIBUTION_ANNOTATION).and_then(parse))
        .or_else(of_namespace)
        .unwrap_or_default()
}

fn from_kubernetes(
    key: &ServiceObjectKey,
    object: &Object<core::Service>,
    mesh: &MeshSettings,
    distribution: Distribution,
) -> Option<Arc<Service>> {
    let (spec, meta) = (&object.spec, &object.meta);
    let hostname = Hostname::of_service(&key.id.name, &key.id.namespace, &mesh.domain).ok()?;
    let external = spec.kind == core::ServiceType::ExternalName;
    let headless = spec.is_headless();
    let alias_of = (external && !headless)
        .then(|| Hostname::parse(&spec.external_name).ok())
        .flatten();
    let annotated = meta
        .annotation(EXPORT_TO_ANNOTATION)
        .map(|text| text.split(',').map(str::trim).collect());
    let export: Vec<&str> = annotated.unwrap_or_default();
    let ports = spec.ports.iter().map(|p| ServicePort {
        number: p.port,
        name: p.name.clone(),
        protocol: p.kind(),
        target: p.target_port.as_ref().map(|t| match t {
            core::TargetPort::Number(number) => TargetPort::Number(*number),
            core::TargetPort::Name(name) => TargetPort::Name(name.clone()),
        }),
    });
    Some(Arc::new(Service {
        cluster_local: cluster_local::holds(mesh, &hostname),
        key: ServiceKey {
            hostname,
            namespace: key.id.namespace.clone(),
        },
        registry: Registry::Kubernetes,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        assigned: Vec::new(),
        cluster_addresses: Arc::default(),
        ports: sorted_ports(ports),
        addresses: spec
            .virtual_addresses()
            .filter_map(|ip| ip.parse::<IpAddr>().ok().map(IpNet::from))
            .collect(),
        resolution: match (&alias_of, headless) {
            (Some(_), _) => Resolution::Alias,
            (None, true) => Resolution::Passthrough,
            (None, false) => Resolution::Endpoints,
        },
        alias_of,
        headless,
        external,
        export_to: export_to(&export, &mesh.config.default_service_export_to, &key.id.namespace),
        subject_alt_names: Vec::new(),
        labels: meta.labels.clone(),
        created: meta.creation_timestamp.map(|t| t.unix_seconds()),
        node_local: spec.internal_traffic_policy == core::InternalTrafficPolicy::Local,
        publish_not_ready: spec.publish_not_ready_addresses,
        distribution,
    }))
}

/// A service of the whole set of clusters: a Kubernetes service by another name, with endpoints of all clusters that
/// export it.
fn from_import(key: &ServiceObjectKey, object: &Object<ServiceImport>, mesh: &MeshSettings) -> Option<Arc<Service>> {
    let (spec, meta) = (&object.spec, &object.meta);
    let hostname = Hostname::parse(&format!("{}.{}.svc.{CLUSTER_SET}", key.id.name, key.id.namespace)).ok()?;
    let headless = spec.kind == ServiceImportType::Headless;
    let ports = spec.ports.iter().map(|p| ServicePort {
        number: p.port,
        name: p.name.clone(),
        protocol: p.kind(),
        target: None,
    });
    Some(Arc::new(Service {
        key: ServiceKey {
            hostname,
            namespace: key.id.namespace.clone(),
        },
        registry: Registry::Kubernetes,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        ports: sorted_ports(ports),
        addresses: spec.ips.iter().filter_map(|ip| parse_net(ip)).collect(),
        assigned: Vec::new(),
        cluster_addresses: Arc::default(),
        resolution: if headless {
            Resolution::Passthrough
        } else {
            Resolution::Endpoints
        },
        alias_of: None,
        headless,
        external: false,
        export_to: export_to::<&str>(&[], &mesh.config.default_service_export_to, &key.id.namespace),
        subject_alt_names: Vec::new(),
        labels: meta.labels.clone(),
        created: meta.creation_timestamp.map(|t| t.unix_seconds()),
        node_local: false,
        publish_not_ready: false,
        cluster_local: false,
        distribution: Distribution::Any,
    }))
}

/// How far the mesh lets a ServiceEntry be seen (`serviceEntryVisibility`), by the labels of its namespace.
fn visibility(cx: &Reads<'_>, key: &ServiceObjectKey, mesh: &MeshSettings) -> Visibility {
    let Some(setting) = mesh
        .config
        .service_entry_visibility
        .as_ref()
        .filter(|s| s.apply_to_sidecars)
    else {
        return Visibility::Public;
    };
    let namespace = cx.get::<Namespaces>(&(key.cluster.clone(), key.id.namespace.clone()));
    let none = Labels::new();
    let labels = namespace.as_ref().map_or(&none, |namespace| &namespace.meta.labels);
    let holds = |rule: &VisibilityMatch| match rule {
        VisibilityMatch::NamespaceSelector(selector) => selector.matches(labels),
        VisibilityMatch::Nothing => false,
    };
    let policy = setting.policies.iter().find(|p| p.matching_rules.iter().all(holds));
    policy.map_or(setting.default_visibility, |p| p.visibility)
}

/// Who sees an object that the mesh lets be seen this far. It never widens what the object says.
fn narrowed(export: ExportTo, visibility: Visibility, namespace: &Arc<str>) -> ExportTo {
    match visibility {
        Visibility::Public | Visibility::Unspecified => export,
        Visibility::Namespace if export.includes(namespace) => {
            ExportTo::Namespaces(BTreeSet::from([namespace.clone()]))
        }
        Visibility::Namespace | Visibility::None => ExportTo::Namespaces(BTreeSet::new()),
    }
}

fn from_entry(
    key: &ServiceObjectKey,
    object: &Object<ServiceEntry>,
    mesh: &MeshSettings,
    (distribution, visibility): (Distribution, Visibility),
) -> Vec<Arc<Service>> {
    let spec = &object.spec;
    let resolution = match spec.resolution {
        EntryResolution::None => Resolution::Passthrough,
        EntryResolution::Static => Resolution::Endpoints,
        EntryResolution::Dns if races(&object.meta) => Resolution::DnsRace,
        EntryResolution::Dns => Resolution::Dns,
        EntryResolution::DnsRoundRobin => Resolution::DnsRoundRobin,
        EntryResolution::DynamicDns => Resolution::DynamicDns,
    };
    let ports = sorted_ports(spec.ports.iter().filter_map(|p| {
        let target = u16::try_from(p.target_port).ok()?;
        Some(ServicePort {
            number: u16::try_from(p.number).ok()?,
            name: p.name.clone(),
            protocol: p.kind(),
            target: (target != 0).then_some(TargetPort::Number(target)),
        })
    }));
    // Whatever name of a wildcard a request is for is looked up then; a name without is known beforehand.
    let of_host = |hostname: &Hostname| match resolution {
        Resolution::DynamicDns if !hostname.is_wildcard() => Resolution::Dns,
        resolution => resolution,
    };
    let service = |hostname: Hostname| Service {
        resolution: of_host(&hostname),
        assigned: assigned(object, mesh, &hostname),
        cluster_local: cluster_local::holds(mesh, &hostname),
        key: ServiceKey {
            hostname,
            namespace: key.id.namespace.clone(),
        },
        registry: Registry::ServiceEntry,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        cluster_addresses: Arc::default(),
        ports: ports.clone(),
        addresses: once_each(spec.addresses.iter().filter_map(|a| parse_net(a)).collect()),
        alias_of: None,
        headless: false,
        external: spec.location == Location::MeshExternal,
        export_to: narrowed(
            export_to(
                &spec.export_to,
                &mesh.config.default_service_export_to,
                &key.id.namespace,
            ),
            visibility,
            &key.id.namespace,
        ),
        subject_alt_names: spec.subject_alt_names.clone(),
        labels: object.meta.labels.clone(),
        created: object.meta.creation_timestamp.map(|t| t.unix_seconds()),
        node_local: false,
        publish_not_ready: false,
        distribution,
    };
    let hosts = spec.hosts.iter().filter_map(|h| Hostname::parse(h).ok());
    hosts.map(|hostname| Arc::new(service(hostname))).collect()
}

/// The addresses that a host of an entry was assigned, ascending; none where they could not be dialled or are not wanted.
fn assigned(object: &Object<ServiceEntry>, mesh: &MeshSettings, host: &Hostname) -> Vec<IpNet> {
    let Some(all) = object.meta.assigned.as_ref().filter(|_| mesh.assigned_addresses) else {
        return Vec::new();
    };
    let refused = object
        .meta
        .label(ASSIGN_LABEL)
        .is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let spec = &object.spec;
    if refused || !spec.addresses.is_empty() || spec.resolution == EntryResolution::None {
        return Vec::new();
    }
    let own = all
        .iter()
        .filter(|(of, _)| Hostname::parse(of).is_ok_and(|of| of == *host));
    let mut own: Vec<IpNet> = own.map(|(_, address)| IpNet::from(*address)).collect();
    own.sort_unstable();
    own.dedup();
    own
}

/// Whether connections to all addresses of a name are tried, and the first that stands is taken.
fn races(meta: &Meta) -> bool {
    meta.annotation(STRATEGY_ANNOTATION)
        .is_some_and(|strategy| strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT"))
}

/// An address or a CIDR block.
fn parse_net(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn sorted_ports(ports: impl Iterator<Item = ServicePort>) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = ports.collect();
    // The sort is stable: of two ports of one number the first written holds, the same way as lookups by number find it.
    ports.sort_by_key(|p| p.number);
    ports
}
