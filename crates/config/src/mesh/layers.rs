//! Effective proxy settings of a workload, merged from layers: the mesh defaults, ProxyConfig objects and the Pod's
//! annotation.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::decode::{Decode, Decoder, Unknown, json_name};
use crate::istio;
use crate::mesh::ProxyConfig;
use crate::parse::Limits;
use crate::problem::Severity;
use crate::yaml::{self, Document};

/// Pod annotation that contains proxy settings as YAML.
pub const PROXY_CONFIG_ANNOTATION: &str = "proxy.istio.io/config";

/// Maximum size of a YAML text with proxy settings, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Maximum number of problems that an error reports.
const MAX_PROBLEMS: usize = 5;
/// Fields of `proxyHeaders` that are inherited if a higher layer does not set them. Other fields are not inherited.
const INHERITED_HEADERS: [&str; 5] =
    ["forwardedClientCert", "requestId", "attemptCount", "server", "envoyDebugHeaders"];
/// Mutually exclusive fields of a `oneof`.
const CLUSTER_NAME_FIELDS: [&str; 2] = ["serviceCluster", "tracingServiceName"];

/// Proxy settings of one layer: a subset of the fields, by JSON name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProxyConfigLayer {
    fields: Map<String, Value>,
}

impl ProxyConfigLayer {
    /// Converts the settings of a ProxyConfig object.
    pub fn from_object(object: &istio::ProxyConfig) -> ProxyConfigLayer {
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

    /// Parses settings in YAML or JSON, from the annotation of a Pod or from the node metadata of a proxy. Unknown fields are
    /// ignored, as in Istio.
    ///
    /// # Errors
    /// Fails if the text is too large, has a syntax error, is not an object, or sets a field to an invalid value.
    pub fn parse(text: &str) -> Result<ProxyConfigLayer, ProxyConfigError> {
        if text.len() > MAX_BYTES {
            return Err(ProxyConfigError::TooLarge);
        }
        let document = Document { text, first_line: 1 };
        let (root, duplicates) = yaml::parse_document(document, &Limits::default()).map_err(syntax_error)?;
        if let Some(error) = duplicates.into_iter().next() {
            return Err(syntax_error(error));
        }
        if root.is_null() {
            return Ok(ProxyConfigLayer::default());
        }
        let mut cx = Decoder::new(Unknown::Ignore, MAX_PROBLEMS);
        let decoded = ProxyConfig::decode(&root, &mut cx);
        let errors: Vec<String> = cx
            .into_problems()
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect();
        if !errors.is_empty() {
            return Err(ProxyConfigError::InvalidFields(errors.join("; ")));
        }
        let (Some(_), Value::Object(fields)) = (decoded, root.to_json()) else {
            return Err(ProxyConfigError::NotAnObject);
        };
        Ok(ProxyConfigLayer { fields: json_names(fields) })
    }

    /// Merges a higher layer into this one. Its fields replace those of this layer; entries of `proxyMetadata` and some
    /// of `proxyHeaders` are merged.
    pub fn merge(mut self, over: &ProxyConfigLayer) -> ProxyConfigLayer {
        for (name, value) in &over.fields {
            let before = self.fields.remove(name);
            let value = match (name.as_str(), before) {
                ("proxyMetadata", Some(before)) => merge_objects(before, value.clone()),
                ("proxyHeaders", Some(before)) => merge_headers(before, value.clone()),
                _ => value.clone(),
            };
            if CLUSTER_NAME_FIELDS.contains(&name.as_str()) {
                CLUSTER_NAME_FIELDS.iter().for_each(|name| drop(self.fields.remove(*name)));
            }
            self.fields.insert(name.clone(), value);
        }
        self
    }

    /// Whether the layer sets no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl ProxyConfig {
    /// Returns these settings with a layer merged over them. See [`ProxyConfigLayer::merge`].
    pub fn with(&self, over: &ProxyConfigLayer) -> ProxyConfig {
        if over.is_empty() {
            return self.clone();
        }
        let Value::Object(fields) = self.to_json() else {
            return self.clone();
        };
        let merged = ProxyConfigLayer { fields }.merge(over);
        // Both layers are valid, and so is each field of the merged one.
        ProxyConfig::from_json(&Value::Object(merged.fields)).unwrap_or_else(|| self.clone())
    }

    /// Encodes the settings as JSON. Fields with the zero value of their type are omitted.
    pub fn to_json(&self) -> Value {
        Decode::encode(self)
    }

    /// Parses settings over Istio's defaults. Returns `None` if the text is not valid.
    pub fn parse(text: &str) -> Option<ProxyConfig> {
        let layer = ProxyConfigLayer::parse(text).ok()?;
        ProxyConfig::from_json(&Value::Object(layer.fields))
    }

    fn from_json(value: &Value) -> Option<ProxyConfig> {
        let text = value.to_string();
        let document = Document { text: &text, first_line: 1 };
        let (root, _) = yaml::parse_document(document, &Limits::default()).ok()?;
        ProxyConfig::decode(&root, &mut Decoder::new(Unknown::Ignore, MAX_PROBLEMS))
    }
}

/// An error in a YAML text with proxy settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProxyConfigError {
    /// The text exceeds the size limit.
    #[error("the text is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// The text is not valid YAML.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line of the error, counted from 1.
        line: u32,
        /// A description of the error.
        message: String,
    },
    /// The text is valid YAML, but not an object.
    #[error("the text is not an object")]
    NotAnObject,
    /// Fields have invalid values: their paths and problems, separated by semicolons.
    #[error("{0}")]
    InvalidFields(String),
}

