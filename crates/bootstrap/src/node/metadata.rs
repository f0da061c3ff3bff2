//! The metadata of a node, in the form of Istio's agent: booleans are the strings "true" and "false", lists are joined with
//! commas, ports of containers are JSON in a string, and empty values of known keys are left out. Unknown keys are reported as they
//! are.

use config::mesh::ProxyConfig;
use protos::parse_bool;
use serde_json::{Map, Value, json};

use super::Texts;
use crate::diagnostic::Diagnostics;
use crate::options::{Variables, text};

const PREFIX: &str = "ISTIO_META_";
const JSON_PREFIX: &str = "ISTIO_METAJSON_";

/// The forms of known values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// A string.
    Text,
    /// A boolean in a string.
    Flag,
    /// A JSON list of container ports in a string.
    Ports,
    /// A whole number.
    Number,
    /// An object of strings.
    Texts,
    /// A value that only the agent sets.
    Own,
}

/// The form of a known key; none for others.
fn form(key: &str) -> Option<Form> {
    Some(match key {
        "ENABLE_SELF_DISCOVERY"
        | "DNS_CAPTURE"
        | "DNS_AUTO_ALLOCATE"
        | "ENABLE_HBONE"
        | "DISABLE_HBONE_SEND"
        | "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"
        | "INBOUND_LISTENER_EXACT_BALANCE"
        | "OUTBOUND_LISTENER_EXACT_BALANCE"
        | "METADATA_DISCOVERY"
        | "ENVOY_SKIP_DEPRECATED_LOGS" => Form::Flag,
        "POD_PORTS" => Form::Ports,
        "ENVOY_STATUS_PORT"
        | "ENVOY_PROMETHEUS_PORT"
        | "ENVOY_SECURE_METRICS_PORT"
        | "ENVOY_SECURE_MERGED_METRICS_PORT" => Form::Number,
        "LABELS" | "STATIC_LABELS" | "ANNOTATIONS" | "PLATFORM_METADATA" => Form::Texts,
        "PROXY_CONFIG" | "PILOT_SAN" => Form::Own,
        "ISTIO_VERSION"
        | "ISTIO_REVISION"
        | "INSTANCE_IPS"
        | "NAMESPACE"
        | "NODE_NAME"
        | "WORKLOAD_NAME"
        | "INTERCEPTION_MODE"
        | "SERVICE_ACCOUNT"
        | "HTTP_PROXY_PORT"
        | "MESH_ID"
        | "CLUSTER_ID"
        | "NETWORK"
        | "REQUESTED_NETWORK_VIEW"
        | "TLS_SERVER_CERT_CHAIN"
        | "TLS_SERVER_KEY"
        | "TLS_SERVER_ROOT_CERT"
        | "TLS_CLIENT_CERT_CHAIN"
        | "TLS_CLIENT_KEY"
        | "TLS_CLIENT_ROOT_CERT"
        | "BASE"
        | "IDLE_TIMEOUT"
        | "HTTP10"
        | "GENERATOR"
        | "DNS_PROXY_ADDR"
        | "AUTO_REGISTER_GROUP"
        | "WORKLOAD_ENTRY"
        | "UNPRIVILEGED_POD"
        | "STS_PORT"
        | "CLOUDRUN_ADDR"
        | "WORKLOAD_IDENTITY_SOCKET_FILE"
        | "NAME"
        | "OWNER"
        | "OUTLIER_LOG_PATH"
        | "APP_CONTAINERS"
        | "ISTIO_PROXY_SHA" => Form::Text,
        _ => return None,
    })
}

/// The known values in their form, and all values as they were given.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    known: Map<String, Value>,
    given: Map<String, Value>,
}

impl Metadata {
    /// Reads the values of `proxyMetadata` and of the variables `ISTIO_META_KEY=TEXT` and `ISTIO_METAJSON_NAME={KEY: VALUE…}`.
    pub(super) fn read(settings: &ProxyConfig, variables: &Variables, diagnostics: &mut Diagnostics) -> Metadata {
        let mut metadata = Metadata::default();
        let of_settings = settings.proxy_metadata.iter().map(|(name, value)| (&**name, &**value));
        let of_process = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in of_settings.chain(of_process.clone()) {
            if let Some(key) = name.strip_prefix(PREFIX) {
                metadata.given.insert(key.to_owned(), value.into());
            }
        }
        for (name, value) in of_process.filter(|(name, _)| name.starts_with(JSON_PREFIX)) {
            match serde_json::from_str::<Map<String, Value>>(value) {
                Ok(values) => metadata.given.extend(values),
                Err(error) => diagnostics.add(name, format_args!("is not a JSON object; it is ignored: {error}")),
            }
        }
        if let Some(address) = text(variables, "DNS_PROXY_ADDR") {
            metadata.given.insert("DNS_PROXY_ADDR".to_owned(), address.into());
        }
        let given = std::mem::take(&mut metadata.given);
        for (key, value) in given {
            let Some(form) = form(&key) else {
                metadata.given.insert(key, value);
                continue;
            };
            match convert(form, &value) {
                Some(known) => {
                    metadata.set(&key, known);
                    metadata.given.insert(key, value);
                }
                None => diagnostics.add(format!("{PREFIX}{key}"), expected(form)),
            }
        }
        metadata
    }

