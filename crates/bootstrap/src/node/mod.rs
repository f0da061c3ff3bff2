//! The node of a proxy: ID, cluster, locality and metadata.

mod locality;
mod metadata;
mod platform;
mod role;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::mesh::{AuthenticationPolicy, ProxyClusterName, ProxyConfig, TracingServiceName};
use names::NodeType;
use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostics;
use crate::options::{Options, Variables, text};
use crate::settings::SERVICE_CLUSTER;

pub use locality::Locality;
pub use platform::Platform;
pub use role::Role;

use metadata::Metadata;

pub(crate) type Texts = BTreeMap<String, String>;

/// Labels that name the service of a workload in spans, most important first.
const CANONICAL_NAMES: [&str; 3] = ["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"];
/// The label of the workload's locality.
const LOCALITY_LABELS: [&str; 2] = ["topology.istio.io/locality", "istio-locality"];
/// The label of ReplicaSets, which is not reported.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The surroundings of the proxy, as the agent found them.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The environment variables of the agent.
    pub variables: &'a Variables,
    /// The labels of the pod, from `/etc/istio/pod/labels`; none if there is no such file.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// The annotations of the pod, from `/etc/istio/pod/annotations`.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// The cloud platform.
    pub platform: Platform,
    /// Whether the Unix socket of credentials exists, `./var/run/secrets/credential-uds/socket`.
    pub credential_socket: bool,
    /// Whether the agent serves secrets from files only, because another SDS server has the workload's certificate.
    pub serves_only_files: bool,
    /// `--outlierLogPath`.
    pub outlier_log_path: &'a str,
    /// `--stsPort`; 0 for none.
    pub sts_port: u16,
    /// The version of the agent, reported as `ISTIO_VERSION`.
    pub version: &'a str,
}

/// The node of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// `TYPE~IP~POD.NAMESPACE~DOMAIN`.
    pub id: String,
    /// The name of the service in traces.
    pub cluster: String,
    /// The locality.
    pub locality: Locality,
    /// The metadata, in the form of Istio's agent.
    pub metadata: Map<String, Value>,
    pub(crate) role: Role,
    pub(crate) settings: ProxyConfig,
    pub(crate) options: Options,
    pub(crate) annotations: Texts,
    pub(crate) platform: Texts,
    pub(crate) pilot_san: Vec<String>,
}

