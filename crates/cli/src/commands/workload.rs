//! `rutter workload configure`: writes the files with which a virtual machine joins the mesh as a workload of a WorkloadGroup.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value as Json, json};

use super::token::join_token;
use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::option;
use crate::io::Io;
use crate::manifests::{bytes_of, parse_text};
use crate::server::{self, Request, Server, encode};
use crate::yaml;

/// The directory in which the agent keeps the certificate that it got for a join token.
const CERTIFICATES: &str = "/etc/certs";
/// The annotation with settings of proxies.
const SETTINGS: &str = "proxy.istio.io/config";
/// Ports whose inbound traffic is not captured, besides that of the agent: SSH, metrics and readiness.
const EXCLUDED: &str = "22,15090,15021";

pub(super) fn command() -> Command {
    let file = |name, help| option(name, "FILE", help).value_parser(value_parser!(PathBuf));
    let address = |name, help| option(name, "ADDRESS", help).value_parser(value_parser!(IpAddr));
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let configure = Command::new("configure")
        .about("Write the files with which a virtual machine joins the mesh")
        .after_help(
            "Writes cluster.env, mesh.yaml, hosts, root-cert.pem and istio-token. The token is secret. In Kubernetes, it is a token of the \
             service account; otherwise a join token, which is valid once. With --file, --root-cert-file and --token-file, no \
             server is needed.\n\n\
             Examples:\n  rutter workload configure --name vm -n shop --autoregister --ingressIP 203.0.113.7 -o files\n  \
             rutter workload configure -f group.yaml --root-cert-file root.pem --token-file token -o files",
        )
        .arg(file("file", "File with the WorkloadGroup; `-` reads standard input [default: read it from the server]").short('f'))
        .arg(option("name", "NAME", "Name of the WorkloadGroup").conflicts_with("file").required_unless_present("file"))
        .arg(file("output", "Directory to write to. It is created if it does not exist").short('o').required(true))
        .arg(option("istioNamespace", "NAME", "Namespace of the control plane").short('i').default_value("istio-system"))
        .arg(option("revision", "NAME", "Revision of the control plane").short('r'))
        .arg(option("clusterID", "ID", "Cluster ID of the workload").default_value("Kubernetes"))
        .arg(address("ingressIP", "Address at which the machine reaches the control plane"))
        .arg(address("internalIP", "Address of the machine, if it is not that of its first interface"))
        .arg(address("externalIP", "Address of the machine for others, if it has no such interface"))
        .arg(switch("autoregister", "Create a WorkloadEntry when the machine connects"))
        .arg(switch("capture-dns", "Resolve names of the mesh on the machine"))
        .arg(option("tokenDuration", "SECONDS", "Lifetime of the token").value_parser(value_parser!(u32)).default_value("3600"))
        .arg(file("mesh-config-file", "File with the mesh configuration [default: read it from the server]"))
        .arg(file("root-cert-file", "File with the root certificates [default: read them from the server]"))
        .arg(file("token-file", "File with a token [default: create one]"));
    Command::new("workload")
        .about("Configure workloads outside of Kubernetes")
        .after_help(
            "Examples:\n  rutter workload configure --name vm -n shop --autoregister --ingressIP 203.0.113.7 -o files",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server::arguments(configure))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let Some(("configure", matches)) = matches.subcommand() else {
        // clap requires a subcommand.
        return Err(usage("expected configure"));
    };
    let given = |name: &str| matches.get_one::<PathBuf>(name);
    let is_offline = ["file", "root-cert-file", "token-file"].into_iter().all(|name| given(name).is_some());
    let server = if is_offline { None } else { Some(Server::connect(matches, io).await?) };
    let group = group(matches, server.as_ref(), io).await?;
    let machine = Machine::new(&group, matches, mesh_config(matches, server.as_ref(), io).await?)?;
    let root = match (given("root-cert-file"), &server) {
        (Some(file), _) => bytes_of(file, io)?,
        (None, Some(server)) => root(server, root_namespace(matches), &machine.namespace).await?.into_bytes(),
        (None, None) => bail!(usage("--root-cert-file is missing")),
    };
    let token = match (given("token-file"), &server) {
        (Some(file), _) => bytes_of(file, io)?,
        (None, Some(server)) => token_of(server, matches, &machine).await?.into_bytes(),
        (None, None) => bail!(usage("--token-file is missing")),
    };
    let directory = given("output").context("--output is missing")?;
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let hosts = machine.hosts(matches);
    if hosts.is_empty() {
        io.warn(
            "the file hosts is empty: set --ingressIP unless the machine can resolve the name of the control plane",
        );
    }
    let mesh = yaml::document(&json!({"defaultConfig": machine.settings}));
    for (name, content, mode) in [
        ("cluster.env", machine.environment(matches).into_bytes(), 0o644),
        ("mesh.yaml", mesh.into_bytes(), 0o644),
        ("hosts", hosts.into_bytes(), 0o644),
        ("root-cert.pem", root, 0o644),
        ("istio-token", token, 0o600),
    ] {
        write(&directory.join(name), &content, mode)?;
    }
    io.print(format!("wrote the files to {}; istio-token is secret", directory.display()))?;
    Ok(SUCCESS)
}

