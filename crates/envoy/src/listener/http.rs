//! HTTP connection managers.

use std::time::Duration;

use config::MeshConfig;
use config::mesh::{NormalizationType, ProxyHeaders};
use model::listener::{Direction, HttpChain, ListenerSpec, RouteSource};
use protos::envoy::config::core::v3::{Http1ProtocolOptions, Http2ProtocolOptions, Http3ProtocolOptions};
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, ForwardClientCertDetails, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier,
    ServerHeaderTransformation, SetCurrentClientCertDetails, UpgradeConfig,
};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, Rds};
use security::telemetry::Telemetry;

use super::filters::http_filters;
use super::policies::PolicyFilters;
use super::{limits, stats};
use crate::access_log::{self, Subject};
use crate::headers::{in_their_case, keep_case};
use crate::parts::{aggregated_discovery, duration, network_filter, range, seconds};
use crate::{route, tracing};

/// The `server` header of proxies. Sidecars set it on inbound listeners only.
const SERVER_NAME: &str = "istio-envoy";

/// The HTTP connection manager of a chain; HTTP/3 over QUIC.
pub(crate) fn filter(
    chain: &HttpChain,
    spec: &ListenerSpec,
    (mesh, telemetry): (&MeshConfig, &Telemetry),
    policies: &PolicyFilters,
) -> Filter {
    let (direction, quic) = (spec.direction, spec.is_quic());
    let none = ProxyHeaders::default();
    let headers = mesh.default_config.proxy_headers.as_ref().unwrap_or(&none);
    let mut manager = HttpConnectionManager {
        codec_type: if quic { CodecType::Http3 } else { CodecType::Auto }.into(),
        http3_protocol_options: quic.then(Http3ProtocolOptions::default),
        stat_prefix: chain.stat_prefix.to_string(),
        route_specifier: Some(routes(chain, mesh)),
        use_remote_address: Some(chain.use_remote_address),
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".to_owned(), ..Default::default() }],
        // The server answers `Expect: 100-continue`.
        proxy_100_continue: true,
        // No idle timeout for streams.
        stream_idle_timeout: Some(seconds(0)),
        access_log: access_log::of_traffic(telemetry, Subject::Requests),
        tracing: tracing::of(telemetry, spec, mesh),
        http_filters: http_filters(
            chain,
            !headers.envoy_debug_headers.as_ref().and_then(|switch| switch.disabled).unwrap_or(false),
            stats::of(spec, telemetry),
            policies,
        ),
        ..Default::default()
    };
    let is_proxy = chain.protocol == names::Protocol::HttpProxy;
    let header_key_format = keep_case(mesh).then(in_their_case);
    if chain.accepts_http10 || is_proxy || header_key_format.is_some() {
        manager.http_protocol_options = Some(Http1ProtocolOptions {
            accept_http_10: chain.accepts_http10,
            header_key_format,
            // Clients of an HTTP proxy send absolute URLs.
            allow_absolute_url: is_proxy.then_some(true),
            ..Default::default()
        });
    }
    if direction == Direction::Inbound && chain.protocol.is_http2() {
        manager.http2_protocol_options = Some(Http2ProtocolOptions::default());
    }
    normalize_paths(&mut manager, mesh);
    if let Some(time) = spec.idle_timeout_ms {
        manager.common_http_protocol_options.get_or_insert_default().idle_timeout =
            Some(duration(Duration::from_millis(time)));
    }
    if !spec.internal.is_empty() {
        manager.internal_address_config = Some(InternalAddressConfig {
            cidr_ranges: spec.internal.iter().map(range).collect(),
            ..Default::default()
        });
    }
    if let Some(settings) = limits::settings(mesh, direction) {
        limits::apply(&mut manager, &settings);
    }
    apply_headers(&mut manager, headers, direction);
    forward_certificates(&mut manager, headers, direction, mesh);
    network_filter("envoy.filters.network.http_connection_manager", &manager)
}

fn routes(chain: &HttpChain, mesh: &MeshConfig) -> RouteSpecifier {
    match &chain.routes {
        RouteSource::Discovered(name) => RouteSpecifier::Rds(Rds {
            config_source: Some(aggregated_discovery()),
            route_config_name: name.to_string(),
        }),
        RouteSource::DynamicForwardProxy => RouteSpecifier::RouteConfig(route::dynamic_forward_proxy_table(mesh)),
        RouteSource::Inbound { cluster, port, operation } => {
            let grpc = chain.protocol.is_grpc();
            RouteSpecifier::RouteConfig(route::inbound_table(cluster, *port, operation, grpc, mesh))
        }
    }
}

