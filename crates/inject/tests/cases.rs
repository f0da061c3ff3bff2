//! Injection by cases: each file in `tests/data` has a pod, settings and the expected result.
//!
//! A file begins with a description, followed by sections: `=== pod`, optionally `=== values`, `=== config`, `=== mesh`,
//! `=== proxy` (ProxyConfig) and `=== around` (revision, native, openshift, namespace, path), and `=== result`. The
//! result lists fields by path, with the items of lists by name: `+` is added or changed, `-` removed, `!` part of the plain
//! injection (`plain.case`) but not of this one. What this injection adds as the plain one does is not listed.
//! `RUTTER_BLESS=1` rewrites the results.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use config::mesh::{ProxyConfigLayer, ProxyConfigLayers};
use config::{Limits, MeshConfig, ParseOptions, parse_mesh_config, parse_yaml_json};
use inject::{Injector, Surroundings, difference, parameters};
use serde_json::{Map, Value, json};

const SIDECAR: &str = include_str!("../../../deploy/helm/rutter/files/sidecar.yaml");
const GATEWAY: &str = include_str!("../../../deploy/helm/rutter/files/gateway.yaml");
const GRPC_SIMPLE: &str = include_str!("../../../deploy/helm/rutter/files/grpc-simple.yaml");
const GRPC_AGENT: &str = include_str!("../../../deploy/helm/rutter/files/grpc-agent.yaml");
const VALUES: &str = include_str!("values.yaml");

struct Case {
    description: String,
    sections: Vec<(String, String)>,
}

impl Case {
    fn read(text: &str) -> Case {
        let mut parts = text.split("=== ");
        let description = parts.next().unwrap().to_owned();
        let sections = parts.map(|part| {
            let (name, body) = part.split_once('\n').unwrap_or((part, ""));
            (name.trim().to_owned(), body.to_owned())
        });
        Case { description, sections: sections.collect() }
    }

    fn text(&self, name: &str) -> &str {
        self.sections.iter().find(|(known, _)| known == name).map_or("", |(_, body)| body)
    }

    fn yaml(&self, name: &str) -> Value {
        yaml(self.text(name))
    }

    fn with_result(&self, result: &str) -> String {
        let mut out = self.description.clone();
        for (name, body) in self.sections.iter().filter(|(name, _)| name != "result") {
            out.push_str(&format!("=== {name}\n{body}"));
        }
        format!("{out}=== result\n{result}")
    }

    fn injector(&self) -> Result<Injector, inject::ConfigError> {
        let mut config = json!({"policy": "enabled", "templates": {"sidecar": SIDECAR, "gateway": GATEWAY, "grpc-simple": GRPC_SIMPLE, "grpc-agent": GRPC_AGENT}});
        merge(&mut config, &self.yaml("config"));
        let mut values = yaml(VALUES);
        merge(&mut values, &self.yaml("values"));
        Injector::parse(&config.to_string(), &values.to_string())
    }

    fn mesh(&self) -> MeshConfig {
        match self.text("mesh") {
            "" => MeshConfig::default(),
            text => parse_mesh_config(text.as_bytes(), "", &ParseOptions::default()).0.unwrap(),
        }
    }

    /// The result as lines, the final pod and the original one.
    fn run(&self) -> Result<(Value, Value), String> {
        let pod = self.yaml("pod");
        let around = self.yaml("around");
        let injector = self.injector().map_err(|error| format!("config error: {error}\n"))?;
        let decision = injector.decide(&pod, "shop");
        if !decision.inject {
            return Err(format!("skipped: {}\n", decision.reason));
        }
        let injected = self.inject(&injector, &pod, &around).map_err(|error| format!("error: {error}\n"))?;
        let patch = Value::Array(difference(&pod, &injected));
        let patched = k8s_patch::json_patch(&pod, &patch, &k8s_patch::Limits::default()).unwrap();
        assert_eq!(patched, injected, "the patch makes the injected pod");
        let again = self.inject(&injector, &injected, &around).unwrap();
        let (first, second) = (lines(&injected), lines(&again));
        let changed: Vec<&String> = first.symmetric_difference(&second).collect();
        assert!(changed.is_empty(), "{}: a second injection changes {changed:#?}", self.description);
        Ok((pod, injected))
    }

