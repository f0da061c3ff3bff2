//! The data of templates, under the names of Istio's injector.

use config::MeshConfig;
use config::mesh::{InboundInterceptionMode, InboundMode, ProxyConfig};
use serde_json::{Map, Value, json};

use crate::openshift;
use crate::owner::Owner;
use crate::render::Surroundings;
use crate::settings::Injector;

/// The value of `.` in a template. `pod` is the pod without what was injected before.
pub(crate) fn data(injector: &Injector, pod: &Value, owner: &Owner, around: &Surroundings<'_>) -> Value {
    let (user, group) = openshift::ids(around.namespace.filter(|_| around.openshift));
    json!({
        "TypeMeta": {"apiVersion": owner.api_version, "kind": owner.kind},
        "DeploymentMeta": {"name": owner.name, "namespace": owner.namespace},
        "ObjectMeta": metadata(&pod["metadata"]),
        "Spec": pod["spec"],
        "ProxyConfig": proxy_config(around.proxy_config),
        "MeshConfig": around.mesh.to_json(),
        "Values": injector.values,
        "Revision": around.revision,
        "NativeSidecars": around.native_sidecars,
        "ProxyImage": injector.proxy_image(around.proxy_config, pod),
        "ProxyInitImage": injector.init_image(pod),
        "ProxyUID": user,
        "ProxyGID": group,
        "InboundTrafficPolicyMode": inbound_mode(around.mesh),
        "CompliancePolicy": around.compliance_policy,
    })
}

/// Metadata with labels and annotations, because templates look into them without asking.
fn metadata(metadata: &Value) -> Value {
    let mut metadata = metadata.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let map = metadata.entry(field).or_insert(Value::Null);
        if !map.is_object() {
            *map = Value::Object(Map::new());
        }
    }
    Value::Object(metadata)
}

/// The settings with the fields that templates read without asking.
pub(crate) fn proxy_config(settings: &ProxyConfig) -> Value {
    let mut json = settings.to_json();
    let mode = match settings.interception_mode {
        InboundInterceptionMode::Redirect => "REDIRECT",
        InboundInterceptionMode::Tproxy => "TPROXY",
        InboundInterceptionMode::None => "NONE",
    };
    if let Some(fields) = json.as_object_mut() {
        fields.insert("interceptionMode".to_owned(), mode.into());
        fields.entry("proxyMetadata").or_insert_with(|| Value::Object(Map::new()));
    }
    json
}

/// The settings that differ from the defaults, for the sidecar's environment.
pub(crate) fn without_defaults(settings: &Value) -> Value {
    let defaults = proxy_config(&ProxyConfig::default());
    let fields = settings.as_object().into_iter().flatten();
    let differing = fields.filter(|(name, value)| defaults.get(*name) != Some(value));
    Value::Object(differing.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn inbound_mode(mesh: &MeshConfig) -> &'static str {
    match mesh.inbound_traffic_policy.mode {
        InboundMode::Localhost => "localhost",
        InboundMode::Passthrough => "passthrough",
    }
}
