//! The arguments of the command `proxy`.

use std::path::PathBuf;

use names::NodeType;

/// The arguments of the command `proxy`, with the names and meanings of Istio's agent.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The type of the proxy.
    pub kind: NodeType,
    /// `--domain`: the DNS domain of the proxy; empty for `NAMESPACE.svc.cluster.local`.
    pub domain: String,
    /// `--meshConfig`: the file of the mesh configuration. It may be absent.
    pub mesh_config: PathBuf,
    /// `--proxyLogLevel`: the levels of Envoy's log, like `warning,misc:error`.
    pub log_level: String,
    /// `--proxyComponentLogLevel`.
    pub component_log_level: String,
    /// `--concurrency`: the number of Envoy's worker threads; 0 if it is not given.
    pub concurrency: i32,
    /// `--templateFile`: a template of the bootstrap.
    pub template_file: String,
    /// `--outlierLogPath`: the file of Envoy's log of ejected endpoints.
    pub outlier_log_path: String,
    /// `--stsPort`. The agent has no such service; a port is reported to the control plane only.
    pub sts_port: u16,
    /// `--log_as_json`: whether Envoy's log is JSON.
    pub log_as_json: bool,
}
