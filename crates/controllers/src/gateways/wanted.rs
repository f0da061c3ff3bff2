//! The objects that a Gateway should have.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::{Gateway, Listener};
use config::mesh::ProxyConfig;
use config::{MeshConfig, Object, StringMap};
use inject::{GatewayInput, Injector, ServicePort, Surroundings};
use serde_json::{Value, json};

use super::overlay::{PARTS, Parameters, Part};
use super::{CONTROLLER_LABEL, Options, Problem};
use crate::MANAGED;

/// The template.
const TEMPLATE: &str = "kube-gateway";
/// The port at which a load balancer sees whether a gateway is ready.
const STATUS_PORT: u16 = 15021;
/// The maximum length of the name of a port of a Service.
const PORT_NAME: usize = 63;
/// The prefix of labels and annotations that `spec.infrastructure` must not set.
const RESERVED: &str = "gateway.networking.k8s.io/";
/// Annotations of a Gateway.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
const ACCOUNT: &str = "gateway.istio.io/service-account";
const SERVICE_TYPE: &str = "networking.istio.io/service-type";
const DEFAULT_SERVICE_TYPE: &str = "LoadBalancer";

/// The facts besides the Gateway from which its objects are made.
pub(super) struct Facts<'f> {
    pub(super) options: &'f Options,
    pub(super) injector: &'f Injector,
    pub(super) mesh: &'f MeshConfig,
    pub(super) proxy_config: &'f ProxyConfig,
    /// Annotations of the namespace with ranges of users.
    pub(super) namespace: Option<&'f Value>,
    pub(super) ports: &'f [ServicePort],
    /// The defaults of the class: the name of the ConfigMap, and its overlays.
    pub(super) defaults: Option<(&'f str, &'f Parameters)>,
    /// The ConfigMap that `parametersRef` names.
    pub(super) parameters: Option<&'f Parameters>,
}

/// An object, and its kind.
pub(super) type Wanted = (&'static Part, Value);

/// Whether the proxies of a Gateway are deployed for it: it has no addresses, or IP addresses for its Service. One without
/// a value requests any address.
pub(super) fn is_managed(spec: &Gateway) -> bool {
    spec.addresses.iter().all(|address| match &*address.kind {
        "IPAddress" => true,
        "Hostname" => address.value.as_ref().is_none_or(|value| value.is_empty()),
        _ => false,
    })
}

/// The objects of a Gateway, in the order in which they are written.
pub(super) fn objects(gateway: &Object<Gateway>, facts: &Facts<'_>) -> Result<Vec<Wanted>, Problem> {
    let meta = &gateway.meta;
    let default = format!("{}-{}", meta.name, gateway.spec.gateway_class_name);
    let deployment = meta.annotation(NAME_OVERRIDE).filter(|name| !name.is_empty()).unwrap_or(&default);
    let account = meta.annotation(ACCOUNT).filter(|name| !name.is_empty()).unwrap_or(&default);
    let options = facts.options;
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let given = infrastructure.map(|given| &given.labels);
    let labels = infrastructure_map(given, &meta.labels, options.copies_metadata);
    let given = infrastructure.map(|given| &given.annotations);
    let annotations = infrastructure_map(given, &meta.annotations, options.copies_metadata);
    let input = GatewayInput {
        gateway,
        deployment,
        account,
        service_type: meta.annotation(SERVICE_TYPE).unwrap_or(DEFAULT_SERVICE_TYPE),
        ports: facts.ports,
        labels: &labels,
        annotations: &annotations,
        cluster: &options.cluster,
        controller: CONTROLLER_LABEL,
    };
    let rendered = facts.injector.gateway(TEMPLATE, &input, &surroundings(facts));
    let rendered = rendered.map_err(|error| Problem::Template(error.message()))?;
    let mut wanted = Vec::new();
    for object in rendered {
        let part = part(&object)?;
        if let Some(object) = overlaid(part, object, facts)? {
            check(&object, gateway, &[deployment, account])?;
            wanted.push((part, managed(object)));
        }
    }
    wanted.sort_by_key(|(part, _)| PARTS.iter().position(|one| one.resource == part.resource));
    Ok(wanted)
}

fn surroundings<'f>(facts: &Facts<'f>) -> Surroundings<'f> {
    static NONE: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let options = facts.options;
    Surroundings {
        mesh: facts.mesh,
        proxy_config: facts.proxy_config,
        revision: &options.revision,
        parameters: &NONE,
        native_sidecars: options.native_sidecars,
        namespace: facts.namespace,
        openshift: options.openshift,
        compliance_policy: &options.compliance_policy,
        environment: &options.environment,
        // Equal inputs make equal objects.
        now: 0,
        seed: 0,
    }
}

