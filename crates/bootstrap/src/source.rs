//! Selects the generated bootstrap, a template, or a complete configuration.

use config::mesh::ProxyConfig;

use crate::options::{Variables, text};

/// The source of Envoy's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// It is generated, with [`crate::generate`].
    Generated,
    /// It is rendered from the template in this file, with [`crate::render`].
    Template(String),
    /// Envoy reads this file (`customConfigFile`). The agent neither changes nor removes it.
    Complete(String),
}

impl Source {
    /// The name of the file that the agent writes in the folder `configPath`. Envoy tells the format from the name.
    #[must_use]
    pub fn file_name(&self) -> &'static str {
        match self {
            Source::Template(path) if path.ends_with(".yaml") || path.ends_with(".yaml.tmpl") => "envoy-rev.yaml",
            _ => "envoy-rev.json",
        }
    }
}

/// The source of Envoy's configuration: `customConfigFile`, `ISTIO_BOOTSTRAP`, `proxyBootstrapTemplatePath` or the generated
/// one, in this order.
#[must_use]
pub fn source(settings: &ProxyConfig, variables: &Variables) -> Source {
    if !settings.custom_config_file.is_empty() {
        return Source::Complete(settings.custom_config_file.to_string());
    }
    let template = text(variables, "ISTIO_BOOTSTRAP").unwrap_or(&settings.proxy_bootstrap_template_path);
    if template.is_empty() { Source::Generated } else { Source::Template(template.to_owned()) }
}
