//! Filters by name.

use model::listener::HttpChain;
use protos::envoy::extensions::filters::http::cors::v3::Cors;
use protos::envoy::extensions::filters::http::fault::v3::HttpFault;
use protos::envoy::extensions::filters::http::grpc_stats::v3::{
    FilterConfig as GrpcStats, filter_config::PerMethodStatSpecifier,
};
use protos::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use protos::envoy::extensions::filters::http::router::v3::Router;
use protos::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;
use protos::istio::envoy::config::filter::http::alpn::v2alpha1::filter_config::{AlpnOverride, Protocol};
use protos::stats::PluginConfig;

use super::policies::PolicyFilters;
use super::stats;
use crate::dns_cache;
use crate::parts::http_filter;
use crate::pickers;
use crate::route::kube::auth;
use crate::route::sessions;

/// The HTTP filters of a chain, in order.
///
/// The fault, CORS, authorization and session filters and that of endpoint pickers take options from routes; without options
/// they do nothing.
pub(crate) fn http_filters(
    chain: &HttpChain,
    debug_headers: bool,
    metrics: Option<PluginConfig>,
    policies: &PolicyFilters,
) -> Vec<HttpFilter> {
    let mut filters = policies.http();
    if chain.pickers {
        filters.push(pickers::filter());
    }
    if chain.protocol == names::Protocol::GrpcWeb {
        filters.push(http_filter("envoy.filters.http.grpc_web", &GrpcWeb {}));
    }
    let stats = GrpcStats {
        emit_filter_state: true,
        per_method_stat_specifier: Some(PerMethodStatSpecifier::StatsForAllMethods(false)),
        ..Default::default()
    };
    filters.push(http_filter("envoy.filters.http.grpc_stats", &stats));
    if chain.alpn_filter {
        filters.push(http_filter("istio.alpn", &alpn_overrides()));
    }
    filters.push(http_filter("envoy.filters.http.fault", &HttpFault::default()));
    filters.push(http_filter("envoy.filters.http.cors", &Cors {}));
    // Requests before other origins are allowed (preflights) have no credentials.
    filters.extend(chain.external_auth.then(auth::filter));
    filters.extend(metrics.map(|config| http_filter(stats::FILTER, &config)));
    if chain.sessions {
        filters.push(http_filter(sessions::FILTER, &StatefulSession::default()));
    }
    filters.extend(chain.dns_caches.iter().map(dns_cache::of_requests));
    let router = Router { suppress_envoy_headers: !debug_headers, ..Default::default() };
    filters.push(http_filter("envoy.filters.http.router", &router));
    filters
}

/// The ALPN protocols that a sidecar offers to another sidecar, by upstream protocol.
fn alpn_overrides() -> Alpn {
    let of = |protocol: Protocol, names: [&str; 3]| AlpnOverride {
        upstream_protocol: protocol.into(),
        alpn_override: names.map(str::to_owned).to_vec(),
    };
    Alpn {
        alpn_override: vec![
            of(Protocol::Http10, ["istio-http/1.0", "istio", "http/1.0"]),
            of(Protocol::Http11, ["istio-http/1.1", "istio", "http/1.1"]),
            of(Protocol::Http2, ["istio-h2", "istio", "h2"]),
        ],
    }
}
