//! The description of the proxy from what surrounds the agent: files, environment and network interfaces.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use agent_core::environment::Environment;
use bootstrap::{
    Arguments as LegacyArguments, Diagnostics, Facts, Flavor, Layers, Node, Options, Platform, Role, Source, Variables,
};
use config::mesh::ProxyConfig;
use config::{Limits, parse_yaml_json};

use crate::arguments::Arguments;
use crate::interfaces;
use crate::lookup::Lookups;

/// The labels and annotations of the pod, which the kubelet writes.
const LABELS: &str = "./etc/istio/pod/labels";
const ANNOTATIONS: &str = "./etc/istio/pod/annotations";
/// The socket of a server of credentials for gateways.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";
/// The annotation that names interfaces whose addresses are not the proxy's.
const EXCLUDED_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The contents of the files that the bootstrap depends on. They are compared to find changes.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Files {
    mesh: Option<String>,
    labels: Option<String>,
    annotations: Option<String>,
    /// `ISTIO_BOOTSTRAP_OVERRIDE`.
    overlay: Option<String>,
}

impl Files {
    /// Reads the files. One that does not exist is none.
    pub(crate) fn read(arguments: &Arguments, environment: &Environment) -> Files {
        Files {
            mesh: text(&arguments.mesh_config),
            labels: text(Path::new(LABELS)),
            annotations: text(Path::new(ANNOTATIONS)),
            overlay: environment.text("ISTIO_BOOTSTRAP_OVERRIDE").and_then(|path| text(Path::new(path))),
        }
    }

    /// These files, but the earlier content of those that are gone or not valid: a proxy keeps its settings while a file is replaced
    /// or broken.
    pub(crate) fn over(self, earlier: Files) -> Files {
        let is_valid = |text: &String| parse_yaml_json(text.as_bytes(), "", &Limits::default()).errors.is_empty();
        let is_downward = |text: &String| bootstrap::parse_downward(text).is_ok();
        let newest = |name: &str, new: Option<String>, earlier: Option<String>, is_valid: &dyn Fn(&String) -> bool| {
            let valid = new.filter(is_valid);
            if valid.is_none() && earlier.is_some() {
                tracing::error!("{name}: the file is gone or not valid; its last content stays in use");
            }
            valid.or(earlier)
        };
        Files {
            mesh: newest("the mesh configuration", self.mesh, earlier.mesh, &is_valid),
            labels: newest(LABELS, self.labels, earlier.labels, &is_downward),
            annotations: newest(ANNOTATIONS, self.annotations, earlier.annotations, &is_downward),
            overlay: newest("ISTIO_BOOTSTRAP_OVERRIDE", self.overlay, earlier.overlay, &is_valid),
        }
    }
}

/// The status port of the agent in this container, from `PROXY_CONFIG` and the annotations of the pod.
#[must_use]
pub fn status_port(environment: &Environment) -> u16 {
    port_of(environment, parsed((&text(Path::new(ANNOTATIONS)), ANNOTATIONS)).as_ref())
}

fn port_of(environment: &Environment, annotations: Option<&BTreeMap<String, String>>) -> u16 {
    let layers = Layers { mesh_file: None, variable: environment.text("PROXY_CONFIG"), annotations };
    // The agent itself reports what is not valid.
    let mut diagnostics = Diagnostics::default();
    let settings =
        bootstrap::proxy_config(&layers, &LegacyArguments::default(), &Variables::default(), &mut diagnostics);
    settings.status_port.try_into().unwrap_or_default()
}

/// The text of a file; none if it does not exist, cannot be read or is too large.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    match read {
        Ok(size) if size as u64 <= MAX_FILE => Some(text),
        Ok(_) => {
            tracing::error!(file = %path.display(), "the file is larger than {MAX_FILE} bytes; it is ignored");
            None
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!(file = %path.display(), %error, "the file cannot be read; it is ignored");
            None
        }
    }
}

