//! Settings of a workload's proxy, layer over layer: the mesh's defaults, ProxyConfigs, an annotation of its pod.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::decode::{Decode, Decoder, Unknown};
use crate::diagnostic::Severity;
use crate::istio;
use crate::mesh::ProxyConfig;
use crate::parse::Limits;
use crate::yaml::{self, Document};

/// The annotation of a pod with settings of its proxy, as YAML.
pub const PROXY_CONFIG_ANNOTATION: &str = "proxy.istio.io/config";

/// The largest text that settings are read from, in bytes.
const LARGEST: usize = 64 << 10;
/// Problems that are told of.
const PROBLEMS: usize = 5;
/// What of `proxyHeaders` stays where a later layer does not say it; the rest goes.
const KEPT_HEADERS: [&str; 5] = [
    "forwardedClientCert",
    "requestId",
    "attemptCount",
    "server",
    "envoyDebugHeaders",
];
/// Alternatives of which settings have one.
const CLUSTER_NAMES: [&str; 2] = ["serviceCluster", "tracingServiceName"];

/// What one place says of a proxy's settings: some of the fields, by their names in JSON.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProxyConfigLayer {
    fields: Map<String, Value>,
}

impl ProxyConfigLayer {
    /// What an object says.
    pub fn of_object(object: &istio::ProxyConfig) -> ProxyConfigLayer {
        let mut fields = Map::new();
        if let Some(concurrency) = object.concurrency {
            fields.insert("concurrency".to_owned(), concurrency.into());
        }
        if !object.environment_variables.is_empty() {
            let variables = object.environment_variables.iter();
            let variables = variables.map(|(name, value)| (name.to_string(), Value::from(&**value)));
            fields.insert("proxyMetadata".to_owned(), Value::Object(variables.collect()));
        }
        if let Some(image) = &object.image {
            fields.insert("image".to_owned(), json!({ "imageType": &*image.image_type }));
        }
        ProxyConfigLayer { fields }
    }

    /// What a text in YAML or JSON says: the annotation of a pod, or what an agent tells of itself.
    ///
    /// # Errors
    /// What is wrong with it. Fields that do not exist are no error, as for Istio.
    pub fn parse(text: &str) -> Result<ProxyConfigLayer, String> {
        if text.len() > LARGEST {
            return Err(format!("it is larger than {LARGEST} bytes"));
        }
        let document = Document { text, first_line: 1 };
        let (root, duplicates) = yaml::parse_document(document, &Limits::default()).map_err(|error| told(&error))?;
        if let Some(error) = duplicates.first() {
            return Err(told(error));
        }
        if root.is_null() {
            return Ok(ProxyConfigLayer::default());
        }
        let mut cx = Decoder::new(Unknown::Ignore, PROBLEMS);
        let decoded = ProxyConfig::decode(&root, &mut cx);
        let errors: Vec<String> = cx
            .into_problems()
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect();
        if !errors.is_empty() {
            return Err(errors.join("; "));
        }
        let (Some(_), Value::Object(fields)) = (decoded, root.to_json()) else {
            return Err("it is no object with settings".to_owned());
        };
        Ok(ProxyConfigLayer { fields: named(fields) })
    }

