//! The settings of a Gateway's proxy: those of ProxyConfig objects, of annotations, and of the ConfigMap of `parametersRef`.
//!
//! They have the precedence that they have in Kubernetes. The flags of `rutter gateway run` take the place of `defaultConfig`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use config::mesh::{NamespaceProxyConfigs, PROXY_CONFIG_ANNOTATION, ProxyConfig, ProxyConfigLayer, ProxyConfigLayers};
use config::{AnyObject, Limits, Object, ParseOptions, StringMap, istio, parse_yaml_json, read_object};
use serde_json::Value;

use crate::gateway::{Gateway, Id, Texts};

/// The keys of ConfigMaps with parameters. Only the first one has an effect without Kubernetes.
const KEYS: [&str; 5] = [DEPLOYMENT, "service", "serviceAccount", "horizontalPodAutoscaler", "podDisruptionBudget"];
const DEPLOYMENT: &str = "deployment";
/// The fields of a ProxyConfig that have an effect without an agent.
const FIELDS: [&str; 7] = [
    "concurrency",
    "drainDuration",
    "terminationDrainDuration",
    "fileFlushInterval",
    "fileFlushMinSizeKb",
    "proxyMetadata",
    "runtimeValues",
];
/// The variables that have an effect. Others could run code on this machine, such as `LD_PRELOAD`.
const VARIABLES: [&str; 6] = [
    "ENVOY_HOT_RESTART",
    "ENVOY_SKIP_DEPRECATED_LOGS",
    "ISTIO_ENVOY_ENABLE_CORE_DUMP",
    "COMPLIANCE_POLICY",
    "MINIMUM_DRAIN_DURATION",
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
];
/// The prefix of variables that become metadata of the node.
const METADATA: &str = "ISTIO_META_";
/// Annotations of a proxy with the level of Envoy's log.
const LOG_LEVEL: &str = "sidecar.istio.io/logLevel";
const COMPONENT_LOG_LEVEL: &str = "sidecar.istio.io/componentLogLevel";

/// The settings of the proxy of a Gateway.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tuning {
    pub(crate) settings: ProxyConfig,
    /// Empty for that of the flag.
    pub(crate) log_level: String,
    pub(crate) component_log_level: String,
    /// Metadata of the node.
    pub(crate) metadata: Texts,
    /// Variables of the supervisor.
    pub(crate) variables: Texts,
    /// The settings without an effect, and the reasons of some.
    pub(crate) ignored: BTreeSet<String>,
}

/// The objects besides Gateways on which the settings depend.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    root_namespace: String,
    configs: BTreeMap<Id, Arc<Object<istio::ProxyConfig>>>,
    /// The data of ConfigMaps with parameters.
    parameters: BTreeMap<Id, Value>,
}

impl Sources {
    pub(crate) fn new(root_namespace: &str) -> Sources {
        Sources { root_namespace: root_namespace.to_owned(), ..Sources::default() }
    }

    /// Sees a ProxyConfig.
    pub(crate) fn config(&mut self, object: &Value, there: bool) {
        let mut object = object.clone();
        // Items of a list have neither.
        object["apiVersion"] = "networking.istio.io/v1beta1".into();
        object["kind"] = "ProxyConfig".into();
        let read = there.then(|| read_object(&object, &ParseOptions::default()).object).flatten();
        match read {
            Some(AnyObject::ProxyConfig(config)) => drop(self.configs.insert(Id::of(&object), config)),
            _ => drop(self.configs.remove(&Id::of(&object))),
        }
    }

    /// Sees a ConfigMap. Returns whether parameters changed.
    pub(crate) fn config_map(&mut self, object: &Value, there: bool) -> bool {
        let (id, data) = (Id::of(object), &object["data"]);
        match there && KEYS.iter().any(|key| data[key].is_string()) {
            true => self.parameters.insert(id, data.clone()).as_ref() != Some(data),
            false => self.parameters.remove(&id).is_some(),
        }
    }

    /// Forgets the ProxyConfigs of a namespace, or of all.
    pub(crate) fn forget_configs(&mut self, namespace: Option<&str>) {
        self.configs.retain(|id, _| namespace.is_some_and(|namespace| id.namespace != namespace));
    }

    /// Forgets all ConfigMaps.
    pub(crate) fn forget_config_maps(&mut self) {
        self.parameters.clear();
    }

