//! Access logs of requests, of connections, and of connections that match no filter chain.

mod file;
mod remote;

use config::MeshConfig;
use protos::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use protos::envoy::config::accesslog::v3::{AccessLog, AccessLogFilter, ResponseFlagFilter, access_log};
use protos::envoy::config::core::v3::TypedExtensionConfig;
use protos::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use protos::{Message, Name};
use security::telemetry::{Log, Telemetry};

use crate::parts::{any, extension};

/// The kind of event that is logged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Requests.
    Requests,
    /// Connections.
    Connections,
    /// Connections that match no filter chain.
    Refused,
}

/// The logs of requests or connections.
pub(crate) fn of_traffic(telemetry: &Telemetry, subject: Subject) -> Vec<AccessLog> {
    telemetry.logs.iter().map(|log| one(log, subject)).collect()
}

/// The logs of a listener, for connections that match no filter chain.
pub(crate) fn of_listener(telemetry: &Telemetry, mesh: &MeshConfig) -> Vec<AccessLog> {
    if mesh.disable_envoy_listener_log {
        return Vec::new();
    }
    let no_route = ResponseFlagFilter { flags: vec!["NR".to_owned()] };
    let filter = AccessLogFilter { filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(no_route)) };
    let mut logs = of_traffic(telemetry, Subject::Refused);
    for log in &mut logs {
        log.filter = Some(filter.clone());
    }
    logs
}

fn one(log: &Log, subject: Subject) -> AccessLog {
    match log {
        Log::File(log) => file::encode(log),
        Log::Http(provider, to) => remote::http(provider, to),
        Log::Tcp(provider, to) => remote::tcp(provider, to),
        Log::OpenTelemetry(provider, to) => remote::open_telemetry(provider, to),
        Log::Bootstrap => remote::bootstrap(subject),
    }
}

fn log<M: Message + Name>(name: &str, config: &M) -> AccessLog {
    AccessLog {
        name: name.to_owned(),
        config_type: Some(access_log::ConfigType::TypedConfig(any(config))),
        filter: None,
    }
}

/// The formatter extensions that these format strings need.
fn formatters<'t>(mut texts: impl Iterator<Item = &'t str>) -> Vec<TypedExtensionConfig> {
    let uses = texts.any(|text| text.contains("%REQ_WITHOUT_QUERY"));
    let formatter = || extension("envoy.formatter.req_without_query", &ReqWithoutQuery {});
    uses.then(formatter).into_iter().collect()
}
