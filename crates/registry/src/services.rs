//! Services: definitions per source object, merged by hostname and namespace.

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

/// Annotation of a core `Service` with the namespaces that it is exported to, comma separated.
const EXPORT_TO_ANNOTATION: &str = "networking.istio.io/exportTo";
/// Annotation that selects how clients connect to a name with several addresses.
const STRATEGY_ANNOTATION: &str = "istio.io/connect-strategy";
/// Annotation of a service or namespace with the preferred endpoints.
const DISTRIBUTION_ANNOTATION: &str = "networking.istio.io/traffic-distribution";
/// Label of a ServiceEntry that opts out of automatic addresses.
const ASSIGN_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// The domain of multi-cluster services.
const CLUSTER_SET: &str = "clusterset.local";

/// The services that one object defines, by hostname.
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

/// All services. Of several definitions the one with the highest [`Service::precedence`] wins. Definitions of one
/// Kubernetes service in several clusters add the addresses of their cluster, and ServiceEntries add ports.
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
        // A service without an address in one cluster may have one in another.
        let with_addresses = all.iter().find(|s| !s.addresses.is_empty()).filter(|_| !first.headless);
        Some(Arc::new(Service {
            addresses: with_addresses.map(|s| s.addresses.clone()).unwrap_or_default(),
            cluster_addresses: Arc::new(cluster_addresses),
            ..(*first).clone()
        }))
    }
}

/// Services of a hostname, in all namespaces.
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

/// The audience of an exported service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Exported {
    /// All namespaces.
    All,
    /// This namespace explicitly.
    Namespace(Arc<str>),
}

/// Services by the namespaces that they are exported to.
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

/// The namespaces that an object is exported to: `values` as written (`*`, `.`, `~`, namespaces), or the mesh's default
/// if empty.
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

/// One object's definition of a service.
pub(crate) fn definition(cx: &Reads<'_>, object: &ServiceObjectKey, key: &ServiceKey) -> Option<Arc<Service>> {
    cx.with::<Definitions, _>(object, |all| all?.iter().find(|s| s.key == *key).cloned())
}

/// The preferred endpoints: from the service's field, else its annotation, else its namespace's annotation.
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

/// A multi-cluster service: a Kubernetes service with another name and the endpoints of all clusters that export it.
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

/// The maximum visibility of a ServiceEntry (`serviceEntryVisibility`), by the labels of its namespace.
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

/// Restricts the visibility of an object to this maximum.
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
    // Names that match a wildcard are resolved on demand; a name without wildcard is known in advance.
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

/// The automatically assigned addresses of a host, ascending; none if they are disabled or could not be used.
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

/// Whether clients connect to all addresses of a name in parallel and use the first connection.
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
    // The sort is stable: of two ports with one number the first written wins, as in lookups by number.
    ports.sort_by_key(|p| p.number);
    ports
}
