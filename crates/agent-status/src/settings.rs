//! The settings of the status port, from the variables that the injector writes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use serde::Deserialize;

/// The ports of the mesh, which are no metrics ports of applications.
const RESERVED: &[u16] = &[15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090];
/// The kinds of probes in paths below `/app-health/` and `/app-lifecycle/`.
const PROBES: &[&str] = &["livez", "readyz", "startupz", "prestopz", "poststartz"];

/// The variable that names the bootstrap file of proxyless gRPC.
pub const GRPC_BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP";

/// The facts of a proxy that the status port depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node<'a> {
    /// Whether the proxy is a sidecar. Only sidecars merge the metrics of applications.
    pub sidecar: bool,
    /// The addresses of the proxy, the preferred one first.
    pub addresses: &'a [IpAddr],
    /// The status port (`statusPort` of the ProxyConfig).
    pub status_port: u16,
    /// Envoy's admin interface: loopback, and `proxyAdminPort` of the ProxyConfig.
    pub admin: SocketAddr,
    /// The bootstrap file of proxyless gRPC, if `GRPC_XDS_BOOTSTRAP` names no other.
    pub grpc_bootstrap: &'a str,
}

/// The settings of the status port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The status port, on all addresses.
    pub port: u16,
    /// Envoy's admin interface; none if there is no Envoy (`DISABLE_ENVOY`).
    pub admin: Option<SocketAddr>,
    /// The port of Envoy's metrics (`ENVOY_PROMETHEUS_PORT`), if they are merged (`PILOT_AGENT_MERGE_ENVOY_STATS`).
    pub envoy_metrics: Option<u16>,
    /// The metrics of the application (`ISTIO_PROMETHEUS_ANNOTATIONS`).
    pub targets: Vec<Target>,
    /// Whether metrics are for this machine only (`METRICS_LOCALHOST_ACCESS_ONLY`).
    pub local_metrics: bool,
    /// The probes of the application, by path (`ISTIO_KUBE_APP_PROBERS`).
    pub probers: BTreeMap<String, Prober>,
    /// The host that probes connect to: the address of the pod, or `localhost`.
    pub destination: String,
    /// The host that the health check of a virtual machine connects to.
    pub health_destination: String,
    /// Whether HTTPS probes offer HTTP/2 (`ISTIO_ENABLE_HTTP2_PROBING`).
    pub http2: bool,
    /// Whether HTTP probes use connections again (`ENABLE_PROBE_KEEPALIVE_CONNECTIONS`). The kubelet's do not.
    pub keep_alive: bool,
    /// The bootstrap file of proxyless gRPC, which must exist (`GRPC_XDS_BOOTSTRAP`).
    pub grpc_bootstrap: Option<PathBuf>,
}

/// A metrics endpoint of the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The port.
    pub port: u16,
    /// The path, with a leading slash.
    pub path: String,
}

/// A probe of the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prober {
    /// The kind of the probe.
    pub action: Action,
    /// The time in which it must succeed. Lifecycle hooks have none.
    pub timeout: Option<Duration>,
}

/// The kind of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// An HTTP request. Its headers are those of the kubelet's request.
    Http {
        /// The port.
        port: u16,
        /// The path with the query, with a leading slash.
        path: String,
        /// Whether it is HTTPS.
        tls: bool,
    },
    /// A TCP connection.
    Tcp {
        /// The port.
        port: u16,
    },
    /// A request to the gRPC health service.
    Grpc {
        /// The port.
        port: u16,
        /// The service; empty for the server as a whole.
        service: String,
    },
}

/// The reason why there are no settings.
#[derive(thiserror::Error, Debug)]
pub enum SettingsError {
    /// A variable is not valid.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A variable that the injector writes is not valid.
    #[error("the environment variable {variable} is not valid: {reason}")]
    Injected {
        /// The name of the variable.
        variable: &'static str,
        /// The reason.
        reason: String,
    },
}