    /// The settings of the proxy of a Gateway, whose labels and annotations get those of the parameters.
    pub(crate) fn of(&self, gateway: &mut Gateway, defaults: &ProxyConfig) -> Tuning {
        let mut ignored = BTreeSet::new();
        self.apply_parameters(gateway, &mut ignored);
        let annotation = gateway.annotations.get(PROXY_CONFIG_ANNOTATION).map(|text| ProxyConfigLayer::parse(text));
        let annotation = annotation.and_then(|layer| match layer {
            Ok(layer) => Some(layer),
            Err(error) => {
                ignored.insert(format!("the annotation {PROXY_CONFIG_ANNOTATION} ({error})"));
                None
            }
        });
        let settings = self.layers(gateway, annotation).over(defaults);
        let shown = settings.to_json();
        let base = defaults.to_json();
        let set = shown.as_object().into_iter().flatten().filter(|(name, value)| base[name.as_str()] != **value);
        ignored.extend(set.filter(|(name, _)| !FIELDS.contains(&&***name)).map(|(name, _)| name.clone()));
        let (mut metadata, mut variables) = (Texts::new(), Texts::new());
        for (name, value) in &settings.proxy_metadata {
            match name.strip_prefix(METADATA) {
                Some(key) => drop(metadata.insert(key.to_owned(), value.to_string())),
                None if VARIABLES.contains(&&**name) => match check(name, value) {
                    Ok(()) => drop(variables.insert(name.to_string(), value.to_string())),
                    Err(error) => drop(ignored.insert(error.to_string())),
                },
                None => drop(ignored.insert(format!("the variable {name}"))),
            }
        }
        let annotated = |name: &str| gateway.annotations.get(name).cloned().unwrap_or_default();
        let (log_level, component_log_level) = (annotated(LOG_LEVEL), annotated(COMPONENT_LOG_LEVEL));
        Tuning { settings, log_level, component_log_level, metadata, variables, ignored }
    }

    fn layers(&self, gateway: &Gateway, annotation: Option<ProxyConfigLayer>) -> ProxyConfigLayers {
        let of_namespace = |namespace: &str| {
            let all = self.configs.iter().filter(|(id, _)| id.namespace == namespace);
            NamespaceProxyConfigs::of(all.map(|(_, config)| config.clone()).collect())
        };
        let root = of_namespace(&self.root_namespace);
        let own = (gateway.id.namespace != self.root_namespace).then(|| of_namespace(&gateway.id.namespace));
        let pairs = gateway.labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
        let labels: StringMap = pairs.collect();
        let layer =
            |found: Option<&Arc<Object<istio::ProxyConfig>>>| found.map(|one| ProxyConfigLayer::from_object(&one.spec));
        ProxyConfigLayers {
            mesh: layer(root.common.as_ref()),
            namespace: layer(own.as_ref().and_then(|own| own.common.as_ref())),
            annotation,
            workload: layer(own.as_ref().unwrap_or(&root).selecting(&labels)),
        }
    }

    /// Adds the labels and annotations that the parameters give to pods. All else is about objects of Kubernetes.
    fn apply_parameters(&self, gateway: &mut Gateway, ignored: &mut BTreeSet<String>) {
        let name = match &gateway.parameters {
            None => return,
            Some(Ok(name)) => name.clone(),
            Some(Err(kind)) => {
                ignored.insert(format!("parametersRef (its kind is {kind}: use a ConfigMap)"));
                return;
            }
        };
        let Some(data) = self.parameters.get(&Id { namespace: gateway.id.namespace.clone(), name: name.clone() })
        else {
            ignored.insert(format!("parametersRef (there is no ConfigMap {name:?} with one of {})", KEYS.join(", ")));
            return;
        };
        for (key, text) in data.as_object().into_iter().flatten() {
            if key != DEPLOYMENT {
                ignored.insert(format!("{key} of ConfigMap {name}"));
                continue;
            }
            let text = text.as_str().unwrap_or_default();
            let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
            if let Some(error) = parsed.errors.first() {
                ignored.insert(format!("{key} of ConfigMap {name} ({})", error.message));
            }
            let Some(document) = parsed.documents.into_iter().next() else { continue };
            let pods = &document.value["spec"]["template"]["metadata"];
            for (field, texts) in [("labels", &mut gateway.labels), ("annotations", &mut gateway.annotations)] {
                for (name, value) in crate::gateway::free(&pods[field]) {
                    texts.insert(name, value);
                }
            }
            leaves(&document.value, DEPLOYMENT, ignored);
        }
    }
}

