//! Dynamic forward proxies: clusters that connect to the host that a request names.

use bytes::Bytes;
use config::MeshConfig;
use model::listener::DnsCache;
use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType, LbPolicy};
use protos::envoy::config::core::v3::UpstreamHttpProtocolOptions;
use protos::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig;
use protos::envoy::extensions::clusters::dynamic_forward_proxy::v3::cluster_config::ClusterImplementationSpecifier;

use super::draft::Draft;
use super::{special, tls};
use crate::dns_cache;
use crate::parts::any;

/// The name of the cluster of unknown destinations.
const ANYWHERE: &str = "AllowAnyDynamicDNSCluster";

/// Makes a cluster connect to the host that a request names.
pub(super) fn go_by(draft: &mut Draft, cache: &DnsCache) {
    let checks = |options: &UpstreamHttpProtocolOptions| options.auto_sni && options.auto_san_validation;
    let http = draft.http.as_ref();
    let options = http.and_then(|http| http.upstream_http_protocol_options.as_ref());
    let config = ClusterConfig {
        // Without this, Envoy requires automatic SNI and SAN validation. A rule with an SNI or names of its own
        // overrides them, and without TLS there is nothing to validate.
        allow_insecure_cluster_options: !options.is_some_and(checks),
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(dns_cache::config(
            cache,
        ))),
        ..Default::default()
    };
    draft.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name: "envoy.clusters.dynamic_forward_proxy".to_owned(),
        typed_config: Some(any(&config)),
    }));
    draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    draft.cluster.lb_config = None;
    draft.cluster.common_lb_config = None;
}

/// `AllowAnyDynamicDNSCluster`: connects to the host that a request names, with TLS if the mesh settings require it.
pub(super) fn dynamic_forward_proxy(mesh: &MeshConfig, cache: &DnsCache) -> Bytes {
    let mut draft = Draft::new(ANYWHERE, DiscoveryType::Static);
    special::passthrough_options(&mut draft, mesh);
    if let Some(settings) = &mesh.outbound_traffic_policy.tls {
        tls::apply_to_anything(&mut draft, mesh, settings);
    }
    go_by(&mut draft, cache);
    draft.finish()
}