impl Node {
    /// Describes the proxy. Values that cannot be used give diagnostics.
    #[must_use]
    pub fn new(
        role: &Role,
        settings: &ProxyConfig,
        options: &Options,
        facts: &Facts<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Node {
        let variables = facts.variables;
        let mut metadata = Metadata::read(settings, variables, diagnostics);
        let pilot_san = match settings.control_plane_auth_policy {
            AuthenticationPolicy::MutualTls => vec![pilot_san(&settings.discovery_address)],
            _ => Vec::new(),
        };
        metadata.set("PILOT_SAN", json!(pilot_san));
        report_options(&mut metadata, options, facts, role);
        for (variable, key) in
            [("POD_NAME", "NAME"), ("POD_NAMESPACE", "NAMESPACE"), ("SERVICE_ACCOUNT", "SERVICE_ACCOUNT")]
        {
            if let Some(value) = variables.get(variable) {
                metadata.set(key, json!(value));
            }
        }
        if !facts.platform.metadata.is_empty() {
            metadata.set("PLATFORM_METADATA", json!(facts.platform.metadata));
        }
        metadata.set("PROXY_CONFIG", settings.to_json());
        let mut labels = report_labels(&mut metadata, facts, diagnostics);
        let mut annotations = metadata.texts("ANNOTATIONS");
        annotations.extend(facts.annotations.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        metadata.set("ANNOTATIONS", json!(annotations));
        let locality = match LOCALITY_LABELS.iter().find_map(|name| labels.get(*name)).filter(|text| !text.is_empty()) {
            None => facts.platform.locality.clone(),
            Some(label) => {
                let path = locality::path(label);
                labels.insert(LOCALITY_LABELS[1].to_owned(), path.clone());
                Locality::from_path(&path)
            }
        };
        metadata.set("LABELS", json!(labels));
        Node {
            id: role.id(),
            cluster: cluster(settings, &labels, &metadata),
            locality,
            metadata: metadata.into_map(),
            role: role.clone(),
            settings: settings.clone(),
            options: options.clone(),
            annotations,
            platform: facts.platform.metadata.clone(),
            pilot_san,
        }
    }

    /// The loopback address of Envoy's own listeners and of its admin interface. Proxies with addresses of both families use IPv4, or
    /// with `ISTIO_DUAL_STACK` the family of their first address.
    #[must_use]
    pub fn loopback(&self) -> IpAddr {
        let is_dual = !self.role.is_ipv4() && !self.role.is_ipv6();
        let is_ipv6 = match is_dual {
            true => self.options.dual_stack && self.role.addresses.first().is_some_and(IpAddr::is_ipv6),
            false => !self.role.is_ipv4(),
        };
        if is_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.metadata.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_waypoint(&self) -> bool {
        self.role.kind == NodeType::Waypoint
    }

    /// Whether Envoy asks the control plane for workloads. State of the world has no such type.
    pub(crate) fn discovers_metadata(&self) -> bool {
        self.is_waypoint() || (self.text("METADATA_DISCOVERY") == "true" && self.options.delta)
    }
}

fn report_options(metadata: &mut Metadata, options: &Options, facts: &Facts<'_>, role: &Role) {
    let flag = |on: bool| if on { json!("true") } else { Value::Null };
    let mut addresses: Vec<String> = Vec::new();
    for address in role.addresses.iter().map(ToString::to_string) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    metadata.default_text("ISTIO_VERSION", facts.version);
    metadata.set("INSTANCE_IPS", json!(addresses.join(",")));
    if facts.sts_port != 0 {
        metadata.set("STS_PORT", json!(facts.sts_port.to_string()));
    }
    for (key, port) in [
        ("ENVOY_STATUS_PORT", options.status_port),
        ("ENVOY_PROMETHEUS_PORT", options.prometheus_port),
        ("ENVOY_SECURE_METRICS_PORT", options.secure_metrics_port),
        ("ENVOY_SECURE_MERGED_METRICS_PORT", options.secure_merged_metrics_port),
    ] {
        metadata.set(key, if port == 0 { Value::Null } else { json!(port) });
    }
    metadata.set("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", flag(options.exit_on_zero));
    let discovery = options.metadata_discovery.unwrap_or_else(|| metadata.flag("ENABLE_HBONE"));
    metadata.set("METADATA_DISCOVERY", json!(discovery.to_string()));
    metadata.set("ENVOY_SKIP_DEPRECATED_LOGS", flag(options.skip_deprecated_logs));
    metadata.set("WORKLOAD_IDENTITY_SOCKET_FILE", json!(options.socket_file));
    metadata.set("OUTLIER_LOG_PATH", json!(facts.outlier_log_path));
    if facts.credential_socket {
        metadata.raw("credential", "true");
    }
    if facts.serves_only_files {
        metadata.raw("file-credential", "true");
    }
}

/// Sets `STATIC_LABELS` and returns the labels: those of the pod over the static ones.
fn report_labels(metadata: &mut Metadata, facts: &Facts<'_>, diagnostics: &mut Diagnostics) -> Texts {
    let mut labels = metadata.texts("LABELS");
    let mut fixed = metadata.texts("STATIC_LABELS");
    if let Some(value) = text(facts.variables, "ISTIO_METAJSON_LABELS") {
        match serde_json::from_str::<Texts>(value) {
            Ok(given) if given.is_empty() => {}
            Ok(given) => (labels, fixed) = (given.clone(), given),
            Err(error) => {
                diagnostics.add("ISTIO_METAJSON_LABELS", format_args!("is not an object of strings: {error}"))
            }
        }
    }
    metadata.set("STATIC_LABELS", json!(fixed));
    let Some(pod) = facts.labels else { return labels };
    let of_pod = pod.iter().filter(|(name, _)| *name != TEMPLATE_HASH).map(|(k, v)| (k.clone(), v.clone()));
    fixed.into_iter().chain(of_pod).collect()
}

/// The name that the control plane's certificate must have.
fn pilot_san(discovery_address: &str) -> String {
    match discovery_address.split(':').next().unwrap_or_default() {
        "localhost" => "istiod.istio-system.svc",
        host => host,
    }
    .to_owned()
}

/// The name of the service in traces.
fn cluster(settings: &ProxyConfig, labels: &Texts, metadata: &Metadata) -> String {
    let namespace = metadata.text("NAMESPACE");
    let workload = metadata.text("WORKLOAD_NAME");
    let canonical = || {
        let fallback = if workload.is_empty() { SERVICE_CLUSTER } else { workload };
        CANONICAL_NAMES.iter().find_map(|name| labels.get(*name)).map_or(fallback, String::as_str)
    };
    let name = match &settings.cluster_name {
        Some(ProxyClusterName::ServiceCluster(name)) => name,
        Some(ProxyClusterName::Tracing(TracingServiceName::CanonicalNameOnly)) => canonical(),
        Some(ProxyClusterName::Tracing(TracingServiceName::CanonicalNameAndNamespace)) if !namespace.is_empty() => {
            return format!("{}.{namespace}", canonical());
        }
        Some(ProxyClusterName::Tracing(TracingServiceName::CanonicalNameAndNamespace)) => canonical(),
        _ => SERVICE_CLUSTER,
    };
    if !name.is_empty() && name != SERVICE_CLUSTER {
        return name.to_owned();
    }
    let app = CANONICAL_NAMES.iter().rev().find_map(|name| labels.get(*name)).map(String::as_str);
    match app.or(Some(workload).filter(|name| !name.is_empty())) {
        Some(name) => format!("{name}.{namespace}"),
        None if namespace.is_empty() => SERVICE_CLUSTER.to_owned(),
        None => format!("{SERVICE_CLUSTER}.{namespace}"),
    }
}
