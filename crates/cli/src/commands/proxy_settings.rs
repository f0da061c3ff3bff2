//! `rutter proxy-settings`: prints the effective ProxyConfig of a workload and its sources.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::istio::ProxyConfig;
use config::mesh::{MeshConfig, NamespaceProxyConfigs, PROXY_CONFIG_ANNOTATION, ProxyConfigLayer, ProxyConfigLayers};
use config::{AnyObject, Object, ParseOptions, StringMap, parse_mesh_config, read_object};
use serde_json::Value as Json;

use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::{option, yaml_or_json};
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Request, Server, encode};

pub(super) fn command() -> Command {
    let command = Command::new("proxy-settings")
        .about("Print the effective proxy settings of a workload")
        .long_about(
            "Print the effective proxy settings of a workload. From lowest to highest precedence, they are: defaultConfig of the \
             mesh, the ProxyConfig of the root namespace, the ProxyConfig of the workload's namespace, the pod annotation \
             proxy.istio.io/config, and the ProxyConfig that selects the workload. A proxy reads them when it starts.",
        )
        .after_help(
            "Examples:\n  rutter proxy-settings web-7d8f -n shop\n  rutter proxy-settings -n shop -l app=web,version=v1 -o json",
        )
        .arg(Arg::new("pod").value_name("POD").help("Name of a pod"))
        .arg(
            option("label", "KEY=VALUE", "Label of a workload that does not exist yet")
                .short('l')
                .value_delimiter(',')
                .action(ArgAction::Append)
                .conflicts_with("pod"),
        )
        .arg(
            option("istioNamespace", "NAME", "Namespace of the ConfigMap with the mesh configuration")
                .short('i')
                .default_value("istio-system"),
        )
        .arg(yaml_or_json());
    server::arguments(command)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let workload = workload(matches)?;
    let server = Server::connect(matches, io).await?;
    let mesh = mesh(&server, matches).await?;
    let (labels, annotation) = match workload {
        Workload::Pod(name) => of_pod(&server, &name).await?,
        Workload::Labels(labels) => (labels, None),
    };
    let root = configs(&server, &mesh.root_namespace).await?;
    let own = match server.namespace == *mesh.root_namespace {
        true => None,
        false => Some(configs(&server, &server.namespace).await?),
    };
    let of_workload = own.as_ref().unwrap_or(&root).selecting(&labels);
    let of_namespace = own.as_ref().and_then(|own| own.common.as_ref());
    let layer =
        |object: Option<&Arc<Object<ProxyConfig>>>| object.map(|object| ProxyConfigLayer::from_object(&object.spec));
    let layers = ProxyConfigLayers {
        mesh: layer(root.common.as_ref()),
        namespace: layer(of_namespace),
        annotation: annotation.and_then(|text| annotated(&text, io)),
        workload: layer(of_workload),
    };
    for object in [root.common.as_ref(), of_namespace, of_workload].into_iter().flatten() {
        io.eprint(format!("from ProxyConfig {}/{}", object.meta.namespace, object.meta.name));
    }
    if layers.annotation.is_some() {
        io.eprint(format!("from the annotation {PROXY_CONFIG_ANNOTATION}"));
    }
    for object in root.shadowed.iter().chain(own.iter().flat_map(|own| &own.shadowed)) {
        let (namespace, name) = (&object.meta.namespace, &object.meta.name);
        io.warn(format!(
            "ProxyConfig {namespace}/{name} has no effect: its namespace has an older one without a selector"
        ));
    }
    let format = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => Format::Json,
        _ => Format::Yaml,
    };
    output::print(io, &format, None, &layers.over(&mesh.default_config).to_json())?;
    Ok(SUCCESS)
}

/// The workload of the proxy.
enum Workload {
    Pod(String),
    Labels(StringMap),
}

fn workload(matches: &ArgMatches) -> Result<Workload> {
    if let Some(pod) = matches.get_one::<String>("pod") {
        return Ok(Workload::Pod(pod.clone()));
    }
    let given: Vec<&String> = matches.get_many("label").into_iter().flatten().collect();
    ensure!(!given.is_empty(), usage("expected a POD, or --label for a workload that does not exist yet"));
    let pair = |text: &&String| {
        let (key, value) = text.split_once('=')?;
        Some((Arc::from(key), Arc::from(value)))
    };
    let labels: Option<StringMap> = given.iter().map(pair).collect();
    Ok(Workload::Labels(labels.ok_or_else(|| usage("--label: expected KEY=VALUE"))?))
}

/// The labels and the annotation of a pod.
async fn of_pod(server: &Server, name: &str) -> Result<(StringMap, Option<String>)> {
    let name = name.strip_prefix("pod/").unwrap_or(name);
    let path = format!("/api/v1/namespaces/{}/pods/{}", encode(&server.namespace), encode(name));
    let pod = server.get(&path).await?;
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((Arc::from(key.as_str()), Arc::from(value.as_str()?))));
    let annotation = pod["metadata"]["annotations"][PROXY_CONFIG_ANNOTATION].as_str();
    Ok((labels.collect(), annotation.map(str::to_owned)))
}

fn annotated(text: &str, io: &mut Io) -> Option<ProxyConfigLayer> {
    match ProxyConfigLayer::parse(text) {
        Ok(layer) => Some(layer),
        Err(problem) => {
            io.warn(format!("the annotation {PROXY_CONFIG_ANNOTATION} has no effect: {problem}"));
            None
        }
    }
}

/// The mesh configuration; defaults if there is no ConfigMap.
async fn mesh(server: &Server, matches: &ArgMatches) -> Result<MeshConfig> {
    let namespace = matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str);
    let path = format!("/api/v1/namespaces/{}/configmaps/istio", encode(namespace));
    let found = match server.get(&path).await {
        Ok(found) => found,
        Err(error) if StatusError::is_not_found(&error) => return Ok(MeshConfig::default()),
        Err(error) => return Err(error),
    };
    let text = found["data"]["mesh"].as_str().unwrap_or_default();
    let name = format!("ConfigMap {namespace}/istio");
    let (mesh, _) = parse_mesh_config(text.as_bytes(), &name, &ParseOptions::default());
    mesh.context("the mesh configuration is invalid").context(name)
}

/// The ProxyConfigs of a namespace; none if the server does not serve the kind.
async fn configs(server: &Server, namespace: &str) -> Result<NamespaceProxyConfigs> {
    let path = format!("/apis/networking.istio.io/v1beta1/namespaces/{}/proxyconfigs", encode(namespace));
    let mut list = match server.list(Request::get(&path)).await {
        Ok(list) => list,
        Err(error) if StatusError::is_not_found(&error) => return Ok(NamespaceProxyConfigs::default()),
        Err(error) => return Err(error),
    };
    let items = server::array(&mut list, "items").map(std::mem::take).unwrap_or_default();
    Ok(NamespaceProxyConfigs::of(items.into_iter().filter_map(config).collect()))
}

fn config(mut item: Json) -> Option<Arc<Object<ProxyConfig>>> {
    // Items of a list have neither apiVersion nor kind.
    let fields = item.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), "networking.istio.io/v1beta1".into());
    fields.insert("kind".to_owned(), "ProxyConfig".into());
    match read_object(&item, &ParseOptions::default()).object? {
        AnyObject::ProxyConfig(object) => Some(object),
        _ => None,
    }
}