    /// Sets a known value; an empty one removes it.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        if is_empty(&value) {
            self.known.remove(key);
        } else {
            self.known.insert(key.to_owned(), value);
        }
    }

    /// Sets a known value if there is none.
    pub(super) fn default_text(&mut self, key: &str, value: &str) {
        if !self.known.contains_key(key) {
            self.set(key, value.into());
        }
    }

    /// Sets a value that is not one of the known ones.
    pub(super) fn raw(&mut self, key: &str, value: &str) {
        self.given.insert(key.to_owned(), value.into());
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.known.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    pub(super) fn texts(&self, key: &str) -> Texts {
        self.known.get(key).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
    }

    /// All values: the known ones, and the given ones of other keys.
    pub(super) fn into_map(self) -> Map<String, Value> {
        let mut all = self.known;
        for (key, value) in self.given {
            all.entry(key).or_insert(value);
        }
        all
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

/// A given value in the form of the agent; none if it is not valid. Null stands for an empty value.
fn convert(form: Form, value: &Value) -> Option<Value> {
    match form {
        Form::Text => value.as_str().map(Value::from),
        // Only a true flag is known; a false one is reported as it was given.
        Form::Flag => Some(if parse_bool(value.as_str()?)? { json!("true") } else { Value::Null }),
        Form::Ports => ports(value.as_str()?),
        Form::Number => value.as_u64().map(Value::from),
        Form::Texts => serde_json::from_value::<Texts>(value.clone()).ok().map(|texts| json!(texts)),
        Form::Own => None,
    }
}

fn expected(form: Form) -> &'static str {
    match form {
        Form::Text => "is not a string; it is ignored",
        Form::Flag => "is not a boolean; give true or false",
        Form::Ports => "is not a JSON list of container ports in a string; it is ignored",
        Form::Number => "is set by the agent; use the variable without the prefix",
        Form::Texts => "is not an object of strings; it is ignored",
        Form::Own => "is set by the agent; it is ignored",
    }
}

/// The ports of containers without further fields, as JSON in a string.
fn ports(text: &str) -> Option<Value> {
    let given: Vec<Map<String, Value>> = serde_json::from_str(text).ok()?;
    let mut written = Vec::new();
    for port in given {
        let name = match port.get("name") {
            None | Some(Value::Null) => "",
            Some(name) => name.as_str()?,
        };
        let number = port.get("containerPort").map_or(Some(0), Value::as_u64)?;
        let protocol = port.get("protocol").map_or(Some(""), Value::as_str)?;
        let name = if name.is_empty() { String::new() } else { format!("\"name\":{},", Value::from(name)) };
        written.push(format!("{{{name}\"containerPort\":{number},\"protocol\":{}}}", Value::from(protocol)));
    }
    Some(if written.is_empty() { Value::Null } else { format!("[{}]", written.join(",")).into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Map<String, Value>, Vec<String>) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut diagnostics = Diagnostics::default();
        let metadata = Metadata::read(&ProxyConfig::default(), &variables, &mut diagnostics);
        (metadata.into_map(), diagnostics.0.into_iter().map(|diagnostic| diagnostic.place).collect())
    }

    #[test]
    fn values_have_the_form_of_their_key() {
        let ports = r#"[{"name":"http","containerPort":80,"protocol":"TCP","hostIP":"x"},{"containerPort":9}]"#;
        let (found, wrong) = read(&[
            ("ISTIO_META_DNS_CAPTURE", "1"),
            ("ISTIO_META_ENABLE_HBONE", "0"),
            ("ISTIO_META_POD_PORTS", ports),
            ("ISTIO_META_OTHER", "1"),
            ("ISTIO_METAJSON_X", r#"{"LABELS":{"a":"b"},"deep":{"x":[1]}}"#),
            ("ISTIO_META_UNPRIVILEGED_POD", "true"),
            ("ISTIO_METAJSON_Y", "[]"),
            ("ISTIO_META_DISABLE_HBONE_SEND", "maybe"),
            ("DNS_PROXY_ADDR", "1.2.3.4:53"),
        ]);
        let expected = json!({
            "DNS_CAPTURE": "true", "ENABLE_HBONE": "0", "OTHER": "1", "LABELS": {"a": "b"}, "deep": {"x": [1]},
            "POD_PORTS": r#"[{"name":"http","containerPort":80,"protocol":"TCP"},{"containerPort":9,"protocol":""}]"#,
            "UNPRIVILEGED_POD": "true", "DNS_PROXY_ADDR": "1.2.3.4:53",
        });
        assert_eq!(Value::Object(found), expected);
        assert_eq!(wrong, ["ISTIO_METAJSON_Y", "ISTIO_META_DISABLE_HBONE_SEND"]);
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_or_refused(text in "[-a-zA-Z{}\\[\\],: \"0-9.]{0,60}") {
            for key in ["ISTIO_META_POD_PORTS", "ISTIO_META_DNS_CAPTURE", "ISTIO_METAJSON_LABELS", "ISTIO_META_LABELS"] {
                let _ = read(&[(key, &text)]);
            }
        }
    }
}
