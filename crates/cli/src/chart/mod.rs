//! The embedded Helm chart (`deploy/helm/rutter`) and its rendering.

mod operator;
mod set;
mod values;

use anyhow::{Context, Result, anyhow, ensure};
use go_template::{Host, Problem, Templates};
use serde_json::{Value as Json, json};

use crate::{manifests, yaml};

pub(crate) use operator::adopted;
pub(crate) use set::{assign, assign_text};
pub(crate) use values::{merge, unknown};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../deploy/helm/rutter/templates/", $name)))),*]
    };
}

/// The templates, by name.
const TEMPLATES: &[(&str, &str)] = files![
    "_helpers.tpl",
    "autoscale.yaml",
    "clusterrole.yaml",
    "configmap.yaml",
    "deployment.yaml",
    "gateway-classes.yaml",
    "injection.yaml",
    "poddisruptionbudget.yaml",
    "reader.yaml",
    "revision-tags.yaml",
    "role.yaml",
    "service.yaml",
    "serviceaccount.yaml",
    "webhooks.yaml",
];

/// Files that templates read by `.Files.Get`.
const FILES: &[(&str, &str)] = &[
    ("files/gateway.yaml", include_str!("../../../../deploy/helm/rutter/files/gateway.yaml")),
    ("files/grpc-agent.yaml", include_str!("../../../../deploy/helm/rutter/files/grpc-agent.yaml")),
    ("files/grpc-simple.yaml", include_str!("../../../../deploy/helm/rutter/files/grpc-simple.yaml")),
    ("files/kube-gateway.yaml", include_str!("../../../../deploy/helm/rutter/files/kube-gateway.yaml")),
    ("files/sidecar.yaml", include_str!("../../../../deploy/helm/rutter/files/sidecar.yaml")),
];

/// The default values with their descriptions.
pub(crate) const VALUES: &str = include_str!("../../../../deploy/helm/rutter/values.yaml");

const CHART: &str = include_str!("../../../../deploy/helm/rutter/Chart.yaml");

/// Kinds in Helm's installation order; other kinds follow.
const ORDER: &[&str] = &[
    "Namespace",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "Deployment",
    "HorizontalPodAutoscaler",
];

/// Name and namespace of an installation.
pub(crate) struct Release<'r> {
    pub(crate) name: &'r str,
    pub(crate) namespace: &'r str,
}

/// The parsed default values.
pub(crate) fn defaults() -> Result<Json> {
    one(VALUES).context("the chart's values")
}

/// Renders the objects of the chart with these values, in installation order.
pub(crate) fn objects(release: &Release<'_>, values: &Json) -> Result<Vec<Json>> {
    let chart = one(CHART).context("the chart")?;
    let given = json!({
        "Values": values,
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
        "Files": {},
        "Release": {"Name": release.name, "Namespace": release.namespace, "Service": "rutter"},
    });
    let mut templates = Templates::default();
    for (name, text) in TEMPLATES {
        templates.add(name, text)?;
    }
    let mut objects = Vec::new();
    for (name, _) in TEMPLATES.iter().filter(|(name, _)| name.ends_with(".yaml")) {
        let text = templates.render(name, &given, &Helm)?;
        let documents = manifests::parse_text(text.as_bytes())
            .with_context(|| format!("{name} does not render to valid YAML with these values"))?;
        for (object, line) in documents.into_iter().filter(|(object, _)| !object.is_null()) {
            ensure!(object["kind"].is_string(), "{name} does not render to objects with these values (line {line})");
            objects.push(object);
        }
    }
    objects.sort_by_key(install_order);
    Ok(objects)
}

/// The position of an object in the installation order.
fn install_order(object: &Json) -> usize {
    ORDER.iter().position(|kind| object["kind"] == *kind).unwrap_or(ORDER.len())
}

fn one(text: &str) -> Result<Json> {
    let documents = manifests::parse_text(text.as_bytes())?;
    let (value, _) = documents.into_iter().next().ok_or_else(|| anyhow!("the document is empty"))?;
    Ok(value)
}

/// Parses a file of values.
pub(crate) fn read_values(bytes: &[u8]) -> Result<Json> {
    let documents = manifests::parse_text(bytes)?;
    ensure!(documents.len() <= 1, "expected one YAML document");
    let value = documents.into_iter().next().map_or(Json::Null, |(value, _)| value);
    match value {
        Json::Null => Ok(json!({})),
        value if value.is_object() => Ok(value),
        _ => Err(anyhow!("expected a map of values")),
    }
}

/// Functions of Helm that are not functions of all templates.
struct Helm;

impl Host for Helm {
    fn call(&self, name: &str, arguments: &[Json]) -> Option<Result<Json, Problem>> {
        (name == "toYaml").then(|| match arguments {
            [value] => Ok(yaml::document(value).trim_end_matches('\n').into()),
            _ => Err("expected one value".into()),
        })
    }

    /// `.Files.Get NAME`: the content of a file; empty if there is none.
    fn method(&self, _: &Json, name: &str, arguments: &[Json]) -> Option<Result<Json, Problem>> {
        let ("Get", [Json::String(file)]) = (name, arguments) else {
            return None;
        };
        let found = FILES.iter().find(|(known, _)| known == file);
        Some(Ok(found.map_or("", |(_, text)| text).into()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use config::schema::{crd, definitions};

    use super::*;

    fn chart() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/rutter")
    }

    #[test]
    fn every_template_of_the_chart_is_embedded() {
        let mut there: Vec<String> = fs::read_dir(chart().join("templates"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "NOTES.txt")
            .collect();
        there.sort();
        let carried: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
        assert_eq!(there, carried);
    }

    #[test]
    fn the_chart_has_the_version_of_the_program() {
        let chart = one(CHART).unwrap();
        for field in ["version", "appVersion"] {
            assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
        }
    }

    /// `RUTTER_UPDATE_DOCS=1` writes the file.
    #[test]
    fn reference_page_of_definitions_is_up_to_date() {
        let custom = definitions().iter().filter(|definition| !definition.builtin);
        let expected: String = custom.map(|one| format!("---\n{}", yaml::document(&crd(one)))).collect();
        let file = chart().join("crds/crds.yaml");
        if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
            fs::write(&file, &expected).unwrap();
        }
        let found = fs::read_to_string(&file).unwrap_or_default();
        assert!(found == expected, "{} is out of date: `cargo xtask docs` writes it", file.display());
    }

    #[test]
    fn rendering_errors_name_the_template() {
        let release = Release { name: "r", namespace: "n" };
        let error = objects(&release, &json!({})).unwrap_err();
        assert!(error.to_string().contains(".yaml:") || error.to_string().contains(".tpl:"), "{error}");
    }
}