pub(super) fn write(file: &Path, content: &[u8], mode: u32) -> Result<()> {
    let shown = || format!("cannot write {}", file.display());
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(file);
    let mut opened = opened.with_context(shown)?;
    // The file may have existed with other permissions.
    opened.set_permissions(Permissions::from_mode(mode)).with_context(shown)?;
    opened.write_all(content).with_context(shown)
}

/// The WorkloadGroup.
async fn group(matches: &ArgMatches, server: Option<&Server>, io: &mut Io) -> Result<Json> {
    let (file, name) = (matches.get_one::<PathBuf>("file"), matches.get_one::<String>("name"));
    let group = match (file, name, server) {
        (Some(file), ..) => {
            let documents = parse_text(&bytes_of(file, io)?).with_context(|| file.display().to_string())?;
            let found = documents.into_iter().map(|(document, _)| document).find(|one| one["kind"] == "WorkloadGroup");
            found.with_context(|| format!("{} contains no WorkloadGroup", file.display()))?
        }
        (None, Some(name), Some(server)) => {
            let (namespace, name) = (encode(&server.namespace), encode(name));
            server.get(&format!("/apis/networking.istio.io/v1/namespaces/{namespace}/workloadgroups/{name}")).await?
        }
        _ => bail!(usage("--name or --file is missing")),
    };
    let mut group = group;
    if group["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
        let given = matches.try_get_one::<String>("namespace").ok().flatten().map(String::as_str);
        let of_server = server.map(|server| server.namespace.as_str());
        group["metadata"]["namespace"] = given.or(of_server).unwrap_or("default").into();
    }
    Ok(group)
}

/// The mesh configuration; empty if there is none.
async fn mesh_config(matches: &ArgMatches, server: Option<&Server>, io: &mut Io) -> Result<Json> {
    let text = match (matches.get_one::<PathBuf>("mesh-config-file"), server) {
        (Some(file), _) => bytes_of(file, io)?,
        (None, None) => return Ok(json!({})),
        (None, Some(server)) => {
            let name = match revision(matches) {
                None => "istio".to_owned(),
                Some(revision) => format!("istio-{revision}"),
            };
            let path = format!("/api/v1/namespaces/{}/configmaps/{}", encode(root_namespace(matches)), encode(&name));
            match server.get(&path).await {
                Ok(map) => map["data"]["mesh"].as_str().unwrap_or_default().as_bytes().to_vec(),
                Err(error) if StatusError::is_not_found(&error) => Vec::new(),
                Err(error) => return Err(error),
            }
        }
    };
    let documents = parse_text(&text).context("the mesh configuration")?;
    Ok(documents.into_iter().next().map_or_else(|| json!({}), |(document, _)| document))
}

fn root_namespace(matches: &ArgMatches) -> &str {
    matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str)
}

fn revision(matches: &ArgMatches) -> Option<&str> {
    let revision = matches.get_one::<String>("revision").map(String::as_str);
    revision.filter(|revision| !revision.is_empty() && *revision != "default")
}