fn syntax_error(error: yaml::SyntaxError) -> ProxyConfigError {
    ProxyConfigError::Syntax { line: error.at.line, message: error.message }
}

/// Converts field names to JSON names; a text can also use the names of the proto files.
fn json_names(fields: Map<String, Value>) -> Map<String, Value> {
    let one = |(name, value): (String, Value)| {
        let name = json_name(&name).into_owned();
        let value = match value {
            Value::Object(inner) if name == "proxyHeaders" => Value::Object(json_names(inner)),
            value => value,
        };
        (name, value)
    };
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(one).collect()
}

fn merge_objects(before: Value, over: Value) -> Value {
    match (before, over) {
        (Value::Object(mut before), Value::Object(over)) => {
            before.extend(over);
            Value::Object(before)
        }
        (_, over) => over,
    }
}

fn merge_headers(before: Value, over: Value) -> Value {
    match (before, over) {
        (Value::Object(before), Value::Object(mut over)) => {
            for (name, value) in before {
                if INHERITED_HEADERS.contains(&name.as_str()) {
                    over.entry(name).or_insert(value);
                }
            }
            Value::Object(over)
        }
        (_, over) => over,
    }
}

/// Layers of proxy settings of a workload, lowest precedence first: the mesh defaults, the mesh-wide ProxyConfig, the
/// namespace-wide ProxyConfig, the Pod's annotation and the ProxyConfig that selects the workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProxyConfigLayers {
    /// ProxyConfig without a selector in the root namespace.
    pub mesh: Option<ProxyConfigLayer>,
    /// ProxyConfig without a selector in the workload's namespace.
    pub namespace: Option<ProxyConfigLayer>,
    /// Settings from the Pod's annotation.
    pub annotation: Option<ProxyConfigLayer>,
    /// ProxyConfig that selects the workload.
    pub workload: Option<ProxyConfigLayer>,
}

impl ProxyConfigLayers {
    /// Merges all layers over the given defaults.
    pub fn over(&self, defaults: &ProxyConfig) -> ProxyConfig {
        let layers = [&self.mesh, &self.namespace, &self.annotation, &self.workload];
        let all = layers.into_iter().flatten();
        defaults.with(&all.fold(ProxyConfigLayer::default(), |merged, layer| merged.merge(layer)))
    }
}

/// ProxyConfig objects of one namespace, oldest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NamespaceProxyConfigs {
    /// Object without a selector, which applies to all workloads.
    pub common: Option<Arc<crate::Object<istio::ProxyConfig>>>,
    /// Objects with a selector.
    pub selecting: Vec<Arc<crate::Object<istio::ProxyConfig>>>,
    /// Objects without a selector that an older one overrides.
    pub shadowed: Vec<Arc<crate::Object<istio::ProxyConfig>>>,
}

