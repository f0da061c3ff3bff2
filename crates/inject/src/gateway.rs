//! The objects of a Gateway of the Gateway API: the data of their template, under Istio's names.

use config::gateway_api::Gateway;
use config::{Object, StringMap};
use serde_json::{Map, Value, json};

use crate::render::Surroundings;
use crate::settings::Injector;
use crate::{Error, data, openshift};

/// The label with which proxies and Services are bound to their Gateway.
pub const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The version of Kubernetes, as `136` for 1.36. Templates only ask whether it is an old one.
const KUBERNETES: u32 = 136;

/// A Gateway, and the decisions of the controller that deploys it.
#[derive(Clone, Debug)]
pub struct GatewayInput<'g> {
    /// The Gateway.
    pub gateway: &'g Object<Gateway>,
    /// The name of its Deployment and its Service.
    pub deployment: &'g str,
    /// The name of its ServiceAccount.
    pub account: &'g str,
    /// The type of its Service.
    pub service_type: &'g str,
    /// The ports of its Service.
    pub ports: &'g [ServicePort],
    /// The labels of all objects.
    pub labels: &'g StringMap,
    /// The annotations of all objects.
    pub annotations: &'g StringMap,
    /// The id of the cluster.
    pub cluster: &'g str,
    /// The value of the label `gateway.istio.io/managed`.
    pub controller: &'g str,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// The name, unique in the Service.
    pub name: String,
    /// The number.
    pub number: u16,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// `appProtocol`.
    pub app_protocol: String,
}

impl Injector {
    /// Renders the objects of a Gateway. `around` has its namespace and its effective ProxyConfig.
    ///
    /// # Errors
    /// The template does not exist, fails, or its output is not a list of objects.
    pub fn gateway(
        &self,
        template: &str,
        input: &GatewayInput<'_>,
        around: &Surroundings<'_>,
    ) -> Result<Vec<Value>, Error> {
        self.objects(template, &self.gateway_data(input, around), around)
    }

    fn gateway_data(&self, input: &GatewayInput<'_>, around: &Surroundings<'_>) -> Value {
        let meta = &input.gateway.meta;
        let metadata = json!({
            "name": &*meta.name,
            "namespace": &*meta.namespace,
            "uid": &*meta.uid,
            "labels": map(&meta.labels),
            "annotations": map(&meta.annotations),
        });
        let (user, group) = openshift::ids(around.namespace);
        json!({
            "TypeMeta": {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"},
            "ObjectMeta": metadata,
            "Name": &*meta.name,
            "Namespace": &*meta.namespace,
            "UID": &*meta.uid,
            "Labels": map(&meta.labels),
            "Annotations": map(&meta.annotations),
            "Spec": spec(input.gateway.raw.as_deref()),
            "GatewayClass": &*input.gateway.spec.gateway_class_name,
            "DeploymentName": input.deployment,
            "ServiceAccount": input.account,
            "ServiceType": input.service_type,
            "Ports": input.ports.iter().map(port).collect::<Vec<_>>(),
            "ClusterID": input.cluster,
            "KubeVersion": KUBERNETES,
            "Revision": around.revision,
            "NativeSidecars": around.native_sidecars,
            "ProxyUID": user,
            "ProxyGID": group,
            "CompliancePolicy": around.compliance_policy,
            "InfrastructureLabels": map(input.labels),
            "InfrastructureAnnotations": map(input.annotations),
            "GatewayNameLabel": GATEWAY_NAME,
            "IsEastWestGateway": false,
            "ControllerLabel": input.controller,
            "ProxyImage": self.proxy_image(around.proxy_config, &json!({"metadata": metadata})),
            "ProxyConfig": data::proxy_config(around.proxy_config),
            "MeshConfig": around.mesh.to_json(),
            "Values": self.values,
        })
    }
}

/// The specification as written, without addresses that have no value: the template gives the first one to the Service.
fn spec(raw: Option<&str>) -> Value {
    let raw = raw.and_then(|raw| serde_json::from_str::<Value>(raw).ok());
    let mut spec = raw.map_or(Value::Null, |mut raw| raw["spec"].take());
    if let Some(addresses) = spec.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.retain(|address| address["value"].as_str().is_some_and(|value| !value.is_empty()));
    }
    spec
}

fn map(map: &StringMap) -> Value {
    let entries = map.iter().map(|(name, value)| (name.to_string(), Value::from(&**value)));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn port(port: &ServicePort) -> Value {
    json!({
        "Name": port.name,
        "Port": port.number,
        "Protocol": port.protocol,
        "AppProtocol": port.app_protocol,
    })
}
