//! Endpoint pickers of InferencePools: the filter that asks them, and the load balancing that follows their answers.
//!
//! A picker answers with the metadata `envoy.lb`, key `x-gateway-destination-endpoint`: addresses of the pool's cluster in order of
//! preference. It is told the address that served the request. Clients cannot choose an endpoint, because headers do not count.

use std::time::Duration;

use gateway_api::backends::UNKNOWN_SERVICE;
use gateway_api::pools::Picker;
use names::ClusterName;
use protos::Any;
use protos::envoy::config::cluster::v3::cluster::LbPolicy;
use protos::envoy::config::cluster::v3::{LoadBalancingPolicy, load_balancing_policy};
use protos::envoy::config::core::v3::TypedExtensionConfig;
use protos::envoy::extensions::filters::http::ext_proc::v3::ext_proc_per_route::Override;
use protos::envoy::extensions::filters::http::ext_proc::v3::metadata_options::MetadataNamespaces;
use protos::envoy::extensions::filters::http::ext_proc::v3::processing_mode::{BodySendMode, HeaderSendMode};
use protos::envoy::extensions::filters::http::ext_proc::v3::{
    ExtProcOverrides, ExtProcPerRoute, ExternalProcessor, MetadataOptions, ProcessingMode,
};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use protos::envoy::extensions::load_balancing_policies::override_host::v3::OverrideHost;
use protos::envoy::extensions::load_balancing_policies::override_host::v3::override_host::OverrideHostSource;
use protos::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use protos::envoy::r#type::metadata::v3::MetadataKey;
use protos::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};

use crate::cluster::Draft;
use crate::parts::{any, duration, envoy_grpc, extension, http_filter};

/// The filter.
pub(crate) const FILTER: &str = "envoy.filters.http.ext_proc";
/// The namespace of the metadata.
const NAMESPACE: &str = "envoy.lb";
/// The selected endpoints.
const SELECTED: &str = "x-gateway-destination-endpoint";
/// The endpoint that served the request.
const SERVED: &str = "x-gateway-destination-endpoint-served";
/// A picker may queue a request until a model server is free. As in Istio.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1000);

/// The filter. It is disabled on routes without [`options`].
pub(crate) fn filter() -> HttpFilter {
    let namespaces = || Some(MetadataNamespaces { untyped: vec![NAMESPACE.to_owned()], ..Default::default() });
    let processor = ExternalProcessor {
        // Each route has its own.
        grpc_service: Some(envoy_grpc(UNKNOWN_SERVICE, "")),
        processing_mode: Some(ProcessingMode {
            request_header_mode: HeaderSendMode::Skip.into(),
            response_header_mode: HeaderSendMode::Skip.into(),
            ..Default::default()
        }),
        message_timeout: Some(duration(MESSAGE_TIMEOUT)),
        metadata_options: Some(MetadataOptions {
            forwarding_namespaces: namespaces(),
            receiving_namespaces: namespaces(),
            ..Default::default()
        }),
        ..Default::default()
    };
    HttpFilter { disabled: true, ..http_filter(FILTER, &processor) }
}

/// The filter's options for requests to a pool. The picker sees whole requests and responses as they pass.
pub(crate) fn options(picker: &Picker) -> Any {
    let service = match &picker.service {
        Ok((service, port)) => {
            let host = service.hostname.as_str();
            envoy_grpc(ClusterName::outbound(*port, "", host).to_string(), host)
        }
        Err(_) => envoy_grpc(UNKNOWN_SERVICE, ""),
    };
    let (headers, body) = (HeaderSendMode::Send.into(), BodySendMode::FullDuplexStreamed.into());
    let overrides = ExtProcOverrides {
        grpc_service: Some(service),
        failure_mode_allow: Some(picker.fail_open),
        processing_mode: Some(ProcessingMode {
            request_header_mode: headers,
            request_body_mode: body,
            request_trailer_mode: headers,
            response_header_mode: headers,
            response_body_mode: body,
            response_trailer_mode: headers,
        }),
        ..Default::default()
    };
    any(&ExtProcPerRoute { r#override: Some(Override::Overrides(overrides)) })
}

/// Makes a cluster use the selected endpoints. Without any, or if none of them exists, endpoints take turns, as in Istio.
pub(crate) fn follow(draft: &mut Draft) {
    let policy = |policy: TypedExtensionConfig| LoadBalancingPolicy {
        policies: vec![load_balancing_policy::Policy { typed_extension_config: Some(policy) }],
    };
    let fallback = extension("envoy.load_balancing_policies.round_robin", &RoundRobin::default());
    let config = OverrideHost {
        override_host_sources: vec![OverrideHostSource { metadata: Some(key(SELECTED)), ..Default::default() }],
        selected_host_key: Some(key(SERVED)),
        fallback_policy: Some(policy(fallback)),
    };
    draft.cluster.load_balancing_policy =
        Some(policy(extension("envoy.load_balancing_policies.override_host", &config)));
    // Envoy rejects these fields beside the policy, or ignores them.
    draft.balancing().locality_config_specifier = None;
    draft.cluster.lb_policy = LbPolicy::RoundRobin.into();
    draft.cluster.lb_config = None;
}

fn key(name: &str) -> MetadataKey {
    let segment = PathSegment { segment: Some(path_segment::Segment::Key(name.to_owned())) };
    MetadataKey { key: NAMESPACE.to_owned(), path: vec![segment] }
}
