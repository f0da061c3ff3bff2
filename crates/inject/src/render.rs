//! Renders the templates of a pod, merges them onto it, and completes it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use config::mesh::ProxyConfig;
use config::schema::{Schema, find_kind};
use config::{Limits, MeshConfig, parse_yaml_json};
use k8s_patch::strategic_merge_patch;
use serde_json::{Map, Value, json};

use crate::functions::Functions;
use crate::owner::{Owner, owner};
use crate::pod::{annotate, annotation, full_name, label, metadata_map};
use crate::settings::Injector;
use crate::{Error, NATIVE, NETWORK, STATUS, TEMPLATES, annotations, containers, data, openshift, prometheus};

/// Maximum number of templates of a pod.
const MAX_TEMPLATES: usize = 32;
const CLUSTER_VARIABLE: &str = "ISTIO_META_CLUSTER_ID";
const NETWORK_VARIABLE: &str = "ISTIO_META_NETWORK";

/// Whatever an injection depends on besides its configuration and the pod.
#[derive(Clone, Debug)]
pub struct Surroundings<'s> {
    /// The mesh configuration.
    pub mesh: &'s MeshConfig,
    /// The effective settings of the pod's sidecar.
    pub proxy_config: &'s ProxyConfig,
    /// The revision of the control plane; empty for the default.
    pub revision: &'s str,
    /// Environment variables of the sidecar from the path of the webhook.
    pub parameters: &'s BTreeMap<String, String>,
    /// Whether sidecars are native, unless the pod says otherwise.
    pub native_sidecars: bool,
    /// The namespace of the pod, if it is known.
    pub namespace: Option<&'s Value>,
    /// Whether the cluster is an OpenShift cluster, whose namespaces have ranges of users.
    pub openshift: bool,
    /// The compliance policy of the control plane; empty for none.
    pub compliance_policy: &'s str,
    /// The environment of the control plane, for the template function `env`.
    pub environment: &'s BTreeMap<String, String>,
    /// The time, for template functions such as `now`, in seconds since 1970.
    pub now: i64,
    /// A random number, from which template functions such as `uuidv4` make theirs. They are no secrets.
    pub seed: u64,
}

/// The schema of pods, which has the merge keys of their lists.
pub(crate) fn pod_schema() -> &'static Schema {
    static EMPTY: LazyLock<Schema> = LazyLock::new(|| Schema::map(Schema::text().into()));
    find_kind("", "Pod").map_or(&EMPTY, |pod| &pod.schema)
}

impl Injector {
    /// Returns the pod with its sidecar. The pod must have a namespace, and [`Injector::decide`] must have decided so.
    ///
    /// # Errors
    /// An annotation is invalid, a template fails, or its output cannot be merged.
    pub fn inject(&self, pod: &Value, around: &Surroundings<'_>) -> Result<Value, Error> {
        self.inject_for(pod, &owner(pod), around)
    }

    /// The same for a pod whose owner is known.
    pub(crate) fn inject_for(&self, pod: &Value, owner: &Owner, around: &Surroundings<'_>) -> Result<Value, Error> {
        annotations::check(pod)?;
        let mut original = pod.clone();
        if around.openshift {
            openshift::forget_shared_user(&mut original);
        }
        let pod = &original;
        let parameters = self.parameters(pod, around);
        let stripped = containers::stripped(pod, around.mesh)?;
        let data = data::data(self, &stripped, owner, around);
        let mut merged = pod.clone();
        let mut rendered = Value::Object(Map::new());
        for name in self.templates_of(pod)? {
            let overlay = self.render(name, &data, around, pod)?;
            rendered = merge(&rendered, &overlay, name, pod)?;
            if is_native(pod, around) {
                containers::move_native_proxy(&mut merged, &rendered);
            }
            merged = merge(&merged, &overlay, name, pod)?;
        }
        containers::reapply(&mut merged, pod, &rendered, around.proxy_config)?;
        self.complete(&mut merged, &rendered, &parameters, around)?;
        Ok(merged)
    }

    /// The additions that no template can make.
    fn complete(
        &self,
        merged: &mut Value,
        rendered: &Value,
        parameters: &BTreeMap<String, String>,
        around: &Surroundings<'_>,
    ) -> Result<(), Error> {
        containers::set_environment(merged, parameters);
        prometheus::merge(merged, around.mesh)?;
        prometheus::secure_port(merged);
        self.rewrite_probes(merged, around.mesh.default_config.status_port.unsigned_abs());
        if let Some(network) = parameters.get(NETWORK_VARIABLE)
            && let Some(labels) = metadata_map(merged, "labels")
        {
            labels.insert(NETWORK.to_owned(), network.as_str().into());
        }
        annotate(merged, STATUS, status(rendered, around.revision));
        for (name, value) in &self.annotations {
            annotate(merged, name, value.as_str());
        }
        let hold = around.proxy_config.hold_application_until_proxy_starts.unwrap_or_default()
            || self.flag("/global/proxy/holdApplicationUntilProxyStarts");
        containers::order(merged, hold);
        Ok(())
    }

