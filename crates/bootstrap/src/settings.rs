//! The effective ProxyConfig, merged from the mesh configuration file, `PROXY_CONFIG` and the pod's annotation.

use std::collections::BTreeMap;

use config::mesh::{PROXY_CONFIG_ANNOTATION, ProxyConfig, ProxyConfigLayer};
use config::{Diagnostic, Limits, ParseOptions, Severity, parse_mesh_config, parse_yaml_json};
use serde_json::{Value, json};

use crate::diagnostic::Diagnostics;
use crate::options::{Variables, text};

const DISCOVERY_ADDRESS: &str = "sidecar.istio.io/discoveryAddress";
const STATUS_PORT: &str = "status.sidecar.istio.io/port";
/// The default name of the proxy's service.
pub(crate) const SERVICE_CLUSTER: &str = "istio-proxy";

/// The sources of settings, lowest precedence first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layers<'a> {
    /// The text of the mesh configuration file, of which `defaultConfig` is used.
    pub mesh_file: Option<&'a str>,
    /// The value of `PROXY_CONFIG`.
    pub variable: Option<&'a str>,
    /// The annotations of the pod, among them `proxy.istio.io/config`.
    pub annotations: Option<&'a BTreeMap<String, String>>,
}

/// The legacy arguments of `proxy` that settings take over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arguments<'a> {
    /// `--concurrency`; 0 if it is not given.
    pub concurrency: i32,
    /// `--templateFile`.
    pub template_file: &'a str,
}

/// Merges the settings of the proxy over Istio's defaults.
#[must_use]
pub fn proxy_config(
    layers: &Layers<'_>,
    arguments: &Arguments<'_>,
    variables: &Variables,
    diagnostics: &mut Diagnostics,
) -> ProxyConfig {
    let annotation = |name: &str| layers.annotations.and_then(|all| all.get(name)).map(String::as_str);
    let mesh = layers.mesh_file.map(|file| default_config(file, diagnostics)).unwrap_or_default();
    let variable = layers.variable.map(|text| layer(text, "PROXY_CONFIG", diagnostics)).unwrap_or_default();
    let annotated = annotation(PROXY_CONFIG_ANNOTATION)
        .map(|text| layer(text, PROXY_CONFIG_ANNOTATION, diagnostics))
        .unwrap_or_default();
    let mut settings = ProxyConfig::default().with(&mesh.merge(&variable).merge(&annotated));
    settings.concurrency = concurrency(settings.concurrency, arguments, variables, diagnostics);
    if let Some(address) = annotation(DISCOVERY_ADDRESS) {
        settings.discovery_address = address.into();
    }
    if let Some(port) = annotation(STATUS_PORT) {
        match port.parse::<u16>() {
            Ok(port) => settings.status_port = port.into(),
            Err(_) => diagnostics.add(STATUS_PORT, format_args!("{port:?} is not a port; it is ignored")),
        }
    }
    if !arguments.template_file.is_empty() && settings.custom_config_file.is_empty() {
        settings.proxy_bootstrap_template_path = arguments.template_file.into();
    }
    settings
}

/// The number of worker threads: the argument, the setting or the processor limit of the container, in this order.
fn concurrency(
    setting: Option<i32>,
    arguments: &Arguments<'_>,
    variables: &Variables,
    diagnostics: &mut Diagnostics,
) -> Option<i32> {
    if arguments.concurrency != 0 {
        return Some(arguments.concurrency);
    }
    let limit = text(variables, "ISTIO_CPU_LIMIT").and_then(|limit| match limit.parse() {
        Ok(limit) => Some(limit).filter(|limit| *limit != 0),
        Err(_) => {
            diagnostics.add("ISTIO_CPU_LIMIT", format_args!("{limit:?} is not a whole number; it is ignored"));
            None
        }
    });
    setting.or(limit)
}

/// The field `defaultConfig` of a mesh configuration.
fn default_config(text: &str, diagnostics: &mut Diagnostics) -> ProxyConfigLayer {
    const PLACE: &str = "the mesh configuration file";
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    parsed.errors.iter().for_each(|error| diagnostics.add(PLACE, error));
    let document = parsed.documents.into_iter().next().map(|document| document.value);
    match document.as_ref().map(|mesh| (mesh.get("defaultConfig").or_else(|| mesh.get("default_config")), mesh)) {
        Some((Some(settings), _)) => {
            layer(&settings.to_string(), "defaultConfig of the mesh configuration file", diagnostics)
        }
        Some((None, mesh)) if !mesh.is_object() => {
            diagnostics.add(PLACE, "is not an object; it is ignored");
            ProxyConfigLayer::default()
        }
        _ => ProxyConfigLayer::default(),
    }
}