/// The root certificates, which Rutter writes into each namespace, or into its own if it has a store.
pub(super) async fn root(server: &Server, root_namespace: &str, namespace: &str) -> Result<String> {
    for namespace in [namespace, root_namespace] {
        let path = format!("/api/v1/namespaces/{}/configmaps/istio-ca-root-cert", encode(namespace));
        match server.get(&path).await {
            Ok(map) => {
                let pem = map["data"]["root-cert.pem"].as_str().filter(|pem| !pem.is_empty());
                return pem
                    .map(str::to_owned)
                    .with_context(|| format!("ConfigMap {namespace}/istio-ca-root-cert is empty"));
            }
            Err(error) if StatusError::is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    bail!("ConfigMap istio-ca-root-cert not found in {namespace} and {root_namespace}: set --root-cert-file")
}

async fn token_of(server: &Server, matches: &ArgMatches, machine: &Machine) -> Result<String> {
    let seconds = matches.get_one::<u32>("tokenDuration").copied().unwrap_or(3600);
    let account = &machine.account;
    ensure!(
        !account.is_empty(),
        "WorkloadGroup {} has no spec.template.serviceAccount, which the token is for",
        machine.name
    );
    token(server, (&machine.namespace, account), seconds, root_namespace(matches)).await
}

/// A token of the service account, if the server issues such tokens; otherwise a join token.
pub(super) async fn token(
    server: &Server,
    (namespace, account): (&str, &str),
    seconds: u32,
    root_namespace: &str,
) -> Result<String> {
    let resources = server.get("/api/v1").await?;
    let resources = resources["resources"].as_array();
    if !resources.is_some_and(|all| all.iter().any(|one| one["name"] == "serviceaccounts/token")) {
        let lifetime = Duration::from_secs(seconds.into());
        let token = join_token(server, (namespace, account), lifetime, root_namespace).await?;
        return Ok(token.expose().to_owned());
    }
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", encode(namespace), encode(account));
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["istio-ca"], "expirationSeconds": seconds},
    });
    let issued: Json = server.send(Request::post(path, &request)).await?;
    issued["status"]["token"].as_str().map(str::to_owned).context("the server issued no token")
}

/// The settings of a machine.
struct Machine {
    name: String,
    namespace: String,
    account: String,
    ports: BTreeMap<String, u64>,
    /// The host name of the control plane.
    control_plane: String,
    /// `defaultConfig`.
    settings: Map<String, Json>,
}

impl Machine {
    fn new(group: &Json, matches: &ArgMatches, mut mesh: Json) -> Result<Machine> {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let (meta, spec) = (&group["metadata"], &group["spec"]);
        let template = &spec["template"];
        let (name, namespace) = (text(&meta["name"]), text(&meta["namespace"]));
        ensure!(!name.is_empty(), "the WorkloadGroup has no metadata.name");
        let ports = template["ports"].as_object().into_iter().flatten();
        let ports = ports.filter_map(|(name, port)| Some((name.clone(), port.as_u64()?))).collect();
        let mut settings = map(mesh["defaultConfig"].take());
        let mut metadata = map(settings.remove("proxyMetadata").unwrap_or_default());
        for annotations in [&meta["annotations"], &spec["metadata"]["annotations"]] {
            let Some(text) = annotations[SETTINGS].as_str() else { continue };
            for (more, _) in parse_text(text.as_bytes()).with_context(|| format!("annotation {SETTINGS}"))? {
                let mut more = map(more);
                metadata.extend(map(more.remove("proxyMetadata").unwrap_or_default()));
                settings.extend(more);
            }
        }
        let host = match revision(matches) {
            None => format!("istiod.{}.svc", root_namespace(matches)),
            Some(revision) => format!("istiod-{revision}.{}.svc", root_namespace(matches)),
        };
        if revision(matches).is_some() {
            settings.entry("discoveryAddress").or_insert_with(|| format!("{host}:15012").into());
        }
        if spec["probe"].is_object() {
            settings.insert("readinessProbe".into(), spec["probe"].clone());
        }
        let account = text(&template["serviceAccount"]);
        let mut machine = Machine { name, namespace, account, ports, control_plane: host, settings };
        let trust_domain = Some(text(&mesh["trustDomain"])).filter(|domain| !domain.is_empty());
        metadata.extend(machine.metadata(spec, trust_domain.unwrap_or_else(|| "cluster.local".to_owned()), matches));
        machine.settings.insert("proxyMetadata".into(), metadata.into());
        Ok(machine)
    }