    /// Environment variables of the sidecar: cluster and network by the label of the pod, the path and the values.
    fn parameters(&self, pod: &Value, around: &Surroundings<'_>) -> BTreeMap<String, String> {
        let mut parameters = around.parameters.clone();
        let given = |name: &str| around.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let cluster = given(CLUSTER_VARIABLE).unwrap_or(self.value("/global/multiCluster/clusterName"));
        let network = given(NETWORK_VARIABLE).unwrap_or(self.value("/global/network"));
        let network = label(pod, NETWORK).unwrap_or(network);
        for (name, value) in [(CLUSTER_VARIABLE, cluster), (NETWORK_VARIABLE, network)] {
            if !value.is_empty() {
                parameters.insert(name.to_owned(), value.to_owned());
            }
        }
        parameters
    }

    /// The names of the pod's templates, with aliases resolved.
    fn templates_of<'i>(&'i self, pod: &'i Value) -> Result<Vec<&'i str>, Error> {
        let named: Vec<&str> = match annotation(pod, TEMPLATES) {
            Some(list) => list.split(',').map(str::trim).collect(),
            None => self.default_templates.iter().map(String::as_str).collect(),
        };
        let mut found = Vec::new();
        for name in named {
            match self.aliases.get(name) {
                Some(names) => found.extend(names.iter().map(String::as_str)),
                None => found.push(name),
            }
        }
        if found.len() > MAX_TEMPLATES {
            let message = format!("more than {MAX_TEMPLATES} injection templates");
            return Err(Error::Pod { pod: full_name(pod), message });
        }
        Ok(found)
    }

    /// Renders a template that makes whole objects from the caller's data, such as those of a gateway.
    ///
    /// # Errors
    /// The template does not exist, fails, or its output is not a list of objects.
    pub fn objects(&self, name: &str, data: &Value, around: &Surroundings<'_>) -> Result<Vec<Value>, Error> {
        let owner = json!({"metadata": {"namespace": data["Namespace"], "name": data["Name"]}});
        self.documents(name, data, around, &owner)
    }

    fn render(&self, name: &str, data: &Value, around: &Surroundings<'_>, pod: &Value) -> Result<Value, Error> {
        let rendered = self.documents(name, data, around, pod)?;
        Ok(rendered.into_iter().next().unwrap_or_else(|| Value::Object(Map::new())))
    }

    /// The objects that a template renders to.
    fn documents(&self, name: &str, data: &Value, around: &Surroundings<'_>, pod: &Value) -> Result<Vec<Value>, Error> {
        let Some(templates) = self.templates.get(name) else {
            let known: Vec<&str> = self.templates().collect();
            let template = name.to_owned();
            return Err(Error::UnknownTemplate { pod: full_name(pod), template, known: known.join(", ") });
        };
        let rendered = templates.render(name, data, &Functions::new(around.environment, around.now, around.seed));
        let text = rendered.map_err(|error| Error::Template {
            pod: full_name(pod),
            template: error.template,
            line: error.line,
            message: error.message,
        })?;
        let wrong =
            |line, message: String| Error::Output { pod: full_name(pod), template: name.to_owned(), line, message };
        let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
        if let Some(error) = parsed.errors.into_iter().next() {
            return Err(wrong(error.line, error.message));
        }
        let documents = parsed.documents.into_iter().map(|document| document.value);
        let objects: Vec<Value> = documents.filter(|document| !document.is_null()).collect();
        match objects.iter().all(Value::is_object) {
            true => Ok(objects),
            false => Err(wrong(1, "expected an object with `metadata` and `spec`".to_owned())),
        }
    }
}

/// Whether the sidecar of a pod is native.
fn is_native(pod: &Value, around: &Surroundings<'_>) -> bool {
    match annotation(pod, NATIVE) {
        Some("true") => true,
        Some("false") => false,
        _ => around.native_sidecars,
    }
}

fn merge(onto: &Value, overlay: &Value, template: &str, pod: &Value) -> Result<Value, Error> {
    let merged = strategic_merge_patch(onto, overlay, pod_schema(), &k8s_patch::Limits::default());
    merged.map_err(|error| Error::Pod {
        pod: full_name(pod),
        message: format!("the output of the injection template {template:?} cannot be merged: {error}"),
    })
}

/// The annotation with what was injected.
fn status(rendered: &Value, revision: &str) -> String {
    let names = |field: &str| -> Value {
        let items = rendered["spec"][field].as_array().filter(|items| !items.is_empty());
        items.map_or(Value::Null, |items| items.iter().map(|item| item["name"].clone()).collect())
    };
    let status = json!({
        "initContainers": names("initContainers"),
        "containers": names("containers"),
        "volumes": names("volumes"),
        "imagePullSecrets": names("imagePullSecrets"),
        "revision": if revision.is_empty() { "default" } else { revision },
    });
    status.to_string()
}
