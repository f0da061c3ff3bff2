//! Pods: whether their traffic is captured, and the settings in their annotations.

use std::collections::BTreeMap;

use interception::{Config, ConfigError};
use protos::parse_bool;
use serde::Deserialize;

/// The container with the proxy.
const PROXY: &str = "istio-proxy";
/// The container that makes the rules if there is no CNI plugin.
const INIT: &str = "istio-init";
/// The annotation of injected pods.
pub(crate) const STATUS: &str = "sidecar.istio.io/status";
const INJECT: &str = "sidecar.istio.io/inject";
const MODE: &str = "sidecar.istio.io/interceptionMode";
/// Ports that are never captured: those of the agent and of Envoy's own listeners.
const OWN_PORTS: [&str; 3] = ["15020", "15021", "15090"];

/// The fields of a pod that matter here.
#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Pod {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    init_containers: Vec<Container>,
    containers: Vec<Container>,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    args: Vec<String>,
    env: Vec<Variable>,
    security_context: SecurityContext,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) last_state: State,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Clone, Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Terminated {
    pub(crate) exit_code: i64,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// An annotation that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the annotation {name} of the pod: {reason}")]
pub struct AnnotationError {
    name: &'static str,
    reason: String,
}

impl Pod {
    /// The proxy's container. A sidecar is among the init containers if Kubernetes supports it.
    fn proxy(&self) -> Option<&Container> {
        self.containers().find(|container| container.name == PROXY)
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().chain(&self.spec.containers)
    }

    /// The reason why the pod's traffic is not captured; none if it is.
    #[must_use]
    pub fn excluded(&self) -> Option<String> {
        if self.containers().any(|container| container.name == INIT) {
            return Some(format!("the container {INIT} captures its traffic"));
        }
        let Some(proxy) = self.proxy() else { return Some(format!("it has no container {PROXY}")) };
        if proxy.flag("DISABLE_ENVOY") {
            return Some(format!("DISABLE_ENVOY is true in its container {PROXY}"));
        }
        let kind = proxy.args.get(1).filter(|_| proxy.args[0] == "proxy");
        if let Some(kind) = kind.filter(|kind| *kind != "sidecar") {
            return Some(format!("its proxy is a {kind:?}, not a sidecar"));
        }
        let Metadata { labels, annotations, .. } = &self.metadata;
        let inject = labels.get(INJECT).or_else(|| annotations.get(INJECT));
        if inject.is_some_and(|value| parse_bool(value) == Some(false)) {
            return Some(format!("{INJECT} is false"));
        }
        if !annotations.contains_key(STATUS) {
            return Some(format!("it has no annotation {STATUS}"));
        }
        (annotations.get(MODE)? == "NONE").then(|| format!("the annotation {MODE} is NONE"))
    }

    /// The settings of the capture in the pod's network namespace.
    ///
    /// # Errors
    /// An annotation has a value that cannot be used.
    pub fn config(&self, namespace: &str) -> Result<Config, AnnotationError> {
        let mut config = Config { cni_mode: true, reconcile: true, ..Config::default() };
        config.network_namespace = namespace.to_owned();
        let proxy = self.proxy();
        let id = |of: fn(&SecurityContext) -> Option<u32>| {
            let id = proxy.and_then(|proxy| of(&proxy.security_context)).filter(|id| *id != 0);
            vec![interception::Owner::of(id.unwrap_or(1337))]
        };
        config.proxy_users = id(|context| context.run_as_user);
        config.proxy_groups = id(|context| context.run_as_group);
        for (flag, names, default) in ANNOTATIONS {
            let given = names.iter().find_map(|name| Some((*name, self.metadata.annotations.get(*name)?.as_str())));
            let (name, value) = given.unwrap_or((names[0], default));
            let value = if *flag == "istio-local-exclude-ports" { with_own_ports(value) } else { value.to_owned() };
            config.set(flag, &value).map_err(|error| AnnotationError { name, reason: reason(error) })?;
        }
        if let Some(proxy) = proxy {
            config.redirect_dns = proxy.flag("ISTIO_META_DNS_CAPTURE");
            // The servers of the pod are not known here.
            config.capture_all_dns = config.redirect_dns;
            config.dual_stack = proxy.flag("ISTIO_DUAL_STACK");
            config.drop_invalid = proxy.flag("INVALID_DROP");
        }
        Ok(config)
    }
}

/// The flag of each annotation, and its default. The first annotation that is there counts.
const ANNOTATIONS: &[(&str, &[&str], &str)] = &[
    ("istio-inbound-interception-mode", &[MODE], "REDIRECT"),
    ("istio-service-cidr", &["traffic.sidecar.istio.io/includeOutboundIPRanges"], "*"),
    ("istio-service-exclude-cidr", &["traffic.sidecar.istio.io/excludeOutboundIPRanges"], ""),
    ("istio-inbound-ports", &["traffic.sidecar.istio.io/includeInboundPorts"], "*"),
    ("istio-local-exclude-ports", &["traffic.sidecar.istio.io/excludeInboundPorts"], "15020"),
    ("istio-outbound-ports", &["traffic.sidecar.istio.io/includeOutboundPorts"], ""),
    ("istio-local-outbound-ports-exclude", &["traffic.sidecar.istio.io/excludeOutboundPorts"], "15020"),
    ("istio-exclude-interfaces", &["traffic.sidecar.istio.io/excludeInterfaces"], ""),
    (
        "kube-virt-interfaces",
        &["istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces"],
        "",
    ),
];

fn reason(error: ConfigError) -> String {
    match error {
        ConfigError::Value { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// A list of ports with those of the agent and of Envoy, each once.
fn with_own_ports(value: &str) -> String {
    let mut ports: Vec<&str> = Vec::new();
    for port in value.split(',').map(str::trim).filter(|port| !port.is_empty()).chain(OWN_PORTS) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports.join(",")
}

impl Container {
    fn flag(&self, name: &str) -> bool {
        // The last of several variables with the same name counts.
        let value = self.env.iter().rev().find(|variable| variable.name == name);
        value.and_then(|variable| parse_bool(&variable.value)) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(proxy: Value, annotations: Value) -> Pod {
        let spec = json!({ "containers": [{ "name": "app" }, proxy] });
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn only_injected_sidecars_are_captured() {
        let injected = json!({ "sidecar.istio.io/status": "{}" });
        let named = |name: &str| json!({ "name": name });
        let of_kind = |kind: &str| json!({ "name": "istio-proxy", "args": ["proxy", kind] });
        let no_envoy = json!({ "name": "istio-proxy", "env": [{ "name": "DISABLE_ENVOY", "value": "true" }] });
        for (proxy, annotations, reason) in [
            (named("istio-proxy"), injected.clone(), None),
            (of_kind("sidecar"), injected.clone(), None),
            (of_kind("router"), injected.clone(), Some("router")),
            (named("istio-init"), injected.clone(), Some("istio-init")),
            (named("envoy"), injected.clone(), Some("no container istio-proxy")),
            (no_envoy, injected.clone(), Some("DISABLE_ENVOY")),
            (named("istio-proxy"), json!({}), Some("sidecar.istio.io/status")),
            (named("istio-proxy"), json!({ STATUS: "", INJECT: "false" }), Some(INJECT)),
            (named("istio-proxy"), json!({ STATUS: "", INJECT: "maybe" }), None),
            (named("istio-proxy"), json!({ STATUS: "", MODE: "NONE" }), Some(MODE)),
        ] {
            let excluded = pod(proxy.clone(), annotations).excluded();
            let contains = |text: &str| excluded.as_ref().is_some_and(|excluded| excluded.contains(text));
            assert!(reason.map_or(excluded.is_none(), contains), "{proxy} {excluded:?}");
        }
        // The label is newer than the annotation.
        let mut labeled = pod(named("istio-proxy"), json!({ STATUS: "", INJECT: "false" }));
        labeled.metadata.labels.insert(INJECT.to_owned(), "true".to_owned());
        assert_eq!(labeled.excluded(), None);
    }

    #[test]
    fn annotations_become_settings() {
        let traffic = |name: &str| format!("traffic.sidecar.istio.io/{name}");
        let annotations = json!({
            MODE: "TPROXY",
            traffic("includeOutboundIPRanges"): "10.0.0.0/8",
            traffic("excludeOutboundIPRanges"): "10.1.0.0/16",
            traffic("includeInboundPorts"): "80,443",
            traffic("excludeInboundPorts"): "22, 15020,",
            traffic("includeOutboundPorts"): "9000",
            traffic("excludeOutboundPorts"): "25",
            traffic("excludeInterfaces"): "eth1",
            traffic("kubevirtInterfaces"): "old1",
            "istio.io/reroute-virtual-interfaces": "net1,net2",
        });
        let security = json!({ "name": "istio-proxy", "securityContext": { "runAsUser": 0, "runAsGroup": 7 } });
        let config = pod(security, annotations).config("/run/netns/x").expect("settings");
        let mut expected = Config { cni_mode: true, reconcile: true, ..Config::default() };
        for (flag, value) in [
            ("network-namespace", "/run/netns/x"),
            ("proxy-uid", "1337"),
            ("proxy-gid", "7"),
            ("istio-inbound-interception-mode", "TPROXY"),
            ("istio-service-cidr", "10.0.0.0/8"),
            ("istio-service-exclude-cidr", "10.1.0.0/16"),
            ("istio-inbound-ports", "80,443"),
            ("istio-local-exclude-ports", "22,15020,15021,15090"),
            ("istio-outbound-ports", "9000"),
            ("istio-local-outbound-ports-exclude", "25"),
            ("istio-exclude-interfaces", "eth1"),
            ("kube-virt-interfaces", "net1,net2"),
        ] {
            expected.set(flag, value).expect("a value");
        }
        assert_eq!(config, expected);
        let wrong = pod(json!({ "name": "istio-proxy" }), json!({ traffic("includeInboundPorts"): "http" }));
        let error = wrong.config("/run/netns/x").expect_err("not a port").to_string();
        assert!(
            error.contains("traffic.sidecar.istio.io/includeInboundPorts") && error.contains("\"http\""),
            "{error}"
        );
    }
}
