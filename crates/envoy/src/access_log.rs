//! The access log that MeshConfig asks for (`accessLogFile`).

use protos::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use protos::envoy::config::accesslog::v3::{AccessLog, AccessLogFilter, ResponseFlagFilter, access_log};
use protos::envoy::config::core::v3::substitution_format_string::Format;
use protos::envoy::config::core::v3::{DataSource, SubstitutionFormatString, data_source};
use protos::envoy::extensions::access_loggers::file::v3::{FileAccessLog, file_access_log::AccessLogFormat};
use protos::{Struct, Value, value::Kind};
use resources::MeshConfig;
use resources::mesh::AccessLogEncoding;

use crate::parts::{any, text};

/// The fields of a log line, in the order of Istio's text format, with their names in its JSON format.
const FIELDS: [(&str, &str); 24] = [
    ("start_time", "[%START_TIME%]"),
    ("method", "\"%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%\""),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    (
        "upstream_transport_failure_reason",
        "\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\"",
    ),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("x_forwarded_for", "\"%REQ(X-FORWARDED-FOR)%\""),
    ("user_agent", "\"%REQ(USER-AGENT)%\""),
    ("request_id", "\"%REQ(X-REQUEST-ID)%\""),
    ("authority", "\"%REQ(:AUTHORITY)%\""),
    ("upstream_host", "\"%UPSTREAM_HOST%\""),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("route_name", "%ROUTE_NAME%"),
];

/// The log of requests or connections, if the mesh has one.
pub(crate) fn of_traffic(mesh: &MeshConfig) -> Option<AccessLog> {
    if mesh.access_log_file.is_empty() {
        return None;
    }
    let format = match mesh.access_log_encoding {
        AccessLogEncoding::Text => {
            let line = if mesh.access_log_format.is_empty() {
                default_line()
            } else {
                mesh.access_log_format.to_string()
            };
            let source = data_source::Specifier::InlineString(line);
            Format::TextFormatSource(DataSource {
                specifier: Some(source),
                ..Default::default()
            })
        }
        AccessLogEncoding::Json => Format::JsonFormat(json_fields(&mesh.access_log_format)),
    };
    let format = SubstitutionFormatString {
        format: Some(format),
        ..Default::default()
    };
    let file = FileAccessLog {
        path: mesh.access_log_file.to_string(),
        access_log_format: Some(AccessLogFormat::LogFormat(format)),
    };
    Some(AccessLog {
        name: "envoy.access_loggers.file".to_owned(),
        config_type: Some(access_log::ConfigType::TypedConfig(any(&file))),
        filter: None,
    })
}

/// The log of a listener: of connections that no chain takes.
pub(crate) fn of_listener(mesh: &MeshConfig) -> Option<AccessLog> {
    if mesh.disable_envoy_listener_log {
        return None;
    }
    let no_route = ResponseFlagFilter {
        flags: vec!["NR".to_owned()],
    };
    let filter = AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(no_route)),
    };
    Some(AccessLog {
        filter: Some(filter),
        ..of_traffic(mesh)?
    })
}

fn default_line() -> String {
    let mut line = FIELDS.map(|(_, value)| value).join(" ");
    line.push('\n');
    line
}

/// The fields of JSON lines: those of the format, which is a JSON object itself, or Istio's where it is none.
fn json_fields(format: &str) -> Struct {
    let own = serde_json::from_str(format)
        .ok()
        .and_then(|json: serde_json::Value| match value(json).kind {
            Some(Kind::StructValue(fields)) => Some(fields),
            _ => None,
        });
    own.unwrap_or_else(|| Struct {
        fields: FIELDS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), text(value.trim_matches(['"', '[', ']']))))
            .collect(),
    })
}

fn value(json: serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(value),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(items) => Kind::ListValue(prost_types::ListValue {
            values: items.into_iter().map(value).collect(),
        }),
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.into_iter().map(|(key, item)| (key, value(item))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}
