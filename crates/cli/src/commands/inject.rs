//! `rutter inject`: adds the sidecar to the workloads of files.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use clap::{ArgMatches, Command, value_parser};
use config::mesh::{PROXY_CONFIG_ANNOTATION, ProxyConfig, ProxyConfigLayer};
use config::{AnyObject, MeshConfig, ParseOptions, parse_mesh_config, read_object};
use inject::{Injector, Surroundings, Workload};
use serde_json::Value as Json;

use crate::failure::{FAILURE, SUCCESS, StatusError, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::manifests::{self, bytes_of, name_of};
use crate::output;
use crate::server::{self, Server, encode};

/// The name of the ConfigMap of the default revision.
const CONFIG_MAP: &str = "istio-sidecar-injector";

pub(super) fn command() -> Command {
    let file = |name: &'static str, help: &'static str| option(name, "FILE", help).value_parser(value_parser!(PathBuf));
    let command = Command::new("inject")
        .about("Add the sidecar to the workloads of files, and print all objects")
        .long_about(
            "Add the sidecar to the workloads of files, and print all objects. The templates, values and mesh configuration are \
             those of the cluster; with --inject-config-file, --values-file and --mesh-config-file no cluster is needed. \
             ProxyConfig objects are not applied, as with istioctl kube-inject.",
        )
        .after_help(
            "Examples:\n  rutter inject -f deployment.yaml | kubectl apply -f -\n  \
             rutter inject -f deployment.yaml --inject-config-file config.yaml --values-file values.yaml",
        )
        .arg(file("inject-config-file", "File with the key `config` of the ConfigMap").alias("injectConfigFile"))
        .arg(file("values-file", "File with the key `values` of the ConfigMap").alias("valuesFile"))
        .arg(file("mesh-config-file", "File with the mesh configuration").alias("meshConfigFile"))
        .arg(option("revision", "REVISION", "Revision of the control plane"))
        .arg(flag("native-sidecars", "Make sidecars native, unless a pod says otherwise"))
        .arg(
            option("istioNamespace", "NAME", "Namespace of the control plane").short('i').default_value("istio-system"),
        );
    server::arguments(manifests::arguments(command, true))
}

/// The inputs of an injection: the injector, the mesh configuration and the revision.
pub(super) struct Settings {
    pub(super) injector: Injector,
    pub(super) mesh: MeshConfig,
    pub(super) revision: String,
}

impl Settings {
    /// Injects a workload.
    pub(super) fn inject(&self, workload: &mut Workload, namespace: &str, native: bool) -> Result<()> {
        let pod = workload.pod(namespace);
        let annotation = pod["metadata"]["annotations"][PROXY_CONFIG_ANNOTATION].as_str();
        let layer = annotation.map(ProxyConfigLayer::parse).transpose();
        let layer = layer.context(PROXY_CONFIG_ANNOTATION)?.unwrap_or_default();
        let proxy_config: ProxyConfig = self.mesh.default_config.with(&layer);
        let none = BTreeMap::new();
        let around = Surroundings {
            mesh: &self.mesh,
            proxy_config: &proxy_config,
            revision: &self.revision,
            parameters: &none,
            native_sidecars: native,
            namespace: None,
            openshift: false,
            compliance_policy: "",
            environment: &none,
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs().cast_signed()),
            seed: RandomState::new().hash_one(0),
        };
        Ok(workload.inject(&self.injector, namespace, &around)?)
    }
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let objects = manifests::read(matches, io)?;
    let namespace = matches.get_one::<String>("namespace").map_or("default", String::as_str);
    let settings = settings(matches, io).await?;
    let native = matches.get_flag("native-sidecars");
    let mut code = SUCCESS;
    let mut printed = Vec::new();
    for manifest in objects {
        let (label, place) = (manifest.label(), manifest.place());
        let mut workload = match Workload::new(manifest.value) {
            Ok(workload) => workload,
            Err(other) => {
                printed.push(other);
                continue;
            }
        };
        let decision = workload.decide(&settings.injector, namespace);
        match decision.inject {
            false => io.eprint(format!("{label}: no sidecar: {}", decision.reason)),
            true => {
                if let Err(error) = settings.inject(&mut workload, namespace, native) {
                    io.eprint(format!("{place}: {label}: {error:#}"));
                    code = FAILURE;
                }
            }
        }
        printed.push(workload.into_object());
    }
    if code == FAILURE {
        return Ok(code);
    }
    output::documents(&printed, io)?;
    Ok(code)
}