    /// This layer and one over it, as one.
    pub fn under(mut self, over: &ProxyConfigLayer) -> ProxyConfigLayer {
        for (name, value) in &over.fields {
            let before = self.fields.remove(name);
            let value = match (name.as_str(), before) {
                ("proxyMetadata", Some(before)) => joined(before, value.clone()),
                ("proxyHeaders", Some(before)) => headers(before, value.clone()),
                _ => value.clone(),
            };
            if CLUSTER_NAMES.contains(&name.as_str()) {
                CLUSTER_NAMES.iter().for_each(|name| drop(self.fields.remove(*name)));
            }
            self.fields.insert(name.clone(), value);
        }
        self
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl ProxyConfig {
    /// These settings with a layer over them, as Istio joins them: a field replaces the field; entries of `proxyMetadata`
    /// and some of `proxyHeaders` are joined one by one.
    pub fn with(&self, over: &ProxyConfigLayer) -> ProxyConfig {
        if over.is_empty() {
            return self.clone();
        }
        let Value::Object(fields) = self.to_json() else {
            return self.clone();
        };
        let joined = ProxyConfigLayer { fields }.under(over);
        // Both are valid, field by field.
        ProxyConfig::of_json(&Value::Object(joined.fields)).unwrap_or_else(|| self.clone())
    }

    /// The settings as JSON, those left out that are at the type's zero value.
    pub fn to_json(&self) -> Value {
        Decode::encode(self)
    }

    /// The settings that a text says, with Istio's defaults for the rest; nothing where the text is not valid.
    pub fn parse(text: &str) -> Option<ProxyConfig> {
        let layer = ProxyConfigLayer::parse(text).ok()?;
        ProxyConfig::of_json(&Value::Object(layer.fields))
    }

    fn of_json(value: &Value) -> Option<ProxyConfig> {
        let text = value.to_string();
        let document = Document {
            text: &text,
            first_line: 1,
        };
        let (root, _) = yaml::parse_document(document, &Limits::default()).ok()?;
        ProxyConfig::decode(&root, &mut Decoder::new(Unknown::Ignore, PROBLEMS))
    }
}

fn told(error: &yaml::SyntaxError) -> String {
    format!("line {}: {}", error.at.line, error.message)
}

/// Fields by their names in JSON: a text may have the names of the protocol buffers, too.
fn named(fields: Map<String, Value>) -> Map<String, Value> {
    let one = |(name, value): (String, Value)| {
        let name = camel(&name);
        let value = match value {
            Value::Object(inner) if name == "proxyHeaders" => Value::Object(named(inner)),
            value => value,
        };
        (name, value)
    };
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(one)
        .collect()
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    out
}

fn joined(before: Value, over: Value) -> Value {
    match (before, over) {
        (Value::Object(mut before), Value::Object(over)) => {
            before.extend(over);
            Value::Object(before)
        }
        (_, over) => over,
    }
}

fn headers(before: Value, over: Value) -> Value {
    match (before, over) {
        (Value::Object(before), Value::Object(mut over)) => {
            for (name, value) in before {
                if KEPT_HEADERS.contains(&name.as_str()) {
                    over.entry(name).or_insert(value);
                }
            }
            Value::Object(over)
        }
        (_, over) => over,
    }
}

/// What makes the settings of a workload's proxy, in the order in which the layers lie over one another: the mesh's
/// defaults, the ProxyConfig of the whole mesh, that of the workload's namespace, the pod's annotation, and the ProxyConfig
/// that selects the workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProxyConfigLayers {
    /// Of the whole mesh: without a selector in the root namespace.
    pub mesh: Option<ProxyConfigLayer>,
    /// Of the namespace: without a selector.
    pub namespace: Option<ProxyConfigLayer>,
    /// Of the pod's annotation.
    pub annotation: Option<ProxyConfigLayer>,
    /// That selects the workload.
    pub workload: Option<ProxyConfigLayer>,
}

impl ProxyConfigLayers {
    /// The settings over these defaults.
    pub fn over(&self, defaults: &ProxyConfig) -> ProxyConfig {
        let layers = [&self.mesh, &self.namespace, &self.annotation, &self.workload];
        let all = layers.into_iter().flatten();
        defaults.with(&all.fold(ProxyConfigLayer::default(), |under, over| under.under(over)))
    }
}

/// The ProxyConfigs of one namespace, the oldest first, sorted by what they are for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NamespaceProxyConfigs {
    /// The one that holds for all workloads.
    pub common: Option<Arc<crate::Object<istio::ProxyConfig>>>,
    /// Those that have a selector.
    pub selecting: Vec<Arc<crate::Object<istio::ProxyConfig>>>,
    /// Those that would hold for all workloads, but that there is an older one.
    pub shadowed: Vec<Arc<crate::Object<istio::ProxyConfig>>>,
}