/// All variables of the environment.
pub(crate) fn variables(environment: &Environment) -> Variables {
    environment.with_prefix("").map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A proxy, as its bootstrap and the control plane describe it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Proxy {
    pub(crate) settings: ProxyConfig,
    pub(crate) role: Role,
    pub(crate) node: Node,
    /// Where the configuration of Envoy comes from.
    pub(crate) source: Source,
    /// The argument `--config-yaml` of Envoy.
    pub(crate) overlay: Option<String>,
}

/// The facts that do not change while the agent runs.
pub(crate) struct Fixed<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) environment: &'a Environment,
    /// Whether the agent serves secrets from files only.
    pub(crate) serves_only_files: bool,
    /// The settings with which the agent's parts run; none at the start.
    pub(crate) bound: Option<ProxyConfig>,
    pub(crate) lookups: Lookups,
    pub(crate) platform: Platform,
}

impl Fixed<'_> {
    /// Describes the proxy. Problems are logged.
    pub(crate) fn describe(&self, files: &Files) -> Proxy {
        let Fixed { arguments, environment, serves_only_files, bound, lookups, platform } = self;
        let mut diagnostics = Diagnostics::default();
        let variables = variables(environment);
        let [labels, annotations] = [(&files.labels, LABELS), (&files.annotations, ANNOTATIONS)].map(parsed);
        let mut settings = bootstrap::proxy_config(
            &Layers {
                mesh_file: files.mesh.as_deref(),
                variable: environment.text("PROXY_CONFIG"),
                annotations: annotations.as_ref(),
            },
            &LegacyArguments { concurrency: arguments.concurrency, template_file: &arguments.template_file },
            &variables,
            &mut diagnostics,
        );
        lookups.resolve(&mut settings.statsd_udp_address);
        if let Some(bound) = bound {
            keep_bound(&mut settings, bound);
        }
        let options =
            Options { log_as_json: arguments.log_as_json, ..Options::from_variables(&variables, &mut diagnostics) };
        let (interfaces, excluded) = divided(interfaces::addresses(), annotations.as_ref());
        let role = Role::new(arguments.kind, &variables, &interfaces, &excluded, &arguments.domain);
        let facts = Facts {
            variables: &variables,
            labels: labels.as_ref(),
            annotations: annotations.as_ref(),
            platform: platform.clone(),
            credential_socket: Path::new(CREDENTIAL_SOCKET).exists(),
            serves_only_files: *serves_only_files,
            outlier_log_path: &arguments.outlier_log_path,
            sts_port: arguments.sts_port,
            version: env!("CARGO_PKG_VERSION"),
        };
        let node = Node::new(&role, &settings, &options, &facts, &mut diagnostics);
        let source = bootstrap::source(&settings, &variables);
        let overlay = files.overlay.as_deref();
        let overlay = overlay.and_then(|text| bootstrap::overlay_json(text, &options.host_ip, &mut diagnostics));
        report(&diagnostics);
        Proxy { settings, role, node, source, overlay }
    }
}

impl Proxy {
    /// The file of Envoy's configuration and, unless the operator wrote it, the text to write there.
    ///
    /// # Errors
    /// A template cannot be read or rendered.
    pub(crate) fn configuration(&self) -> anyhow::Result<(String, Option<String>)> {
        let mut diagnostics = Diagnostics::default();
        let path = || format!("{}/{}", self.settings.config_path.trim_end_matches('/'), self.source.file_name());
        let written = match &self.source {
            Source::Complete(path) => return Ok((path.clone(), None)),
            Source::Generated => {
                format!("{:#}\n", bootstrap::generate(&self.node, Flavor::Stock, &mut diagnostics))
            }
            Source::Template(template) => {
                let text = fs::read_to_string(template)
                    .map_err(|error| anyhow::anyhow!("cannot read the bootstrap template {template}: {error}"))?;
                bootstrap::render(template, &text, &self.node, Flavor::Stock, &mut diagnostics)?
            }
        };
        report(&diagnostics);
        Ok((path(), Some(written)))
    }
}

