//! The environment variables that decide the bootstrap.

use std::collections::BTreeMap;
use std::str::FromStr;

use protos::parse_bool;

use crate::diagnostic::Diagnostics;

/// The environment variables of the agent. An empty value is the same as none.
pub type Variables = BTreeMap<String, String>;

/// The settings of the bootstrap that come from environment variables. Names and defaults are those of Istio's agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// `ENVOY_STATUS_PORT`: the port of readiness checks.
    pub status_port: u16,
    /// `ENVOY_PROMETHEUS_PORT`: the port of Envoy's metrics.
    pub prometheus_port: u16,
    /// `ENVOY_SECURE_METRICS_PORT`: the port of Envoy's metrics over mutual TLS; 0 for none.
    pub secure_metrics_port: u16,
    /// `ENVOY_SECURE_MERGED_METRICS_PORT`: the port of the merged metrics over mutual TLS; 0 for none.
    pub secure_merged_metrics_port: u16,
    /// `ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL`: whether the status port accepts the PROXY protocol.
    pub status_proxy_protocol: bool,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`: whether Envoy reports its connections, so that it can be drained until there are none.
    pub exit_on_zero: bool,
    /// `PEER_METADATA_DISCOVERY`: whether Envoy asks the control plane for workloads; none means: if HBONE is enabled.
    pub metadata_discovery: Option<bool>,
    /// `ENVOY_SKIP_DEPRECATED_LOGS`: whether Envoy does not warn of deprecated fields.
    pub skip_deprecated_logs: bool,
    /// `WORKLOAD_IDENTITY_SOCKET_FILE`: the name of the Unix socket from which Envoy gets its certificate.
    pub socket_file: String,
    /// `ISTIO_DELTA_XDS`: whether Envoy uses the delta variant of xDS.
    pub delta: bool,
    /// `ISTIO_DUAL_STACK`: whether listeners have addresses of both IP families.
    pub dual_stack: bool,
    /// `COMPLIANCE_POLICY` is `fips-140-2`: connections of Envoy's Google gRPC client use TLS 1.2 at most.
    pub fips: bool,
    /// `HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED`: whether Envoy removes fragments from paths.
    pub strip_fragment: bool,
    /// `HOST_IP`: replaces `$(HOST_IP)` in addresses.
    pub host_ip: String,
    /// Whether the agent's log is JSON (`--log_as_json`), and so Envoy's.
    pub log_as_json: bool,
}

impl Options {
    /// Reads the variables. A value that cannot be used gives a diagnostic and the default.
    #[must_use]
    pub fn from_variables(variables: &Variables, diagnostics: &mut Diagnostics) -> Options {
        let mut reader = Reader { variables, diagnostics };
        let mut socket_file = reader.text("WORKLOAD_IDENTITY_SOCKET_FILE", "socket");
        if socket_file.contains('/') || socket_file == ".." {
            reader
                .diagnostics
                .add("WORKLOAD_IDENTITY_SOCKET_FILE", "is a path; give the name of a file without folders");
            socket_file = "socket".to_owned();
        }
        Options {
            status_port: reader.parsed("ENVOY_STATUS_PORT", 15021),
            prometheus_port: reader.parsed("ENVOY_PROMETHEUS_PORT", 15090),
            secure_metrics_port: reader.parsed("ENVOY_SECURE_METRICS_PORT", 0),
            secure_merged_metrics_port: reader.parsed("ENVOY_SECURE_MERGED_METRICS_PORT", 0),
            status_proxy_protocol: reader.flag("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", false),
            exit_on_zero: reader.flag("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", false),
            metadata_discovery: reader
                .given("PEER_METADATA_DISCOVERY")
                .then(|| reader.flag("PEER_METADATA_DISCOVERY", false)),
            skip_deprecated_logs: reader.flag("ENVOY_SKIP_DEPRECATED_LOGS", true),
            socket_file,
            delta: reader.flag("ISTIO_DELTA_XDS", true),
            dual_stack: reader.flag("ISTIO_DUAL_STACK", false),
            fips: reader.text("COMPLIANCE_POLICY", "") == "fips-140-2",
            strip_fragment: reader.flag("HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", true),
            host_ip: reader.text("HOST_IP", ""),
            log_as_json: false,
        }
    }
}

/// The value of a variable that is not empty.
pub(crate) fn text<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

struct Reader<'a> {
    variables: &'a Variables,
    diagnostics: &'a mut Diagnostics,
}

impl Reader<'_> {
    fn given(&self, name: &str) -> bool {
        text(self.variables, name).is_some()
    }

    fn text(&self, name: &str, default: &str) -> String {
        text(self.variables, name).unwrap_or(default).to_owned()
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        let Some(value) = text(self.variables, name) else { return default };
        parse_bool(value).unwrap_or_else(|| {
            self.diagnostics.add(name, format_args!("{value:?} is not a boolean; using {default}"));
            default
        })
    }

    fn parsed<T: FromStr + std::fmt::Display>(&mut self, name: &str, default: T) -> T {
        let Some(value) = text(self.variables, name) else { return default };
        value.parse().unwrap_or_else(|_| {
            self.diagnostics.add(name, format_args!("{value:?} is not a port; using {default}"));
            default
        })
    }
}
