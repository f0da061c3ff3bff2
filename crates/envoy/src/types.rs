//! The xDS resource types of Envoy and of Istio's agent.
//!
//! Make before break: clusters and their endpoints are in place before the listeners and routes that use them are sent,
//! and clusters are removed after those.

use std::sync::Arc;

use bytes::Bytes;
use model::proxy::ProxyKind;
use model::xds::{Dump, DumpItem, Parent, Placeholder, ResourceType, Subscription, TypeSpec};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::config::route::v3::RouteConfiguration;
use protos::wire::{Reader, Value, put_bytes};

/// Clusters (CDS).
pub const CLUSTER: ResourceType = ResourceType::new(&CLUSTER_SPEC);
/// The endpoints of a cluster (EDS).
pub const ENDPOINTS: ResourceType = ResourceType::new(&ENDPOINTS_SPEC);
/// Listeners (LDS).
pub const LISTENER: ResourceType = ResourceType::new(&LISTENER_SPEC);
/// Route tables (RDS).
pub const ROUTE: ResourceType = ResourceType::new(&ROUTE_SPEC);
/// The virtual hosts of route tables, one by one (VHDS). A route table is a collection.
pub const VIRTUAL_HOST: ResourceType = ResourceType::new(&VIRTUAL_HOST_SPEC);
/// Secrets (SDS).
pub const SECRET: ResourceType = ResourceType::new(&SECRET_SPEC);
/// Configurations of filters (ECDS).
pub const EXTENSION: ResourceType = ResourceType::new(&EXTENSION_SPEC);
/// The name table with which Istio's agent answers DNS queries (NDS); one resource.
pub const NAME_TABLE: ResourceType = ResourceType::new(&NAME_TABLE_SPEC);
/// The configuration of Istio's agent (PCDS): the root certificates of the mesh; one resource.
pub const PROXY_CONFIG: ResourceType = ResourceType::new(&PROXY_CONFIG_SPEC);

// Statics, because constants cannot refer to each other.
static CLUSTER_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    short_name: "CDS",
    long_name: "cluster",
    order: 0,
    subscription: Subscription::Wildcard,
    removed_after: &[
        ResourceType::new(&LISTENER_SPEC),
        ResourceType::new(&ROUTE_SPEC),
        ResourceType::new(&VIRTUAL_HOST_SPEC),
    ],
    partial_nack: true,
    divisible: true,
    dump: Dump::Section {
        message: "ClustersConfigDump",
        list: "dynamicActiveClusters",
        item: DumpItem::Resource("cluster"),
    },
    ..TypeSpec::NAMED
};

static ENDPOINTS_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    short_name: "EDS",
    long_name: "endpoint",
    order: 1,
    parent: Parent::Reference { of: ResourceType::new(&CLUSTER_SPEC), reference: endpoints_name },
    // Envoy does not use a cluster until it receives its endpoints.
    placeholder: Some(Placeholder {
        applies: |_| true,
        encode: |name| {
            protos::encode(&ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() })
        },
    }),
    dump: Dump::Section {
        message: "EndpointsConfigDump",
        list: "dynamicEndpointConfigs",
        item: DumpItem::Resource("endpointConfig"),
    },
    ..TypeSpec::NAMED
};

static LISTENER_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.listener.v3.Listener",
    short_name: "LDS",
    long_name: "listener",
    order: 2,
    subscription: Subscription::Wildcard,
    waits_for: &[ResourceType::new(&CLUSTER_SPEC), ResourceType::new(&ENDPOINTS_SPEC)],
    partial_nack: true,
    dump: Dump::Section { message: "ListenersConfigDump", list: "dynamicListeners", item: DumpItem::State("listener") },
    ..TypeSpec::NAMED
};

static ROUTE_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    short_name: "RDS",
    long_name: "route",
    order: 3,
    waits_for: &[ResourceType::new(&CLUSTER_SPEC), ResourceType::new(&ENDPOINTS_SPEC)],
    parent: Parent::Any { of: ResourceType::new(&LISTENER_SPEC) },
    // Envoy does not use a listener until it receives its routes. For a gateway, a missing route table is reported as
    // such, as in istiod: the previous one stays in use.
    placeholder: Some(Placeholder { applies: |proxy| proxy.kind == ProxyKind::Sidecar, encode: empty_route_table }),
    parts: Some(VIRTUAL_HOSTS),
    stub: Some(host_without_routes),
    dump: Dump::Section {
        message: "RoutesConfigDump",
        list: "dynamicRouteConfigs",
        item: DumpItem::Resource("routeConfig"),
    },
    ..TypeSpec::NAMED
};

static VIRTUAL_HOST_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.route.v3.VirtualHost",
    short_name: "VHDS",
    long_name: "virtual host",
    order: 4,
    subscription: Subscription::Collections,
    // Virtual hosts are removed in the response that adds others, because Envoy rejects a domain that two of them have.
    waits_for: &[ResourceType::new(&CLUSTER_SPEC), ResourceType::new(&ENDPOINTS_SPEC), ResourceType::new(&ROUTE_SPEC)],
    // A route table that is sent whole replaces the virtual hosts that were discovered for it.
    removed_after: &[ResourceType::new(&ROUTE_SPEC)],
    parent: Parent::Collections { of: ResourceType::new(&ROUTE_SPEC) },
    stub: Some(host_without_routes),
    dump: Dump::Hidden,
    ..TypeSpec::NAMED
};