    /// The variables that become metadata of the node.
    fn metadata(&self, spec: &Json, trust_domain: String, matches: &ArgMatches) -> BTreeMap<String, Json> {
        let mut labels = map(spec["metadata"]["labels"].clone());
        labels.extend(map(spec["template"]["labels"].clone()));
        let first = |names: [&str; 3], default: &str| {
            let found = names.iter().find_map(|name| labels.get(*name)?.as_str());
            found.unwrap_or(default).to_owned()
        };
        let service = first(["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"], &self.name);
        let revision = first(["service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"], "latest");
        labels.insert("service.istio.io/canonical-name".into(), service.clone().into());
        labels.insert("service.istio.io/canonical-revision".into(), revision.clone().into());
        let ports = self.ports.iter().map(|(name, port)| json!({"name": name, "containerPort": port}));
        let ports: Vec<Json> = ports.collect();
        let cluster = matches.get_one::<String>("clusterID").cloned().unwrap_or_default();
        let mut set = BTreeMap::from([
            ("CANONICAL_SERVICE", service),
            ("CANONICAL_REVISION", revision),
            ("POD_NAMESPACE", self.namespace.clone()),
            ("SERVICE_ACCOUNT", self.account.clone()),
            ("TRUST_DOMAIN", trust_domain),
            ("ISTIO_META_CLUSTER_ID", cluster),
            ("ISTIO_META_MESH_ID", self.settings.get("meshId").and_then(Json::as_str).unwrap_or_default().to_owned()),
            ("ISTIO_META_NETWORK", spec["template"]["network"].as_str().unwrap_or_default().to_owned()),
            ("ISTIO_META_WORKLOAD_NAME", self.name.clone()),
            ("ISTIO_METAJSON_LABELS", Json::from(labels).to_string()),
        ]);
        if !ports.is_empty() {
            set.insert("ISTIO_META_POD_PORTS", Json::from(ports).to_string());
        }
        if matches.get_flag("capture-dns") {
            set.insert("ISTIO_META_DNS_CAPTURE", "true".to_owned());
        }
        if matches.get_flag("autoregister") {
            set.insert("ISTIO_META_AUTO_REGISTER_GROUP", self.name.clone());
        }
        set.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }

    /// The content of `cluster.env`, which a shell reads.
    fn environment(&self, matches: &ArgMatches) -> String {
        let status = self.settings.get("statusPort").and_then(Json::as_u64).unwrap_or(15020);
        let excluded = match status {
            15_090 | 15_021 => EXCLUDED.to_owned(),
            port => format!("{EXCLUDED},{port}"),
        };
        let ports: Vec<String> = self.ports.values().map(u64::to_string).collect();
        let inbound = if ports.is_empty() { "*".to_owned() } else { ports.join(",") };
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let metadata = self.settings.get("proxyMetadata").and_then(Json::as_object).into_iter().flatten();
        let mut lines: BTreeMap<String, String> = metadata.map(|(name, value)| (name.clone(), text(value))).collect();
        let mut set = |name: &str, value: String| drop(lines.insert(name.to_owned(), value));
        set("ISTIO_INBOUND_PORTS", inbound);
        set("ISTIO_NAMESPACE", self.namespace.clone());
        set("ISTIO_SERVICE", format!("{}.{}", self.name, self.namespace));
        set("ISTIO_SERVICE_CIDR", "*".to_owned());
        set("ISTIO_LOCAL_EXCLUDE_PORTS", excluded);
        set("SERVICE_ACCOUNT", self.account.clone());
        // The token is for the first certificate. The agent keeps that, and renews it with itself.
        ["PROV_CERT", "OUTPUT_CERTS"].iter().for_each(|name| set(name, CERTIFICATES.to_owned()));
        if revision(matches).is_some() {
            set("CA_ADDR", format!("{}:15012", self.control_plane));
        }
        let address = |name: &str| matches.get_one::<IpAddr>(name);
        if let Some(internal) = address("internalIP") {
            set("ISTIO_SVC_IP", internal.to_string());
        } else if let Some(external) = address("externalIP") {
            set("ISTIO_SVC_IP", external.to_string());
            set("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true".to_owned());
        }
        lines.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect()
    }

