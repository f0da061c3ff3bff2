//! Services of ServiceEntries.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{Location, Resolution as EntryResolution, ServiceEntry};
use config::mesh::{Visibility, VisibilityMatch};
use config::{Meta, Object};
use flow::Reads;
use ipnet::IpNet;
use model::proxy::Labels;
use model::service::{Distribution, ExportTo, Registry, Resolution, Service, ServiceKey, ServicePort, TargetPort};
use names::Hostname;

use super::fields::{export_to, parse_net, sorted_ports};
use crate::cluster_local;
use crate::inputs::{MeshSettings, Namespaces, ServiceObjectKey};
use crate::joined::once_each;

/// Annotation that selects how clients connect to a name with several addresses.
const STRATEGY_ANNOTATION: &str = "istio.io/connect-strategy";
/// Label of a ServiceEntry that opts out of automatic addresses.
const ASSIGN_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// The maximum visibility of a ServiceEntry (`serviceEntryVisibility`), by the labels of its namespace.
pub(super) fn visibility(cx: &Reads<'_>, key: &ServiceObjectKey, mesh: &MeshSettings) -> Visibility {
    let Some(setting) = mesh.config.service_entry_visibility.as_ref().filter(|s| s.apply_to_sidecars) else {
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

pub(super) fn from_entry(
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
        key: ServiceKey { hostname, namespace: key.id.namespace.clone() },
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
            export_to(&spec.export_to, &mesh.config.default_service_export_to, &key.id.namespace),
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
    let Some(all) = object.meta.assigned().filter(|_| mesh.assigned_addresses) else {
        return Vec::new();
    };
    let refused = object.meta.label(ASSIGN_LABEL).is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let spec = &object.spec;
    if refused || !spec.addresses.is_empty() || spec.resolution == EntryResolution::None {
        return Vec::new();
    }
    let own = all.iter().filter(|(of, _)| Hostname::parse(of).is_ok_and(|of| of == *host));
    let mut own: Vec<IpNet> = own.map(|(_, address)| IpNet::from(*address)).collect();
    own.sort_unstable();
    own.dedup();
    own
}

/// Whether clients connect to all addresses of a name in parallel and use the first connection.
fn races(meta: &Meta) -> bool {
    meta.annotation(STRATEGY_ANNOTATION).is_some_and(|strategy| strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT"))
}