impl Settings {
    /// The settings of a proxy.
    ///
    /// # Errors
    /// A variable is not valid.
    pub fn from_environment(environment: &Environment, node: &Node<'_>) -> Result<Settings, SettingsError> {
        let envoy = !environment.flag("DISABLE_ENVOY", false)?;
        let merges = environment.flag("PILOT_AGENT_MERGE_ENVOY_STATS", true)?;
        let legacy = environment.flag("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", false)?;
        let pod: Option<IpAddr> = environment.text("INSTANCE_IP").and_then(|ip| ip.parse().ok());
        let host = |ip: Option<IpAddr>| ip.filter(|_| !legacy).map_or("localhost".to_owned(), |ip| ip.to_string());
        let annotations = environment.text("ISTIO_PROMETHEUS_ANNOTATIONS").filter(|_| node.sidecar);
        let injected = |variable| move |reason| SettingsError::Injected { variable, reason };
        let prometheus_port = environment.parsed("ENVOY_PROMETHEUS_PORT", 15090)?;
        Ok(Settings {
            port: node.status_port,
            admin: envoy.then_some(node.admin),
            envoy_metrics: (envoy && merges).then_some(prometheus_port),
            targets: annotations
                .map_or(Ok(vec![]), |text| targets(text, node.status_port))
                .map_err(injected("ISTIO_PROMETHEUS_ANNOTATIONS"))?,
            local_metrics: environment.flag("METRICS_LOCALHOST_ACCESS_ONLY", false)?,
            probers: environment
                .text("ISTIO_KUBE_APP_PROBERS")
                .map_or(Ok(BTreeMap::new()), probers)
                .map_err(injected("ISTIO_KUBE_APP_PROBERS"))?,
            destination: host(pod),
            health_destination: host(node.addresses.first().copied()),
            http2: environment.flag("ISTIO_ENABLE_HTTP2_PROBING", true)?,
            keep_alive: environment.flag("ENABLE_PROBE_KEEPALIVE_CONNECTIONS", false)?,
            grpc_bootstrap: Some(environment.text_or(GRPC_BOOTSTRAP, node.grpc_bootstrap).into()),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    scrape: String,
    path: String,
    port: String,
    targets: Vec<AnnotatedTarget>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AnnotatedTarget {
    path: String,
    port: String,
}

/// Parses the metrics endpoints of the application.
///
/// # Errors
/// The text is not JSON, or a port cannot be scraped.
pub fn targets(text: &str, status_port: u16) -> Result<Vec<Target>, String> {
    let mut annotations: Annotations = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if annotations.scrape == "false" {
        return Ok(vec![]);
    }
    if annotations.targets.is_empty() {
        let port = if annotations.port.is_empty() { "80".to_owned() } else { annotations.port };
        annotations.targets.push(AnnotatedTarget { path: annotations.path, port });
    }
    let target = |AnnotatedTarget { path, port }: AnnotatedTarget| {
        let number = port.parse().ok().filter(|number| *number > 0);
        let number: u16 = number.ok_or_else(|| format!("the port {port:?} is not a number from 1 to 65535"))?;
        if number == status_port || RESERVED.contains(&number) {
            return Err(format!(
                "the port {number} belongs to the mesh; annotate the application's port (prometheus.io/port)"
            ));
        }
        Ok(Target { port: number, path: if path.is_empty() { "/metrics".to_owned() } else { absolute(&path) } })
    };
    annotations.targets.into_iter().map(target).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InjectedProber {
    http_get: Option<HttpGet>,
    tcp_socket: Option<Port>,
    grpc: Option<Port>,
    #[serde(default)]
    timeout_seconds: i32,
}

#[derive(Deserialize)]
struct HttpGet {
    #[serde(default)]
    path: String,
    port: u16,
    #[serde(default)]
    scheme: String,
}

#[derive(Deserialize)]
struct Port {
    port: u16,
    #[serde(default)]
    service: Option<String>,
}

/// Parses the probes of the application.
///
/// # Errors
/// The text is not JSON, or a path or probe is not valid.
pub fn probers(text: &str) -> Result<BTreeMap<String, Prober>, String> {
    let injected: BTreeMap<String, InjectedProber> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    injected.into_iter().map(|(path, prober)| Ok((path.clone(), self::prober(&path, prober)?))).collect()
}

fn prober(path: &str, prober: InjectedProber) -> Result<Prober, String> {
    let parts: Vec<&str> = path.split('/').collect();
    let known = matches!(&parts[..], ["", "app-health" | "app-lifecycle", container, kind]
        if !container.is_empty() && PROBES.contains(kind));
    if !known {
        return Err(format!("{path:?} is not a path like /app-health/CONTAINER/livez"));
    }
    let action = match (prober.http_get, prober.tcp_socket, prober.grpc) {
        (Some(HttpGet { path, port, scheme }), None, None) => {
            Action::Http { port, path: absolute(&path), tls: scheme.eq_ignore_ascii_case("https") }
        }
        (None, Some(Port { port, .. }), None) => Action::Tcp { port },
        (None, None, Some(Port { port, service })) => Action::Grpc { port, service: service.unwrap_or_default() },
        _ => return Err(format!("the probe {path} must have one of httpGet, tcpSocket and grpc")),
    };
    let seconds = u64::try_from(prober.timeout_seconds).ok().filter(|seconds| *seconds > 0);
    Ok(Prober { action, timeout: seconds.map(Duration::from_secs) })
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(variables: &[(&str, &str)], addresses: &[&str], sidecar: bool) -> Result<Settings, SettingsError> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        let node = Node {
            sidecar,
            addresses: &addresses,
            status_port: 15020,
            admin: ([127, 0, 0, 1], 15000).into(),
            grpc_bootstrap: "grpc.json",
        };
        Settings::from_environment(&variables.iter().copied().collect(), &node)
    }

    #[test]
    fn the_addresses_follow_the_family_of_the_pod() {
        for (pod, addresses, destination) in [
            (None, &["10.0.0.1", "fd00::1"][..], "localhost"),
            (Some("10.0.0.1"), &["10.0.0.1"], "10.0.0.1"),
            (Some("fd00::1"), &["fd00::1", "10.0.0.1"], "fd00::1"),
        ] {
            let variables: Vec<_> = pod.map(|pod| ("INSTANCE_IP", pod)).into_iter().collect();
            let found = settings(&variables, addresses, true).unwrap();
            assert_eq!(found.admin.unwrap().to_string(), "127.0.0.1:15000");
            assert_eq!(found.destination, destination, "{pod:?}");
            assert_eq!(found.health_destination, addresses[0]);
            assert_eq!((found.http2, found.keep_alive, found.envoy_metrics), (true, false, Some(15090)));
        }
        let legacy = [
            ("INSTANCE_IP", "10.0.0.1"),
            ("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true"),
            ("DISABLE_ENVOY", "1"),
        ];
        let legacy = settings(&legacy, &["10.0.0.1"], true).unwrap();
        assert_eq!((&*legacy.destination, &*legacy.health_destination), ("localhost", "localhost"));
        assert_eq!((legacy.admin, legacy.envoy_metrics), (None, None));
    }

    #[test]
    fn metrics_endpoints_are_checked() {
        for (text, expected) in [
            (r#"{"scrape":"true","path":"","port":""}"#, Ok("80/metrics")),
            (r#"{"scrape":"true","path":"stats?a=b","port":"9090"}"#, Ok("9090/stats?a=b")),
            (r#"{"scrape":"false","port":"x"}"#, Ok("")),
            (r#"{"port":"1","targets":[{"port":"9100","path":"/a"},{"port":"9101"}]}"#, Ok("9100/a 9101/metrics")),
            (r#"{"port":"015020"}"#, Err("the port 15020 belongs to the mesh")),
            (r#"{"targets":[{"port":"15090"}]}"#, Err("the port 15090 belongs to the mesh")),
            (r#"{"port":"http"}"#, Err(r#"the port "http" is not a number"#)),
            ("{", Err("EOF while parsing")),
        ] {
            let variables = [("ISTIO_PROMETHEUS_ANNOTATIONS", text)];
            match (settings(&variables, &[], true), expected) {
                (Ok(found), Ok(expected)) => {
                    let shown: Vec<_> =
                        found.targets.iter().map(|target| format!("{}{}", target.port, target.path)).collect();
                    assert_eq!(shown.join(" "), expected, "{text}");
                }
                (Err(error), Err(expected)) => {
                    let expected =
                        format!("the environment variable ISTIO_PROMETHEUS_ANNOTATIONS is not valid: {expected}");
                    assert!(error.to_string().starts_with(&expected), "{error}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
            assert!(settings(&variables, &[], false).unwrap().targets.is_empty(), "gateways merge no applications");
        }
    }

    #[test]
    fn probes_are_checked() {
        let text = r#"{"/app-health/web/livez":{"httpGet":{"path":"ok","port":8080,"scheme":"HTTPS","host":"x"},"timeoutSeconds":3},
            "/app-health/web/readyz":{"tcpSocket":{"port":1}},
            "/app-lifecycle/web/prestopz":{"grpc":{"port":2,"service":"s"},"timeoutSeconds":-1}}"#;
        let found = probers(text).unwrap();
        let http = Action::Http { port: 8080, path: "/ok".to_owned(), tls: true };
        assert_eq!(found["/app-health/web/livez"], Prober { action: http, timeout: Some(Duration::from_secs(3)) });
        assert_eq!(found["/app-health/web/readyz"], Prober { action: Action::Tcp { port: 1 }, timeout: None });
        assert_eq!(found["/app-lifecycle/web/prestopz"].action, Action::Grpc { port: 2, service: "s".to_owned() });
        for (wrong, reason) in [
            (r#"{"/app-health/web/other":{"tcpSocket":{"port":1}}}"#, "is not a path"),
            (r#"{"/app-health//livez":{"tcpSocket":{"port":1}}}"#, "is not a path"),
            (r#"{"/app-health/a/b/livez":{"tcpSocket":{"port":1}}}"#, "is not a path"),
            (r#"{"/app-health/web/livez":{}}"#, "must have one of"),
            (r#"{"/app-health/web/livez":{"tcpSocket":{"port":1},"grpc":{"port":1}}}"#, "must have one of"),
            (r#"{"/app-health/web/livez":{"httpGet":{"port":"http"}}}"#, "invalid type: string"),
            ("[]", "invalid type"),
        ] {
            assert!(probers(wrong).unwrap_err().contains(reason), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[{}\\[\\]\":,a-zA-Z0-9/-]{0,200}") {
            let _ = (targets(&text, 15020), probers(&text));
        }
    }
}