impl NamespaceProxyConfigs {
    /// Of these objects of one namespace, in any order.
    pub fn of(mut all: Vec<Arc<crate::Object<istio::ProxyConfig>>>) -> NamespaceProxyConfigs {
        all.sort_by(|a, b| a.meta.by_age(&b.meta));
        let mut sorted = NamespaceProxyConfigs::default();
        for object in all {
            match (&object.spec.selector, &sorted.common) {
                (Some(selector), _) if !selector.match_labels.is_empty() => sorted.selecting.push(object),
                // A selector without labels selects nothing.
                (Some(_), _) => {}
                (None, None) => sorted.common = Some(object),
                (None, Some(_)) => sorted.shadowed.push(object),
            }
        }
        sorted
    }

    /// The one that selects a workload with these labels: the oldest of several.
    pub fn selecting(&self, labels: &crate::StringMap) -> Option<&Arc<crate::Object<istio::ProxyConfig>>> {
        let selects = |object: &&Arc<crate::Object<istio::ProxyConfig>>| {
            let selector = object.spec.selector.as_ref();
            selector.is_some_and(|s| {
                s.match_labels
                    .iter()
                    .all(|(name, value)| labels.get(name) == Some(value))
            })
        };
        self.selecting.iter().find(selects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(text: &str) -> ProxyConfigLayer {
        ProxyConfigLayer::parse(text).unwrap()
    }

    #[test]
    fn later_layers_replace_fields_and_join_metadata_and_headers() {
        let defaults = ProxyConfig::default().with(&layer(
            "{concurrency: 4, proxyMetadata: {A: '1', B: '1'}, tracing: {sampling: 5, maxPathTagLength: 9}, \
             proxyHeaders: {requestId: {disabled: true}, xForwardedPort: {enabled: true}}}",
        ));
        let layers = ProxyConfigLayers {
            mesh: Some(layer("{concurrency: 3, image: {imageType: debug}}")),
            namespace: Some(layer("{proxy_metadata: {B: '2', C: '2'}, tracing: {sampling: 7}}")),
            annotation: Some(layer(
                "concurrency: 1\nproxyHeaders: {server: {value: me}}\nunknown: 1\n",
            )),
            workload: Some(layer("{concurrency: 2}")),
        };
        let found = layers.over(&defaults);
        assert_eq!((found.concurrency, found.status_port), (Some(2), 15020));
        let metadata: Vec<(&str, &str)> = found.proxy_metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(metadata, [("A", "1"), ("B", "2"), ("C", "2")]);
        let tracing = found.tracing.unwrap();
        assert_eq!(
            (tracing.sampling, tracing.max_path_tag_length),
            (7.0, 0),
            "messages are replaced"
        );
        let headers = found.proxy_headers.unwrap();
        assert!(headers.request_id.is_some() && headers.server.is_some() && headers.x_forwarded_port.is_none());
        assert_eq!(found.image.unwrap().image_type, "debug".into());
    }

    #[test]
    fn one_alternative_replaces_the_other() {
        let named = ProxyConfig::default().with(&layer("{tracingServiceName: CANONICAL_NAME_ONLY}"));
        assert_eq!(
            named.cluster_name,
            Some(crate::mesh::ProxyClusterName::Tracing(
                crate::mesh::TracingServiceName::CanonicalNameOnly
            ))
        );
    }

    #[test]
    fn what_is_not_valid_is_refused_with_its_reason() {
        let error = |text: &str| ProxyConfigLayer::parse(text).unwrap_err();
        assert!(
            error("concurrency: many").contains("concurrency"),
            "{}",
            error("concurrency: many")
        );
        assert!(error("[1]").contains("object"), "{}", error("[1]"));
        assert!(!error("{a: 1, a: 2}").is_empty() && !error("a: b: c").is_empty());
        assert!(error(&" ".repeat(LARGEST + 1)).contains("larger"));
        assert!(layer("").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "[a-zA-Z:{}\\[\\], \n'\"0-9&*-]{0,80}") {
            if let Ok(layer) = ProxyConfigLayer::parse(&text) {
                let _ = ProxyConfig::default().with(&layer);
            }
        }
    }
}