/// Parses settings; fields with errors are left out.
fn layer(text: &str, place: &str, diagnostics: &mut Diagnostics) -> ProxyConfigLayer {
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    parsed.errors.iter().for_each(|error| diagnostics.add(place, error));
    let Some(document) = parsed.documents.into_iter().next() else { return ProxyConfigLayer::default() };
    let Value::Object(fields) = document.value else {
        diagnostics.add(place, "is not an object; it is ignored");
        return ProxyConfigLayer::default();
    };
    let mut layer = ProxyConfigLayer::default();
    for (name, value) in fields {
        for problem in problems(&[&name], &value) {
            let ignored = if problem.is_error() { "; it is ignored" } else { "" };
            let path = problem.path.to_string().replacen("defaultConfig.", "", 1);
            diagnostics.add(place, format_args!("{path}: {}{ignored}", problem.message));
        }
        let valid =
            repaired(&[&name], value).map(|value| ProxyConfigLayer::parse(&nested(&[&name], &value).to_string()));
        if let Some(Ok(field)) = valid {
            layer = layer.merge(&field);
        }
    }
    layer
}

/// The value of the field at a path, without the inner field that makes it invalid; none if there is no single one.
fn repaired(path: &[&str], value: Value) -> Option<Value> {
    let is_valid = |value: &Value| !problems(path, value).iter().any(Diagnostic::is_error);
    if is_valid(&value) {
        return Some(value);
    }
    let Value::Object(fields) = value else { return None };
    fields.iter().find_map(|(name, inner)| {
        let mut rest = fields.clone();
        rest.remove(name);
        if !is_valid(&Value::Object(rest.clone())) {
            return None;
        }
        let Some(inner) = repaired(&[path, &[name]].concat(), inner.clone()) else { return Some(Value::Object(rest)) };
        let mut with_inner = rest.clone();
        with_inner.insert(name.clone(), inner);
        let with_inner = Value::Object(with_inner);
        Some(if is_valid(&with_inner) { with_inner } else { Value::Object(rest) })
    })
}

/// The errors and warnings in the field at a path.
fn problems(path: &[&str], value: &Value) -> Vec<Diagnostic> {
    let mesh = json!({ "defaultConfig": nested(path, value) }).to_string();
    let (_, mut found) = parse_mesh_config(mesh.as_bytes(), "", &ParseOptions::default());
    found.retain(|problem| problem.severity >= Severity::Warning);
    found
}

/// An object with one field at a path.
fn nested(path: &[&str], value: &Value) -> Value {
    path.iter().rfold(value.clone(), |value, name| json!({ *name: value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(layers: &Layers<'_>) -> (ProxyConfig, Vec<String>) {
        let mut diagnostics = Diagnostics::default();
        let settings = proxy_config(layers, &Arguments::default(), &Variables::new(), &mut diagnostics);
        (settings, diagnostics.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn higher_layers_win_and_metadata_is_merged() {
        let annotations = [
            (PROXY_CONFIG_ANNOTATION.to_owned(), "{concurrency: 3, proxyMetadata: {C: '3'}}".to_owned()),
            (STATUS_PORT.to_owned(), "0".to_owned()),
            (DISCOVERY_ADDRESS.to_owned(), "pilot:1".to_owned()),
        ];
        let (found, said) = settings(&Layers {
            mesh_file: Some(
                "trustDomain: x\ndefaultConfig:\n  concurrency: 1\n  proxyMetadata: {A: '1'}\n  drainDuration: 9s\n",
            ),
            variable: Some("{\"concurrency\":2,\"proxyMetadata\":{\"B\":\"2\"},\"meshId\":\"m\"}"),
            annotations: Some(&annotations.into()),
        });
        assert_eq!((found.concurrency, found.drain_duration.as_secs(), &*found.mesh_id), (Some(3), 9, "m"));
        assert_eq!((found.status_port, &*found.discovery_address, found.proxy_metadata.len()), (0, "pilot:1", 3));
        assert!(said.is_empty(), "{said:?}");
    }

    #[test]
    fn a_broken_field_keeps_the_others() {
        let text = "{concurrency: many, drainDuration: 7s, tracing: {sampling: 999, zipkin: {address: 'z:9411'}}, statusPort: 99999}";
        let (found, said) = settings(&Layers { variable: Some(text), ..Layers::default() });
        assert_eq!((found.concurrency, found.drain_duration.as_secs(), found.status_port), (None, 7, 15020));
        assert!(found.tracing.is_some_and(|tracing| tracing.tracer.is_some()), "the tracer is kept");
        assert!(said.len() == 3 && said[0].starts_with("PROXY_CONFIG: concurrency: "), "{said:?}");
        for text in ["a: b: c", "[1]", "5"] {
            let (found, said) = settings(&Layers { variable: Some(text), mesh_file: Some(text), annotations: None });
            assert_eq!((found, said.len()), (ProxyConfig::default(), 2), "{text}");
        }
    }

    #[test]
    fn the_processor_limit_is_the_default_of_concurrency() {
        let limited = [("ISTIO_CPU_LIMIT".to_owned(), "4".to_owned())].into();
        let of = |text, flag| {
            let arguments = Arguments { concurrency: flag, ..Arguments::default() };
            let layers = Layers { variable: Some(text), ..Layers::default() };
            proxy_config(&layers, &arguments, &limited, &mut Diagnostics::default()).concurrency
        };
        assert_eq!((of("{}", 0), of("{concurrency: 0}", 0), of("{concurrency: 2}", 1)), (Some(4), Some(0), Some(1)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_settings(text in "[a-zA-Z:{}\\[\\], \n'\"0-9&*-]{0,80}") {
            let _ = settings(&Layers { mesh_file: Some(&text), variable: Some(&text), annotations: None });
        }
    }
}
