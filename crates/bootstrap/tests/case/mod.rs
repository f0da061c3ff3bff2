//! The format of scenarios: sections `=== input` (YAML), `=== bootstrap` and `=== diagnostics`.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::path::Path;

use bootstrap::{
    Arguments, Diagnostics, Facts, Flavor, Layers, Node, Options, Platform, Role, Source, Variables, generate,
    parse_downward, proxy_config, render, source,
};
use config::{Limits, parse_yaml_json};
use names::NodeType;
use serde_json::Value;

/// A scenario without its answer.
pub(crate) struct Case {
    text: String,
    input: Value,
}

/// The results of a scenario.
pub(crate) struct Output {
    pub(crate) bootstrap: Value,
    pub(crate) diagnostics: Vec<String>,
}

impl Case {
    pub(crate) fn parse(text: &str) -> Case {
        let input = text.strip_prefix("=== input\n").expect("a file begins with its input");
        let input = input.split("=== ").next().unwrap().to_owned();
        let parsed = parse_yaml_json(input.as_bytes(), "", &Limits::default());
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        Case {
            text: input,
            input: parsed.documents.into_iter().next().map(|document| document.value).unwrap_or_default(),
        }
    }

    /// The file with its answer.
    pub(crate) fn answer(&self, bootstrap: &[String], diagnostics: &[String]) -> String {
        let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        format!("=== input\n{}=== bootstrap\n{}=== diagnostics\n{}", self.text, lines(bootstrap), lines(diagnostics))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.input[name].as_str()
    }

    fn variables(&self) -> Variables {
        let set = self.input["variables"].as_object().cloned().unwrap_or_default();
        set.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect()
    }

    pub(crate) fn run(&self) -> Output {
        let mut diagnostics = Diagnostics::default();
        let node = self.node(&mut diagnostics);
        let flavor = if self.text("flavor") == Some("istio") { Flavor::Istio } else { Flavor::Stock };
        let bootstrap = match self.text("template") {
            None => generate(&node, flavor, &mut diagnostics),
            Some(template) => {
                let text = render("template", template, &node, flavor, &mut diagnostics).unwrap();
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
            }
        };
        Output { bootstrap, diagnostics: diagnostics.0.iter().map(ToString::to_string).collect() }
    }

    fn node(&self, diagnostics: &mut Diagnostics) -> Node {
        let variables = self.variables();
        let downward = |name: &str| self.text(name).map(|text| parse_downward(text).unwrap());
        let (labels, annotations) = (downward("labels"), downward("annotations"));
        let layers = Layers {
            mesh_file: self.text("mesh"),
            variable: variables.get("PROXY_CONFIG").map(String::as_str),
            annotations: annotations.as_ref(),
        };
        let arguments =
            Arguments { concurrency: 0, template_file: self.text("template").map_or("", |_| "custom.json") };
        let settings = proxy_config(&layers, &arguments, &variables, diagnostics);
        let expected = if self.text("template").is_some() {
            Source::Template("custom.json".to_owned())
        } else {
            Source::Generated
        };
        assert_eq!(source(&settings, &variables), expected);
        let mut options = Options::from_variables(&variables, diagnostics);
        options.log_as_json = self.input["logAsJson"].as_bool().unwrap_or_default();
        let kind = self.text("type").unwrap_or("sidecar");
        let kind = NodeType::ALL.into_iter().find(|known| known.name() == kind).unwrap();
        let addresses = self.input["interfaces"].as_array().cloned().unwrap_or_default();
        let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.as_str().unwrap().parse().unwrap()).collect();
        let facts = Facts {
            variables: &variables,
            labels: labels.as_ref(),
            annotations: annotations.as_ref(),
            platform: Platform::from_variables(&variables).unwrap_or_default(),
            credential_socket: false,
            serves_only_files: self.input["servesOnlyFiles"].as_bool().unwrap_or_default(),
            outlier_log_path: self.text("outlierLogPath").unwrap_or_default(),
            sts_port: 0,
            version: "1.28.0",
        };
        let role = Role::new(kind, &variables, &addresses, &[], self.text("domain").unwrap_or_default());
        Node::new(&role, &settings, &options, &facts, diagnostics)
    }

    /// Whether the bootstrap is rendered from a template, so that it has little in common with the generated one.
    pub(crate) fn has_template(&self) -> bool {
        self.text("template").is_some()
    }

    /// The bootstrap for the Envoy of this machine: without the extension of Istio's Envoy, with a log in `folder`.
    pub(crate) fn for_this_machine(&self, folder: &Path) -> Value {
        let mut bootstrap = self.run().bootstrap;
        if let Some(extensions) = bootstrap["bootstrap_extensions"].as_array_mut() {
            extensions.retain(|extension| extension["name"] != "metadata_discovery");
        }
        if let Some(path) = bootstrap.pointer_mut("/cluster_manager/outlier_detection/event_log_path") {
            *path = folder.join("outlier.log").to_str().unwrap().into();
        }
        bootstrap
    }
}