    fn inject(&self, injector: &Injector, pod: &Value, around: &Value) -> Result<Value, inject::Error> {
        let mesh = self.mesh();
        let annotation = pod["metadata"]["annotations"]["proxy.istio.io/config"].as_str();
        let layers = ProxyConfigLayers {
            annotation: annotation.and_then(|text| ProxyConfigLayer::parse(text).ok()),
            workload: Some(self.text("proxy"))
                .filter(|text| !text.is_empty())
                .map(|text| ProxyConfigLayer::parse(text).unwrap()),
            ..ProxyConfigLayers::default()
        };
        let proxy_config = layers.over(&mesh.default_config);
        let text = |name: &str| around[name].as_str().unwrap_or_default();
        let environment = BTreeMap::from([("VENDOR".to_owned(), "ours".to_owned())]);
        injector.inject(
            pod,
            &Surroundings {
                mesh: &mesh,
                proxy_config: &proxy_config,
                revision: text("revision"),
                parameters: &parameters(around["path"].as_str().unwrap_or("/inject")),
                native_sidecars: around["native"] == true,
                namespace: Some(&around["namespace"]).filter(|namespace| namespace.is_object()),
                openshift: around["openshift"] == true,
                compliance_policy: text("compliance"),
                environment: &environment,
                now: 1_700_000_000,
                seed: 1,
            },
        )
    }
}

fn yaml(text: &str) -> Value {
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.documents.into_iter().next().map_or(Value::Null, |document| document.value)
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The fields of a pod as lines. Items of lists are named; the order of containers is a line of its own.
fn lines(pod: &Value) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    flatten(pod, "", &mut out);
    for list in ["containers", "initContainers"] {
        let names = pod["spec"][list].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|container| container["name"].as_str()).collect();
        out.insert(format!("order of {list}: {}", names.join(" ")));
    }
    out
}

fn flatten(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(value, &format!("{path}{dot}{name}"), out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| at.to_string(), str::to_owned);
                flatten(item, &format!("{path}[{name}]"), out);
            }
        }
        other => drop(out.insert(format!("{path}: {other}"))),
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files
}

fn added(original: &Value, injected: &Value) -> BTreeSet<String> {
    lines(injected).difference(&lines(original)).cloned().collect()
}

#[test]
fn cases() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let files = files();
    let plain = files.iter().find(|file| file.ends_with("plain.case")).unwrap();
    let plain = Case::read(&fs::read_to_string(plain).unwrap()).run().unwrap();
    let plain = added(&plain.0, &plain.1);
    let mut failed = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let case = Case::read(&text);
        let run = std::panic::catch_unwind(|| case.run());
        let Ok(run) = run else {
            failed.push(file.display().to_string());
            continue;
        };
        let shown = match run {
            Err(text) => text,
            Ok((original, injected)) => {
                let added = added(&original, &injected);
                let removed: Vec<String> = lines(&original).difference(&lines(&injected)).cloned().collect();
                let is_plain = file.ends_with("plain.case");
                let new =
                    added.iter().filter(|line| is_plain || !plain.contains(*line)).map(|line| format!("+ {line}\n"));
                let missing = plain.iter().filter(|line| !added.contains(*line)).map(|line| format!("! {line}\n"));
                let removed = removed.iter().map(|line| format!("- {line}\n"));
                new.chain(removed).chain(missing).collect()
            }
        };
        if case.text("result") == shown {
            continue;
        }
        match bless {
            true => fs::write(file, case.with_result(&shown)).unwrap(),
            false => {
                let name = file.file_name().unwrap().to_string_lossy();
                failed.push(format!("{name}: got\n{shown}\nexpected\n{}", case.text("result")));
            }
        }
    }
    assert!(failed.is_empty(), "RUTTER_BLESS=1 rewrites results\n{}", failed.join("\n"));
    assert!(files.len() >= 150, "{} cases", files.len());
}

#[test]
fn all_patches_are_minimal_for_pods_that_need_none() {
    let pod = json!({"metadata": Map::new(), "spec": {"containers": [{"name": "a"}]}});
    assert!(difference(&pod, &pod).is_empty());
}
