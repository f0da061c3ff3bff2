//! DNS caches of dynamic forward proxies, and the filters that fill them. Envoy shares caches by name, and rejects different
//! settings for one name.

use model::audience::IpFamilies;
use model::listener::DnsCache;
use protos::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use protos::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{FilterConfig, filter_config};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3 as sni;
use protos::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use crate::parts::{address, extension, http_filter, network_filter};

/// The maximum number of names in the cache of unknown destinations.
const MOST_HOSTS: u32 = 1024;

/// The configuration of a cache.
// The field for the resolver is deprecated, but a cache has no replacement.
pub(crate) fn config(cache: &DnsCache) -> DnsCacheConfig {
    let resolver = cache.resolver.map(|at| {
        let config = CaresDnsResolverConfig { resolvers: vec![address(at.ip(), at.port())], ..Default::default() };
        extension("envoy.network.dns_resolver.cares", &config)
    });
    DnsCacheConfig {
        name: cache.name(),
        dns_lookup_family: lookup_family(cache.families).into(),
        // A wildcard host has a limit of its own.
        max_hosts: cache.host.is_none().then_some(MOST_HOSTS),
        typed_dns_resolver_config: resolver,
        ..Default::default()
    }
}

/// The addresses that names are resolved to.
pub(crate) fn lookup_family(families: IpFamilies) -> DnsLookupFamily {
    match families {
        IpFamilies::V4 => DnsLookupFamily::V4Only,
        IpFamilies::V6 => DnsLookupFamily::V6Only,
        IpFamilies::Dual => DnsLookupFamily::All,
    }
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