/// The labels or annotations of all objects: those of `spec.infrastructure`, else those of the Gateway.
fn infrastructure_map(given: Option<&StringMap>, own: &StringMap, copies: bool) -> StringMap {
    match given.filter(|given| !given.is_empty()) {
        Some(given) => {
            let free = given.iter().filter(|(name, _)| !name.starts_with(RESERVED));
            free.map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        None if copies => own.clone(),
        None => StringMap::new(),
    }
}

/// The ports of the Service: one per port and protocol of the listeners, after the status port.
pub(super) fn ports<'l>(listeners: impl Iterator<Item = &'l Listener>, http3: bool) -> Vec<ServicePort> {
    let mut ports = vec![ServicePort {
        name: "status-port".to_owned(),
        number: STATUS_PORT,
        protocol: "TCP",
        app_protocol: "tcp".to_owned(),
    }];
    let mut names: BTreeSet<String> = BTreeSet::from(["status-port".to_owned()]);
    let mut add = |name: String, number: u16, protocol, app_protocol| {
        if !ports.iter().any(|port| port.number == number && port.protocol == protocol) {
            let name = if names.contains(&name) { short(&name, &format!("-{number}")) } else { name };
            names.insert(name.clone());
            ports.push(ServicePort { name, number, protocol, app_protocol });
        }
    };
    for listener in listeners {
        let name = short(&listener.name.replace('.', "-"), "");
        let protocol = if &*listener.protocol == "UDP" { "UDP" } else { "TCP" };
        let app_protocol = listener.protocol.to_lowercase();
        add(name.clone(), listener.port, protocol, app_protocol.clone());
        if http3 && app_protocol == "https" {
            add(short(&name, "-quic"), listener.port, "UDP", app_protocol);
        }
    }
    ports
}

/// A name with an ending, short enough for a port of a Service.
fn short(name: &str, end: &str) -> String {
    let kept: String = name.chars().take(PORT_NAME.saturating_sub(end.len())).collect();
    format!("{}{end}", kept.trim_end_matches('-'))
}

fn part(object: &Value) -> Result<&'static Part, Problem> {
    static ALL: [Part; 5] = PARTS;
    let is = |part: &&Part| {
        object["kind"] == part.resource.kind && object["apiVersion"] == part.resource.api_version().as_str()
    };
    ALL.iter().find(is).ok_or_else(|| {
        let kinds: Vec<&str> = PARTS.iter().map(|part| part.resource.kind).collect();
        let (version, kind) = (&object["apiVersion"], &object["kind"]);
        Problem::Template(format!("template {TEMPLATE:?} makes a {kind} of {version}: use {}", kinds.join(", ")))
    })
}

/// The object with the overlays; `None` if it is not wanted without one.
fn overlaid(part: &Part, mut object: Value, facts: &Facts<'_>) -> Result<Option<Value>, Problem> {
    let mut any = false;
    if let Some((name, defaults)) = facts.defaults {
        let wrong = |message| Problem::Defaults { config_map: name.into(), message };
        any |= defaults.apply(part, &mut object).map_err(wrong)?;
    }
    if let Some(parameters) = facts.parameters {
        any |= parameters.apply(part, &mut object).map_err(Problem::Parameters)?;
    }
    Ok(part.is_wanted(any).then_some(object))
}

/// Checks that a template makes only the objects of its Gateway.
fn check(object: &Value, gateway: &Object<Gateway>, names: &[&str]) -> Result<(), Problem> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    if metadata["namespace"] != *gateway.meta.namespace {
        let namespace = &metadata["namespace"];
        return Err(Problem::Template(format!(
            "template {TEMPLATE:?} makes objects in another namespace: {namespace}"
        )));
    }
    if !names.contains(&name) && !name.starts_with(&*gateway.meta.name) {
        return Err(Problem::Template(format!("template {TEMPLATE:?} makes an object with another name: {name:?}")));
    }
    Ok(())
}

/// Adds the label of objects that the controller may change.
fn managed(mut object: Value) -> Value {
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"][MANAGED] = CONTROLLER_LABEL.into();
    object
}

/// The name of the ConfigMap that `parametersRef` names.
pub(super) fn parameters_name(spec: &Gateway) -> Result<Option<&Arc<str>>, Problem> {
    let reference = spec.infrastructure.as_ref().and_then(|infrastructure| infrastructure.parameters_ref.as_ref());
    match reference {
        None => Ok(None),
        Some(found) if found.group.is_empty() && &*found.kind == "ConfigMap" => Ok(Some(&found.name)),
        Some(found) => {
            let message = format!("kind {:?} of group {:?} is not supported: use a ConfigMap", found.kind, found.group);
            Err(Problem::Parameters(message))
        }
    }
}