/// Checks the value of a variable.
fn check(name: &str, value: &str) -> Result<(), EnvironmentError> {
    let environment: Environment = [(name, value)].into_iter().collect();
    match name {
        "COMPLIANCE_POLICY" => Ok(()),
        "MINIMUM_DRAIN_DURATION" => environment.duration(name, Duration::ZERO).map(drop),
        _ => environment.flag(name, false).map(drop),
    }
}

/// The paths of the values that have no effect.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    const USED: [&str; 4] = [
        "deployment.apiVersion",
        "deployment.kind",
        "deployment.spec.template.metadata.labels",
        "deployment.spec.template.metadata.annotations",
    ];
    match value {
        _ if USED.contains(&path) => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, &format!("{path}.{name}"), found))
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gateway() -> Gateway {
        Gateway::of(&json!({
            "metadata": {"namespace": "shop", "name": "edge"},
            "spec": {"gatewayClassName": "istio", "infrastructure": {
                "annotations": {PROXY_CONFIG_ANNOTATION: "{drainDuration: 7s, statusPort: 99}"},
                "parametersRef": {"group": "", "kind": "ConfigMap", "name": "tuned"},
            }},
        }))
    }

    fn config(namespace: &str, name: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
    }

    fn sources() -> Sources {
        let mut sources = Sources::new("istio-system");
        let selector = json!({"matchLabels": {"team": "blue"}});
        let variables = json!({"ISTIO_META_IDLE_TIMEOUT": "1h", "ENVOY_HOT_RESTART": "false", "LD_PRELOAD": "x.so",
            "MINIMUM_DRAIN_DURATION": "soon"});
        for (namespace, name, spec) in [
            ("istio-system", "all", json!({"concurrency": 4, "environmentVariables": variables})),
            ("shop", "blue", json!({"selector": selector, "concurrency": 3})),
            ("bank", "other", json!({"concurrency": 9})),
        ] {
            sources.config(&config(namespace, name, &spec), true);
        }
        let deployment = "spec:\n  replicas: 3\n  template:\n    metadata:\n      labels: { team: blue, \
                          gateway.networking.k8s.io/gateway-name: x }\n      annotations: { sidecar.istio.io/logLevel: debug }\n";
        let data = json!({"deployment": deployment, "service": "spec: {}"});
        sources.config_map(&json!({"metadata": {"namespace": "shop", "name": "tuned"}, "data": data}), true);
        sources
    }

    #[test]
    fn settings_have_the_precedence_of_kubernetes_and_others_are_reported() {
        let (mut gateway, defaults) = (gateway(), ProxyConfig { concurrency: Some(2), ..ProxyConfig::default() });
        let tuning = sources().of(&mut gateway, &defaults);
        assert_eq!((tuning.settings.concurrency, tuning.settings.drain_duration.as_secs()), (Some(3), 7));
        assert_eq!(tuning.log_level, "debug");
        assert_eq!(gateway.labels["gateway.networking.k8s.io/gateway-name"], "edge");
        assert_eq!(tuning.metadata, Texts::from([("IDLE_TIMEOUT".to_owned(), "1h".to_owned())]));
        assert_eq!(tuning.variables, Texts::from([("ENVOY_HOT_RESTART".to_owned(), "false".to_owned())]));
        let ignored: Vec<&str> = tuning.ignored.iter().map(String::as_str).collect();
        let wrong = "the environment variable MINIMUM_DRAIN_DURATION is \"soon\": give a duration, like 30s, 5m or 24h";
        let others = ["deployment.spec.replicas", "service of ConfigMap tuned", "statusPort"];
        assert_eq!(ignored, [&others[..], &[wrong, "the variable LD_PRELOAD"]].concat());
    }

    #[test]
    fn missing_parameters_and_broken_annotations_are_reported() {
        let mut sources = sources();
        sources.forget_config_maps();
        sources.forget_configs(None);
        let mut gateway = gateway();
        gateway.annotations.insert(PROXY_CONFIG_ANNOTATION.to_owned(), "concurrency: many".to_owned());
        let tuning = sources.of(&mut gateway, &ProxyConfig::default());
        let ignored: Vec<&str> = tuning.ignored.iter().map(String::as_str).collect();
        assert_eq!(tuning.settings, ProxyConfig::default());
        assert!(ignored[0].starts_with("parametersRef (there is no ConfigMap \"tuned\""), "{ignored:?}");
        assert!(ignored[1].starts_with("the annotation proxy.istio.io/config ("), "{ignored:?}");
    }
}