    /// Lines for `/etc/hosts`.
    fn hosts(&self, matches: &ArgMatches) -> String {
        let address = matches.get_one::<IpAddr>("ingressIP");
        address.map(|address| format!("{address} {}\n", self.control_plane)).unwrap_or_default()
    }
}

fn map(value: Json) -> Map<String, Json> {
    match value {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r#"'"'"'"#)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: vm
  namespace: shop
  annotations: { proxy.istio.io/config: '{ statusPort: 15021, proxyMetadata: { A: \"it''s\" } }' }
spec:
  metadata: { labels: { app: cart, tier: b } }
  template: { serviceAccount: cart, network: n1, ports: { http: 8080, admin: 9090 } }
  probe: { httpGet: { port: 8080 } }
";

    fn file(directory: &Path, name: &str) -> String {
        std::fs::read_to_string(directory.join(name)).unwrap()
    }

    #[tokio::test]
    async fn the_files_are_written_without_a_server() {
        let directory = tempfile::tempdir().unwrap();
        let input = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (group, root, token) = (input("group.yaml", GROUP), input("root", "PEM"), input("token", "rutter-join.1"));
        let mesh = input("mesh", "trustDomain: td\ndefaultConfig: { concurrency: 1, proxyMetadata: { B: x } }\n");
        let to = directory.path().join("files");
        let arguments = [
            "workload",
            "configure",
            "-f",
            &group,
            "--root-cert-file",
            &root,
            "--token-file",
            &token,
            "--mesh-config-file",
            &mesh,
            "-o",
            to.to_str().unwrap(),
            "--autoregister",
            "--ingressIP",
            "203.0.113.7",
            "--internalIP",
            "10.0.0.9",
        ];
        let mut io = Io::to(std::io::sink(), std::io::sink());
        let matches = command().try_get_matches_from(arguments).unwrap();
        assert_eq!(run(&matches, &mut io).await.unwrap(), SUCCESS);
        let environment = file(&to, "cluster.env");
        for line in [
            "A='it'\"'\"'s'",
            "B=x",
            "ISTIO_INBOUND_PORTS=9090,8080",
            "ISTIO_LOCAL_EXCLUDE_PORTS=22,15090,15021",
            "ISTIO_META_AUTO_REGISTER_GROUP=vm",
            "ISTIO_META_MESH_ID=''",
            "ISTIO_META_NETWORK=n1",
            "ISTIO_SERVICE=vm.shop",
            "ISTIO_SERVICE_CIDR='*'",
            "ISTIO_SVC_IP=10.0.0.9",
            "SERVICE_ACCOUNT=cart",
            "TRUST_DOMAIN=td",
            "CANONICAL_SERVICE=cart",
            "PROV_CERT=/etc/certs",
        ] {
            assert!(environment.lines().any(|one| one == line), "{line}:\n{environment}");
        }
        let mesh = parse_text(file(&to, "mesh.yaml").as_bytes()).unwrap().remove(0).0;
        let settings = &mesh["defaultConfig"];
        assert_eq!((&settings["concurrency"], &settings["statusPort"]), (&json!(1), &json!(15_021)));
        assert_eq!(settings["readinessProbe"]["httpGet"]["port"], 8080);
        let labels = settings["proxyMetadata"]["ISTIO_METAJSON_LABELS"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Json>(labels).unwrap()["tier"], "b");
        assert_eq!(file(&to, "hosts"), "203.0.113.7 istiod.istio-system.svc\n");
        assert_eq!((&*file(&to, "root-cert.pem"), &*file(&to, "istio-token")), ("PEM", "rutter-join.1"));
        let mode = std::fs::metadata(to.join("istio-token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