impl NamespaceProxyConfigs {
    /// Classifies the objects of one namespace, given in any order.
    pub fn of(mut all: Vec<Arc<crate::Object<istio::ProxyConfig>>>) -> NamespaceProxyConfigs {
        all.sort_by(|a, b| a.meta.by_age(&b.meta));
        let mut sorted = NamespaceProxyConfigs::default();
        for object in all {
            match (&object.spec.selector, &sorted.common) {
                (Some(selector), _) if !selector.match_labels.is_empty() => sorted.selecting.push(object),
                // Istio ignores a selector without labels.
                (Some(_), _) => {}
                (None, None) => sorted.common = Some(object),
                (None, Some(_)) => sorted.shadowed.push(object),
            }
        }
        sorted
    }

    /// Returns the oldest object that selects a workload with these labels.
    pub fn selecting(&self, labels: &crate::StringMap) -> Option<&Arc<crate::Object<istio::ProxyConfig>>> {
        let selects = |object: &&Arc<crate::Object<istio::ProxyConfig>>| {
            let selector = object.spec.selector.as_ref();
            selector.is_some_and(|s| s.match_labels.iter().all(|(name, value)| labels.get(name) == Some(value)))
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
    fn higher_layers_replace_fields_and_merge_metadata_and_headers() {
        let defaults = ProxyConfig::default().with(&layer(
            "{concurrency: 4, proxyMetadata: {A: '1', B: '1'}, tracing: {sampling: 5, maxPathTagLength: 9}, \
             proxyHeaders: {requestId: {disabled: true}, xForwardedPort: {enabled: true}}}",
        ));
        let layers = ProxyConfigLayers {
            mesh: Some(layer("{concurrency: 3, image: {imageType: debug}}")),
            namespace: Some(layer("{proxy_metadata: {B: '2', C: '2'}, tracing: {sampling: 7}}")),
            annotation: Some(layer("concurrency: 1\nproxyHeaders: {server: {value: me}}\nunknown: 1\n")),
            workload: Some(layer("{concurrency: 2}")),
        };
        let found = layers.over(&defaults);
        assert_eq!((found.concurrency, found.status_port), (Some(2), 15020));
        let metadata: Vec<(&str, &str)> = found.proxy_metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(metadata, [("A", "1"), ("B", "2"), ("C", "2")]);
        let tracing = found.tracing.unwrap();
        assert_eq!((tracing.sampling, tracing.max_path_tag_length), (7.0, 0), "messages are replaced");
        let headers = found.proxy_headers.unwrap();
        assert!(headers.request_id.is_some() && headers.server.is_some() && headers.x_forwarded_port.is_none());
        assert_eq!(found.image.unwrap().image_type, "debug".into());
    }

    #[test]
    fn setting_a_oneof_field_replaces_the_other_one() {
        let named = ProxyConfig::default().with(&layer("{tracingServiceName: CANONICAL_NAME_ONLY}"));
        assert_eq!(
            named.cluster_name,
            Some(crate::mesh::ProxyClusterName::Tracing(crate::mesh::TracingServiceName::CanonicalNameOnly))
        );
    }

    #[test]
    fn rejects_invalid_text_with_a_reason() {
        let error = |text: &str| ProxyConfigLayer::parse(text).unwrap_err().to_string();
        assert!(error("concurrency: many").contains("concurrency"), "{}", error("concurrency: many"));
        assert!(error("[1]").contains("object"), "{}", error("[1]"));
        assert!(!error("{a: 1, a: 2}").is_empty() && !error("a: b: c").is_empty());
        assert!(error(&" ".repeat(MAX_BYTES + 1)).contains("larger"));
        assert!(layer("").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(text in "[a-zA-Z:{}\\[\\], \n'\"0-9&*-]{0,80}") {
            if let Ok(layer) = ProxyConfigLayer::parse(&text) {
                let _ = ProxyConfig::default().with(&layer);
            }
        }
    }
}