fn normalize_paths(manager: &mut HttpConnectionManager, mesh: &MeshConfig) {
    let normalization = mesh.path_normalization.normalization;
    let decode = normalization == NormalizationType::DecodeAndMergeSlashes;
    manager.normalize_path = Some(normalization != NormalizationType::None);
    manager.merge_slashes = decode || normalization == NormalizationType::MergeSlashes;
    let slashes = match decode {
        true => PathWithEscapedSlashesAction::UnescapeAndForward,
        false => PathWithEscapedSlashesAction::KeepUnchanged,
    };
    manager.path_with_escaped_slashes_action = slashes.into();
}

fn apply_headers(manager: &mut HttpConnectionManager, headers: &ProxyHeaders, direction: Direction) {
    let server = headers.server.as_ref();
    if server.and_then(|server| server.disabled).unwrap_or(false) {
        manager.server_header_transformation = ServerHeaderTransformation::PassThrough.into();
    } else if let Some(server) = server.filter(|server| !server.value.is_empty()) {
        manager.server_name = server.value.to_string();
    } else if direction != Direction::Outbound {
        manager.server_name = SERVER_NAME.to_owned();
    }
    if headers.request_id.as_ref().and_then(|switch| switch.disabled).unwrap_or(false) {
        manager.generate_request_id = Some(false);
    }
    manager.append_x_forwarded_port =
        headers.x_forwarded_port.as_ref().and_then(|switch| switch.enabled).unwrap_or(false);
}

/// How the client's certificate is forwarded: a sidecar appends it to the request's header, a gateway replaces the
/// header.
fn forward_certificates(
    manager: &mut HttpConnectionManager,
    headers: &ProxyHeaders,
    direction: Direction,
    mesh: &MeshConfig,
) {
    match direction {
        Direction::Outbound => {}
        Direction::Inbound => {
            let details = headers.set_current_client_cert_details.clone().unwrap_or_default();
            let mode = forwarding(headers.forwarded_client_cert).unwrap_or(ForwardClientCertDetails::AppendForward);
            manager.forward_client_cert_details = mode.into();
            manager.set_current_client_cert_details = Some(SetCurrentClientCertDetails {
                subject: Some(details.subject.unwrap_or(true)),
                uri: details.uri.unwrap_or(true),
                dns: details.dns.unwrap_or(true),
                cert: details.cert.unwrap_or(false),
                chain: details.chain.unwrap_or(false),
                ..Default::default()
            });
        }
        Direction::Gateway => {
            let topology = mesh.default_config.gateway_topology.as_ref();
            manager.xff_num_trusted_hops = topology.map(|topology| topology.num_trusted_proxies).unwrap_or(0);
            let mode = topology.and_then(|topology| forwarding(topology.forward_client_cert_details));
            let mode = mode.unwrap_or(ForwardClientCertDetails::SanitizeSet);
            manager.forward_client_cert_details = mode.into();
            let sets = matches!(mode, ForwardClientCertDetails::AppendForward | ForwardClientCertDetails::SanitizeSet);
            manager.set_current_client_cert_details = sets.then(|| SetCurrentClientCertDetails {
                subject: Some(true),
                cert: true,
                dns: true,
                uri: true,
                ..Default::default()
            });
        }
    }
}

fn forwarding(mode: config::mesh::ForwardClientCertDetails) -> Option<ForwardClientCertDetails> {
    use config::mesh::ForwardClientCertDetails as Mode;
    match mode {
        Mode::Undefined => None,
        Mode::Sanitize => Some(ForwardClientCertDetails::Sanitize),
        Mode::ForwardOnly => Some(ForwardClientCertDetails::ForwardOnly),
        Mode::AppendForward => Some(ForwardClientCertDetails::AppendForward),
        Mode::SanitizeSet => Some(ForwardClientCertDetails::SanitizeSet),
        Mode::AlwaysForwardOnly => Some(ForwardClientCertDetails::AlwaysForwardOnly),
    }
}
