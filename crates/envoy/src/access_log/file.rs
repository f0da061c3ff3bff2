//! Access logs in files.

use config::mesh::LogFormat;
use protos::envoy::config::accesslog::v3::AccessLog;
use protos::envoy::config::core::v3::substitution_format_string::Format;
use protos::envoy::config::core::v3::{DataSource, SubstitutionFormatString, data_source};
use protos::envoy::extensions::access_loggers::file::v3::{FileAccessLog, file_access_log::AccessLogFormat};
use protos::{Struct, Value, value::Kind};
use security::telemetry::FileLog;

use super::{formatters, log};
use crate::parts::text;

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
    ("upstream_transport_failure_reason", "\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\""),
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

/// Encodes a log that is written to a file.
pub(super) fn encode(file: &FileLog) -> AccessLog {
    let (format, formatters) = match &file.format {
        LogFormat::Default => (line(default_line()), Vec::new()),
        LogFormat::Text(format) if format.is_empty() => (line(default_line()), Vec::new()),
        LogFormat::Text(format) => (line(ended(format)), formatters([&**format].into_iter())),
        LogFormat::Labels(labels) => {
            let fields = json_fields(labels);
            let needed = formatters(fields.fields.values().flat_map(texts));
            (Format::JsonFormat(fields), needed)
        }
    };
    let format = SubstitutionFormatString {
        format: Some(format),
        formatters,
        omit_empty_values: file.omit_empty_values,
        ..Default::default()
    };
    let config =
        FileAccessLog { path: file.path.to_string(), access_log_format: Some(AccessLogFormat::LogFormat(format)) };
    log("envoy.access_loggers.file", &config)
}

/// Istio's default line.
pub(super) fn default_line() -> String {
    let mut line = FIELDS.map(|(_, value)| value).join(" ");
    line.push('\n');
    line
}

fn line(text: String) -> Format {
    Format::TextFormatSource(DataSource {
        specifier: Some(data_source::Specifier::InlineString(text)),
        ..Default::default()
    })
}

/// Terminates a line.
fn ended(text: &str) -> String {
    match text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\n"),
    }
}

/// The fields of JSON lines; Istio's if the format has none.
fn json_fields(labels: &serde_json::Value) -> Struct {
    match value(labels.clone()).kind {
        Some(Kind::StructValue(own)) if !own.fields.is_empty() => own,
        _ => Struct {
            fields: FIELDS
                .iter()
                .map(|(name, value)| ((*name).to_owned(), text(value.trim_matches(['"', '[', ']']))))
                .collect(),
        },
    }
}

/// All texts in a value.
fn texts(value: &Value) -> Vec<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => vec![text],
        Some(Kind::ListValue(list)) => list.values.iter().flat_map(texts).collect(),
        Some(Kind::StructValue(object)) => object.fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn value(json: serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(value),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(items) => {
            Kind::ListValue(prost_types::ListValue { values: items.into_iter().map(value).collect() })
        }
        serde_json::Value::Object(fields) => {
            Kind::StructValue(Struct { fields: fields.into_iter().map(|(key, item)| (key, value(item))).collect() })
        }
    };
    Value { kind: Some(kind) }
}
