//! Dynamic forward proxies: DNS caches, the cluster that uses them, and the filters that fill them. Envoy shares caches by name,
//! and rejects different settings for one name.

use bytes::Bytes;
use config::MeshConfig;
use model::audience::IpFamilies;
use model::listener::DnsCache;
use protos::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DiscoveryType, DnsLookupFamily, LbPolicy,
};
use protos::envoy::config::core::v3::{Address, UpstreamHttpProtocolOptions, address};
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig;
use protos::envoy::extensions::clusters::dynamic_forward_proxy::v3::cluster_config::ClusterImplementationSpecifier;
use protos::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use protos::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{FilterConfig, filter_config};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3 as sni;
use protos::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use crate::cluster::{Draft, apply_tls, passthrough_options};
use crate::listener::{http_filter, network_filter};
use crate::parts::{any, extension, socket_address};

/// The name of the cluster of unknown destinations.
const ANYWHERE: &str = "AllowAnyDynamicDNSCluster";
/// The maximum number of names in the cache of unknown destinations.
const MOST_HOSTS: u32 = 1024;

/// The configuration of a cache.
// The field for the resolver is deprecated, but a cache has no replacement.
fn config(cache: &DnsCache) -> DnsCacheConfig {
    let family = match cache.families {
        IpFamilies::V4 => DnsLookupFamily::V4Only,
        IpFamilies::V6 => DnsLookupFamily::V6Only,
        IpFamilies::Dual => DnsLookupFamily::All,
    };
    let resolver = cache.resolver.map(|at| {
        let address = address::Address::SocketAddress(socket_address(at.ip(), at.port()));
        let config =
            CaresDnsResolverConfig { resolvers: vec![Address { address: Some(address) }], ..Default::default() };
        extension("envoy.network.dns_resolver.cares", &config)
    });
    DnsCacheConfig {
        name: cache.name(),
        dns_lookup_family: family.into(),
        // A wildcard host has a limit of its own.
        max_hosts: cache.host.is_none().then_some(MOST_HOSTS),
        typed_dns_resolver_config: resolver,
        ..Default::default()
    }
}

/// Makes a cluster connect to the host that a request names.
pub(crate) fn go_by(draft: &mut Draft, cache: &DnsCache) {
    let checks = |options: &UpstreamHttpProtocolOptions| options.auto_sni && options.auto_san_validation;
    let http = draft.http.as_ref();
    let options = http.and_then(|http| http.upstream_http_protocol_options.as_ref());
    let config = ClusterConfig {
        // Without this, Envoy requires automatic SNI and SAN validation. A rule with an SNI or names of its own
        // overrides them, and without TLS there is nothing to validate.
        allow_insecure_cluster_options: !options.is_some_and(checks),
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(config(cache))),
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
pub(crate) fn dynamic_forward_proxy(mesh: &MeshConfig, cache: &DnsCache) -> Bytes {
    let mut draft = Draft::new(ANYWHERE, DiscoveryType::Static);
    passthrough_options(&mut draft, mesh);
    let tls = mesh.outbound_traffic_policy.tls.as_ref();
    if let Some(tls) = tls {
        apply_tls(&mut draft, mesh, tls);
    }
    go_by(&mut draft, cache);
    draft.finish()
}

/// The HTTP filter that resolves the hosts of requests.
pub(crate) fn of_requests(cache: &DnsCache) -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(filter_config::ImplementationSpecifier::DnsCacheConfig(config(cache))),
        ..Default::default()
    };
    http_filter("envoy.filters.http.dynamic_forward_proxy", &config)
}

/// The network filter that resolves the SNI of TLS connections, to connect to this port.
pub(crate) fn of_server_names(cache: &DnsCache, port: u16) -> Filter {
    let config = sni::FilterConfig {
        dns_cache_config: Some(config(cache)),
        port_specifier: Some(sni::filter_config::PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    network_filter("envoy.filters.network.sni_dynamic_forward_proxy", &config)
}