/// Keeps the settings that the parts of the agent got when they started, so that Envoy and the agent agree.
fn keep_bound(settings: &mut ProxyConfig, bound: &ProxyConfig) {
    fn keep<T: PartialEq + Clone>(name: &str, now: &mut T, bound: &T) {
        if now != bound {
            tracing::warn!("{name} has changed; the new value is used when the agent starts again");
            now.clone_from(bound);
        }
    }
    keep("discoveryAddress", &mut settings.discovery_address, &bound.discovery_address);
    keep("controlPlaneAuthPolicy", &mut settings.control_plane_auth_policy, &bound.control_plane_auth_policy);
    keep("statusPort", &mut settings.status_port, &bound.status_port);
    keep("proxyAdminPort", &mut settings.proxy_admin_port, &bound.proxy_admin_port);
    keep("binaryPath", &mut settings.binary_path, &bound.binary_path);
    keep("concurrency", &mut settings.concurrency, &bound.concurrency);
    keep("drainDuration", &mut settings.drain_duration, &bound.drain_duration);
    keep("terminationDrainDuration", &mut settings.termination_drain_duration, &bound.termination_drain_duration);
    keep("readinessProbe", &mut settings.readiness_probe, &bound.readiness_probe);
    keep("privateKeyProvider", &mut settings.private_key_provider, &bound.private_key_provider);
}

fn report(diagnostics: &Diagnostics) {
    for diagnostic in &diagnostics.0 {
        tracing::warn!("{diagnostic}");
    }
}

/// The pairs of a file of the downward API.
fn parsed((text, path): (&Option<String>, &str)) -> Option<BTreeMap<String, String>> {
    match bootstrap::parse_downward(text.as_deref()?) {
        Ok(pairs) => Some(pairs),
        Err(error) => {
            tracing::error!(file = path, %error, "the file is ignored");
            None
        }
    }
}

/// All addresses, and those of the interfaces that the annotation excludes.
fn divided(
    addresses: Vec<(String, IpAddr)>,
    annotations: Option<&BTreeMap<String, String>>,
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let excluded = annotations.and_then(|all| all.get(EXCLUDED_INTERFACES)).map(String::as_str).unwrap_or_default();
    let names: Vec<&str> = excluded.split(',').map(str::trim).collect();
    let is_excluded = |(name, _): &&(String, IpAddr)| names.contains(&name.as_str());
    let excluded = addresses.iter().filter(is_excluded).map(|(_, ip)| *ip).collect();
    (addresses.iter().map(|(_, ip)| *ip).collect(), excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_or_missing_file_keeps_its_last_content() {
        let files = |mesh: Option<&str>, labels: Option<&str>| Files {
            mesh: mesh.map(str::to_owned),
            labels: labels.map(str::to_owned),
            ..Files::default()
        };
        let (mesh, labels) = ("defaultConfig: {}\n", "app=\"web\"\n");
        let first = files(Some(mesh), Some(labels));
        for broken in [files(None, None), files(Some("a: b: c"), Some("app=web"))] {
            assert!(broken.over(first.clone()) == first);
        }
        let new = files(Some("defaultConfig: {concurrency: 1}"), Some("app=\"other\""));
        assert!(new.clone().over(first) == new);
    }

    #[test]
    fn settings_of_running_parts_are_kept() {
        let bound = ProxyConfig { status_port: 15020, ..ProxyConfig::default() };
        let mut settings = ProxyConfig { status_port: 15030, stat_name_length: 5, ..ProxyConfig::default() };
        keep_bound(&mut settings, &bound);
        assert_eq!((settings.status_port, settings.stat_name_length), (15020, 5));
    }

    #[test]
    fn the_status_port_is_that_of_the_agent() {
        let environment = |config: &'static str| [("PROXY_CONFIG", config)].into_iter().collect();
        let annotations = BTreeMap::from([("status.sidecar.istio.io/port".to_owned(), "15025".to_owned())]);
        assert_eq!(port_of(&environment("{}"), None), 15020);
        assert_eq!(port_of(&environment("statusPort: 15030"), None), 15030);
        assert_eq!(port_of(&environment("statusPort: 15030"), Some(&annotations)), 15025);
    }

    #[test]
    fn addresses_of_excluded_interfaces_are_known() {
        let address = |name: &str, ip: &str| (name.to_owned(), ip.parse::<IpAddr>().unwrap());
        let all = vec![address("eth0", "10.0.0.1"), address("net1", "10.1.0.1")];
        let annotations = BTreeMap::from([(EXCLUDED_INTERFACES.to_owned(), "net1, net2".to_owned())]);
        let (interfaces, excluded) = divided(all.clone(), Some(&annotations));
        assert_eq!((interfaces.len(), excluded), (2, vec![all[1].1]));
        assert_eq!(divided(all, None).1, Vec::<IpAddr>::new());
    }
}
