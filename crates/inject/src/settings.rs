//! The injection configuration: the ConfigMap `istio-sidecar-injector`.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::mesh::{LabelSelector, LabelSelectorRequirement};
use config::{Limits, parse_yaml_json};
use go_template::Templates;
use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::functions;

/// Maximum number of templates.
const MAX_TEMPLATES: usize = 256;
/// The template of pods that do not name one, unless `defaultTemplates` is set.
const SIDECAR: &str = "sidecar";

/// Whether pods get a sidecar that do not ask for one or refuse it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// They do.
    Enabled,
    /// They do not.
    #[default]
    Disabled,
}

/// The parsed injection configuration.
#[derive(Clone, Debug)]
pub struct Injector {
    pub(crate) policy: Policy,
    pub(crate) default_templates: Vec<String>,
    pub(crate) templates: BTreeMap<String, Templates>,
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    pub(crate) never: Vec<LabelSelector>,
    pub(crate) always: Vec<LabelSelector>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) values: Value,
}

impl Injector {
    /// Parses the keys `config` and `values` of the ConfigMap.
    ///
    /// # Errors
    /// A text is not valid YAML, a field has a wrong type, or a template has a syntax error or calls an unknown function.
    pub fn parse(config: &str, values: &str) -> Result<Injector, ConfigError> {
        let values = match read("values", values)? {
            Value::Null => Value::Object(Map::new()),
            values @ Value::Object(_) => values,
            _ => return Err(field("values", "values", "expected an object")),
        };
        let config = read("config", config)?;
        let fields = Fields(&config);
        if !config.is_object() {
            return Err(field("config", "config", "expected an object with `templates`"));
        }
        let mut default_templates = fields.texts("defaultTemplates")?;
        if default_templates.is_empty() {
            default_templates.push(SIDECAR.to_owned());
        }
        Ok(Injector {
            policy: fields.policy()?,
            default_templates,
            templates: fields.templates()?,
            aliases: fields.aliases()?,
            never: fields.selectors("neverInjectSelector")?,
            always: fields.selectors("alwaysInjectSelector")?,
            annotations: fields.map("injectedAnnotations")?,
            values,
        })
    }

    /// The values.
    pub fn values(&self) -> &Value {
        &self.values
    }

    /// The names of the templates.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// A text of the values; empty if it is missing.
    pub(crate) fn value(&self, pointer: &str) -> &str {
        self.values.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A boolean of the values; false if it is missing.
    pub(crate) fn flag(&self, pointer: &str) -> bool {
        self.values.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }
}

fn read(key: &'static str, text: &str) -> Result<Value, ConfigError> {
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(ConfigError::Syntax { key, line: error.line.max(1), message: error.message });
    }
    Ok(parsed.documents.into_iter().next().map_or(Value::Null, |document| document.value))
}

fn field(key: &'static str, field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError::Field { key, field: field.into(), message: message.into() }
}

/// The fields of the key `config`.
struct Fields<'c>(&'c Value);

impl Fields<'_> {
    fn policy(&self) -> Result<Policy, ConfigError> {
        match &self.0["policy"] {
            Value::String(text) if text == "enabled" => Ok(Policy::Enabled),
            Value::String(text) if text == "disabled" => Ok(Policy::Disabled),
            Value::Null => Ok(Policy::Disabled),
            other => Err(field("config", "policy", format!("expected `enabled` or `disabled`, got {other}"))),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        match &self.0[name] {
            Value::Null => Ok(Vec::new()),
            value => texts(value).ok_or_else(|| field("config", name, "expected a list of names")),
        }
    }

    fn map(&self, name: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        let wrong = || field("config", name, "expected an object with texts");
        match &self.0[name] {
            Value::Null => Ok(BTreeMap::new()),
            Value::Object(map) => {
                let entries =
                    map.iter().map(|(name, value)| Ok((name.clone(), value.as_str().ok_or_else(wrong)?.into())));
                entries.collect()
            }
            _ => Err(wrong()),
        }
    }

    fn aliases(&self) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
        let wrong = || field("config", "aliases", "expected an object with lists of template names");
        match &self.0["aliases"] {
            Value::Null => Ok(BTreeMap::new()),
            Value::Object(map) => {
                map.iter().map(|(name, value)| Ok((name.clone(), texts(value).ok_or_else(wrong)?))).collect()
            }
            _ => Err(wrong()),
        }
    }

    fn templates(&self) -> Result<BTreeMap<String, Templates>, ConfigError> {
        let texts = self.map("templates")?;
        if texts.len() > MAX_TEMPLATES {
            return Err(field("config", "templates", format!("more than {MAX_TEMPLATES} templates")));
        }
        texts.iter().map(|(name, text)| Ok((name.clone(), template(name, text)?))).collect()
    }

    fn selectors(&self, name: &str) -> Result<Vec<LabelSelector>, ConfigError> {
        let Some(list) = self.0[name].as_array() else {
            return match &self.0[name] {
                Value::Null => Ok(Vec::new()),
                _ => Err(field("config", name, "expected a list of label selectors")),
            };
        };
        let selectors = list
            .iter()
            .enumerate()
            .map(|(at, value)| selector(value).map_err(|message| field("config", format!("{name}[{at}]"), message)));
        selectors.collect()
    }
}

/// Parses a template and looks for functions that do not exist, as Go does when it parses.
fn template(name: &str, text: &str) -> Result<Templates, ConfigError> {
    let mut templates = Templates::default();
    let parsed = templates.add(name, text);
    parsed.map_err(|error| ConfigError::Template {
        template: name.to_owned(),
        line: error.line,
        message: error.message,
    })?;
    let unknown = templates.functions().into_iter().find(|name| !functions::is_known(name)).map(str::to_owned);
    match unknown {
        None => Ok(templates),
        Some(function) => {
            let line = 1 + text.lines().position(|line| line.contains(&function)).unwrap_or_default();
            let message = format!("unknown function `{function}`");
            Err(ConfigError::Template { template: name.to_owned(), line, message })
        }
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| Some(item.as_str()?.to_owned())).collect()
}

fn selector(value: &Value) -> Result<LabelSelector, String> {
    let text = |value: &Value| value.as_str().map(Arc::<str>::from).ok_or_else(|| format!("{value} is not a text"));
    let mut selector = LabelSelector::default();
    for (name, value) in value["matchLabels"].as_object().into_iter().flatten() {
        selector.match_labels.insert(name.as_str().into(), text(value)?);
    }
    for expression in value["matchExpressions"].as_array().into_iter().flatten() {
        let values = expression["values"].as_array().into_iter().flatten();
        let requirement = LabelSelectorRequirement {
            key: text(&expression["key"])?,
            operator: text(&expression["operator"])?,
            values: values.map(text).collect::<Result<_, _>>()?,
        };
        if !matches!(&*requirement.operator, "In" | "NotIn" | "Exists" | "DoesNotExist") {
            return Err(format!(
                "{:?} is not an operator: use In, NotIn, Exists or DoesNotExist",
                requirement.operator
            ));
        }
        selector.match_expressions.push(requirement);
    }
    Ok(selector)
}