/// The settings of files, or of the cluster.
async fn settings(matches: &ArgMatches, io: &mut Io) -> Result<Settings> {
    let revision = matches.get_one::<String>("revision").cloned().unwrap_or_default();
    let file = |name: &str, io: &mut Io| -> Result<Option<String>> {
        let Some(path) = matches.get_one::<PathBuf>(name) else { return Ok(None) };
        let bytes = bytes_of(path, io)?;
        String::from_utf8(bytes).map(Some).map_err(|_| anyhow!("{}: not UTF-8", name_of(path)))
    };
    let (config, values) = (file("inject-config-file", io)?, file("values-file", io)?);
    let mesh = file("mesh-config-file", io)?;
    if config.is_some() != values.is_some() {
        return Err(usage("--inject-config-file and --values-file belong together"));
    }
    let needs_cluster = config.is_none() || mesh.is_none();
    let is_offline = config.is_some() && mesh.is_none();
    let server = match needs_cluster && !is_offline {
        true => Some(Server::connect(matches, io).await?),
        false => None,
    };
    let root = matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str);
    let injector = match (config, values, &server) {
        (Some(config), Some(values), _) => Injector::parse(&config, &values)?,
        (_, _, Some(server)) => of_cluster(server, root, &revision).await?,
        _ => return Err(usage("--inject-config-file and --values-file belong together")),
    };
    let mesh = match (mesh, &server) {
        (Some(text), _) => {
            parse_mesh_config(text.as_bytes(), "", &ParseOptions::default()).0.context("--mesh-config-file")?
        }
        (None, Some(server)) => mesh_of_cluster(server, root, &revision).await?,
        (None, None) => MeshConfig::default(),
    };
    Ok(Settings { injector, mesh, revision })
}

/// The injection configuration of a cluster.
pub(super) async fn of_cluster(server: &Server, namespace: &str, revision: &str) -> Result<Injector> {
    let name = with_revision(CONFIG_MAP, revision);
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", encode(namespace), encode(&name));
    let object = server.get(&path).await.with_context(|| format!("ConfigMap {namespace}/{name}"))?;
    let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
    Injector::parse(text("config"), text("values")).with_context(|| format!("ConfigMap {namespace}/{name}"))
}

/// The mesh configuration of a cluster; defaults if there is no ConfigMap.
pub(super) async fn mesh_of_cluster(server: &Server, namespace: &str, revision: &str) -> Result<MeshConfig> {
    let name = with_revision("istio", revision);
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", encode(namespace), encode(&name));
    let found = match server.get(&path).await {
        Ok(found) => found,
        Err(error) if StatusError::is_not_found(&error) => return Ok(MeshConfig::default()),
        Err(error) => return Err(error),
    };
    let text = found["data"]["mesh"].as_str().unwrap_or_default();
    match read_object(&found, &ParseOptions::default()).object {
        Some(AnyObject::MeshConfig(mesh)) => Ok(mesh.spec.clone()),
        _ => parse_mesh_config(text.as_bytes(), "", &ParseOptions::default())
            .0
            .with_context(|| format!("ConfigMap {namespace}/{name}")),
    }
}

fn with_revision(name: &str, revision: &str) -> String {
    match revision {
        "" | "default" => name.to_owned(),
        revision => format!("{name}-{revision}"),
    }
}

/// An object with its pod, or an error that names the kinds.
pub(super) fn workload(object: Json) -> Result<Workload> {
    Workload::new(object).map_err(|object| anyhow!("a {} has no pods", object["kind"].as_str().unwrap_or("object")))
}
