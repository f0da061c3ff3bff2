//! Access logs that are sent to a gRPC service.

use std::sync::Arc;

use config::mesh::{HttpAlsProvider, OtelAlsProvider, TcpAlsProvider};
use protos::envoy::config::accesslog::v3::AccessLog;
use protos::envoy::config::core::v3::{ApiVersion, GrpcService};
use protos::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use protos::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use protos::opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value};
use security::telemetry::Backend;
use serde_json::Value as Json;

use super::{Subject, file, formatters, log};
use crate::parts::{envoy_grpc, grpc_service};

/// The bootstrap cluster that receives logs by default.
const BOOTSTRAP: &str = "envoy_accesslog_service";
/// The filter state objects with which Istio's build of Envoy describes the peers.
const PEERS: [&str; 2] = ["upstream_peer", "downstream_peer"];
/// The same, including the names of older builds.
const PEERS_WITH_OLD_NAMES: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

/// The default names of logs, by which a log service distinguishes them.
const HTTP_NAME: &str = "http_envoy_accesslog";
const TCP_NAME: &str = "tcp_envoy_accesslog";
const LISTENER_NAME: &str = "listener_envoy_accesslog";
const OPEN_TELEMETRY_NAME: &str = "otel_envoy_accesslog";

/// The names of Envoy's extensions.
const HTTP: &str = "envoy.access_loggers.http_grpc";
const TCP: &str = "envoy.access_loggers.tcp_grpc";
const OPEN_TELEMETRY: &str = "envoy.access_loggers.open_telemetry";

/// A log of HTTP requests.
pub(super) fn http(provider: &HttpAlsProvider, to: &Backend) -> AccessLog {
    let state = chosen(&provider.filter_state_objects_to_log);
    let texts = |list: &[Arc<str>]| list.iter().map(|text| text.to_string()).collect();
    let config = HttpGrpcAccessLogConfig {
        common_config: Some(common(named(&provider.log_name, HTTP_NAME), grpc_service(to), state)),
        additional_request_headers_to_log: texts(&provider.additional_request_headers_to_log),
        additional_response_headers_to_log: texts(&provider.additional_response_headers_to_log),
        additional_response_trailers_to_log: texts(&provider.additional_response_trailers_to_log),
    };
    log(HTTP, &config)
}

/// A log of TCP connections.
pub(super) fn tcp(provider: &TcpAlsProvider, to: &Backend) -> AccessLog {
    let state = chosen(&provider.filter_state_objects_to_log);
    let config = TcpGrpcAccessLogConfig {
        common_config: Some(common(named(&provider.log_name, TCP_NAME), grpc_service(to), state)),
    };
    log(TCP, &config)
}

/// A log for an OpenTelemetry collector.
pub(super) fn open_telemetry(provider: &OtelAlsProvider, to: &Backend) -> AccessLog {
    let format = provider.log_format.clone().unwrap_or_default();
    let body = match format.text.is_empty() {
        true => file::default_line(),
        false => format.text.to_string(),
    };
    let attributes = attributes(format.labels.as_ref());
    let labels = attributes.iter().filter_map(|attribute| match &attribute.value {
        Some(AnyValue { value: Some(any_value::Value::StringValue(text)) }) => Some(&**text),
        _ => None,
    });
    let formatters = formatters([&*body].into_iter().chain(labels));
    // Envoy before 1.37 does not support the replacement of these fields.
    #[allow(deprecated)]
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(common(
            named(&provider.log_name, OPEN_TELEMETRY_NAME),
            grpc_service(to),
            PEERS_WITH_OLD_NAMES.map(str::to_owned).to_vec(),
        )),
        disable_builtin_labels: true,
        body: Some(any_text(body.clone())),
        formatters,
        attributes: (!attributes.is_empty()).then_some(KeyValueList { values: attributes }),
        ..Default::default()
    };
    log(OPEN_TELEMETRY, &config)
}

/// A log for the service that the bootstrap defines.
pub(super) fn bootstrap(subject: Subject) -> AccessLog {
    let service = envoy_grpc(BOOTSTRAP, "");
    let name = match subject {
        Subject::Requests => HTTP_NAME,
        Subject::Connections => TCP_NAME,
        Subject::Refused => LISTENER_NAME,
    };
    let common = Some(common(name.to_owned(), service, PEERS_WITH_OLD_NAMES.map(str::to_owned).to_vec()));
    match subject {
        Subject::Requests => log(HTTP, &HttpGrpcAccessLogConfig { common_config: common, ..Default::default() }),
        Subject::Connections | Subject::Refused => log(TCP, &TcpGrpcAccessLogConfig { common_config: common }),
    }
}

fn common(log_name: String, service: GrpcService, state: Vec<String>) -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name,
        grpc_service: Some(service),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: state,
        ..Default::default()
    }
}

fn named(name: &str, default: &str) -> String {
    if name.is_empty() { default } else { name }.to_owned()
}

/// The filter state objects to send.
fn chosen(names: &[Arc<str>]) -> Vec<String> {
    match names {
        [] => PEERS.map(str::to_owned).to_vec(),
        own => own.iter().map(|name| name.to_string()).collect(),
    }
}

/// Converts attributes, in the order of their names. Values other than strings become JSON.
fn attributes(labels: Option<&Json>) -> Vec<KeyValue> {
    let labels = labels.and_then(Json::as_object).into_iter().flatten();
    let sorted: std::collections::BTreeMap<&String, &Json> = labels.collect();
    let one = |(name, value): (&String, &Json)| KeyValue {
        key: name.clone(),
        value: Some(any_text(match value {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        })),
        ..Default::default()
    };
    sorted.into_iter().map(one).collect()
}

fn any_text(text: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text)) }
}
