//! Definitions of services in single objects.

use std::net::IpAddr;
use std::sync::Arc;

use config::multicluster::{ServiceImport, ServiceImportType};
use config::{Meta, Object, core};
use flow::Reads;
use ipnet::IpNet;
use model::service::{Distribution, Registry, Resolution, Service, ServiceKey, ServicePort, TargetPort};
use names::Hostname;

use super::entries::{from_entry, visibility};
use super::fields::{export_to, parse_net, sorted_ports};
use crate::inputs::{Mesh, MeshSettings, Namespaces, ServiceObject, ServiceObjectKey, ServiceObjects};
use crate::{cluster_local, pools};

/// Annotation of a core `Service` with the namespaces that it is exported to, comma separated.
const EXPORT_TO_ANNOTATION: &str = "networking.istio.io/exportTo";
/// Annotation of a service or namespace with the preferred endpoints.
const DISTRIBUTION_ANNOTATION: &str = "networking.istio.io/traffic-distribution";

/// Annotation of a core `Service` with further identities of its workloads, comma separated.
const IDENTITIES_ANNOTATION: &str = "alpha.istio.io/canonical-serviceaccounts";
/// Annotation of a core `Service` with further service accounts of its namespace, comma separated.
const ACCOUNTS_ANNOTATION: &str = "alpha.istio.io/kubernetes-serviceaccounts";

/// The domain of multi-cluster services.
const CLUSTER_SET: &str = "clusterset.local";

flow::rule! {
    /// The services that one object defines, by hostname.
    pub Definitions: ServiceObjectKey => Vec<Arc<Service>> = "service definitions", derive_definitions;
}

fn derive_definitions(cx: &Reads<'_>, key: &ServiceObjectKey) -> Option<Vec<Arc<Service>>> {
    let object = cx.get::<ServiceObjects>(key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let definitions = match &*object {
        ServiceObject::Kubernetes(o) => {
            let distribution = distribution(cx, key, &o.meta, &o.spec.traffic_distribution);
            from_kubernetes(key, o, &mesh, distribution).into_iter().collect()
        }
        ServiceObject::Import(o) => from_import(key, o, &mesh).into_iter().collect(),
        ServiceObject::Pool(o) => pools::definition(key, o, &mesh.domain).into_iter().collect(),
        ServiceObject::Entry(o) => {
            let seen = (distribution(cx, key, &o.meta, ""), visibility(cx, key, &mesh));
            from_entry(key, o, &mesh, seen)
        }
    };
    Some(definitions)
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
        cx.with::<Namespaces, _>(&namespace, |n| n?.meta.annotation(DISTRIBUTION_ANNOTATION).and_then(parse))
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
    let alias_of = (external && !headless).then(|| Hostname::parse(&spec.external_name).ok()).flatten();
    let annotated = meta.annotation(EXPORT_TO_ANNOTATION).map(|text| text.split(',').map(str::trim).collect());
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
        key: ServiceKey { hostname, namespace: key.id.namespace.clone() },
        registry: Registry::Kubernetes,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        assigned: Vec::new(),
        cluster_addresses: Arc::default(),
        ports: sorted_ports(ports),
        addresses: spec.virtual_addresses().filter_map(|ip| ip.parse::<IpAddr>().ok().map(IpNet::from)).collect(),
        resolution: match (&alias_of, headless) {
            (Some(_), _) => Resolution::Alias,
            (None, true) => Resolution::Passthrough,
            (None, false) => Resolution::Endpoints,
        },
        alias_of,
        headless,
        external,
        export_to: export_to(&export, &mesh.config.default_service_export_to, &key.id.namespace),
        subject_alt_names: identities(meta, &key.id.namespace, mesh),
        labels: meta.labels.clone(),
        created: meta.creation_timestamp.map(|t| t.unix_seconds()),
        node_local: spec.internal_traffic_policy == core::InternalTrafficPolicy::Local,
        publish_not_ready: spec.publish_not_ready_addresses,
        distribution,
    }))
}

/// The identities that annotations add to those of a service's endpoints.
fn identities(meta: &Meta, namespace: &str, mesh: &MeshSettings) -> Vec<Arc<str>> {
    let listed = |name| {
        let texts = meta.annotation(name).into_iter().flat_map(|text| text.split(','));
        texts.map(str::trim).filter(|text| !text.is_empty())
    };
    let domain = &mesh.config.trust_domain;
    let accounts = listed(ACCOUNTS_ANNOTATION);
    let accounts = accounts.map(|account| format!("spiffe://{domain}/ns/{namespace}/sa/{account}").into());
    listed(IDENTITIES_ANNOTATION).map(Arc::from).chain(accounts).collect()
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
        key: ServiceKey { hostname, namespace: key.id.namespace.clone() },
        registry: Registry::Kubernetes,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        ports: sorted_ports(ports),
        addresses: spec.ips.iter().filter_map(|ip| parse_net(ip)).collect(),
        assigned: Vec::new(),
        cluster_addresses: Arc::default(),
        resolution: if headless { Resolution::Passthrough } else { Resolution::Endpoints },
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