static SECRET_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    short_name: "SDS",
    long_name: "secret",
    order: 5,
    dump: Dump::Section { message: "SecretsConfigDump", list: "dynamicActiveSecrets", item: DumpItem::Name },
    ..TypeSpec::NAMED
};

static EXTENSION_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
    short_name: "ECDS",
    long_name: "extension",
    order: 6,
    dump: Dump::Section { message: "EcdsConfigDump", list: "ecdsFilters", item: DumpItem::Resource("ecdsFilter") },
    ..TypeSpec::NAMED
};

static NAME_TABLE_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/istio.networking.nds.v1.NameTable",
    short_name: "NDS",
    long_name: "name table",
    order: 7,
    subscription: Subscription::Wildcard,
    partial_nack: true,
    dump: Dump::Hidden,
    ..TypeSpec::NAMED
};

static PROXY_CONFIG_SPEC: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
    short_name: "PCDS",
    long_name: "proxy configuration",
    order: 8,
    subscription: Subscription::Wildcard,
    partial_nack: true,
    dump: Dump::Hidden,
    ..TypeSpec::NAMED
};

/// The field of a route table's virtual hosts.
const VIRTUAL_HOSTS: u32 = 2;

/// A virtual host with the same name and domains and without routes. Envoy answers requests to it with 404. Without it, a
/// virtual host for all domains would receive them, which may not be meant for them.
fn host_without_routes(host: &[u8]) -> Bytes {
    const NAME: u32 = 1;
    const DOMAINS: u32 = 2;
    let (mut reader, mut stub) = (Reader::new(host), Vec::new());
    while let Ok(Some((field, value))) = reader.field() {
        match (field, value) {
            (NAME, Value::Bytes(name)) => put_bytes(&mut stub, 1, name),
            (DOMAINS, Value::Bytes(domain)) => put_bytes(&mut stub, 2, domain),
            _ => {}
        }
    }
    stub.into()
}

fn empty_route_table(name: &str) -> Bytes {
    protos::encode(&RouteConfiguration {
        name: name.to_owned(),
        validate_clusters: Some(false),
        ..RouteConfiguration::default()
    })
}

/// The name by which a cluster subscribes to its endpoints: its service name, or else its own. `None` if it does not
/// use EDS.
fn endpoints_name(name: &Arc<str>, cluster: &[u8]) -> Option<Arc<str>> {
    const TYPE: u32 = 2;
    const EDS_CONFIG: u32 = 3;
    const EDS: u64 = 3;
    const SERVICE_NAME: u32 = 2;
    let (mut discovers, mut service) = (false, None);
    let mut reader = Reader::new(cluster);
    while let Ok(Some((field, value))) = reader.field() {
        match (field, value) {
            (TYPE, Value::Varint(value)) => discovers = value == EDS,
            (EDS_CONFIG, Value::Bytes(config)) => {
                let mut config = Reader::new(config);
                while let Ok(Some((field, value))) = config.field() {
                    if let (SERVICE_NAME, Value::Bytes(value)) = (field, value) {
                        service = std::str::from_utf8(value).ok();
                    }
                }
            }
            _ => {}
        }
    }
    let service = service.filter(|service| !service.is_empty() && **service != **name);
    discovers.then(|| service.map_or_else(|| name.clone(), Arc::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::xds::ResourceTypes;
    use protos::Message;
    use protos::envoy::config::cluster::v3::Cluster;
    use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};

    #[test]
    fn the_endpoints_of_a_cluster_are_found_in_its_bytes() {
        let cluster = |kind: DiscoveryType, service: &str| {
            let eds = EdsClusterConfig { service_name: service.to_owned(), ..EdsClusterConfig::default() };
            let cluster = Cluster {
                name: "c".to_owned(),
                alt_stat_name: "other".to_owned(),
                cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
                eds_cluster_config: Some(eds),
                ..Cluster::default()
            };
            endpoints_name(&"c".into(), &cluster.encode_to_vec()).map(|name| name.to_string())
        };
        assert_eq!(cluster(DiscoveryType::Eds, "").as_deref(), Some("c"));
        assert_eq!(cluster(DiscoveryType::Eds, "s").as_deref(), Some("s"));
        assert_eq!(cluster(DiscoveryType::StrictDns, "s"), None);
        assert_eq!(endpoints_name(&"c".into(), b"\xff\xff"), None);
    }

    #[test]
    fn inconsistent_types_are_rejected() {
        assert!(ResourceTypes::new([SECRET, EXTENSION]).is_ok());
        assert!(ResourceTypes::new([SECRET, SECRET]).is_err());
        assert!(ResourceTypes::new([CLUSTER]).is_err(), "clusters are removed after listeners");
    }
}
