//! `rutter grpc-bootstrap`: prints the xDS bootstrap of a proxyless gRPC application.
//!
//! Reads the same environment variables as Istio's agent.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value as Json, json};

use crate::failure::{SUCCESS, usage};
use crate::flags::option;
use crate::io::Io;

/// The default address of the control plane in a cluster.
const SERVER: &str = "istiod.istio-system.svc:15010";

pub(super) fn command() -> Command {
    let pairs = |name: &'static str, help: &'static str| option(name, "KEY=VALUE", help).action(ArgAction::Append);
    Command::new("grpc-bootstrap")
        .about("Print the xDS bootstrap of a proxyless gRPC application")
        .after_help(
            "The gRPC library reads the file named by GRPC_XDS_BOOTSTRAP. Targets start with xds:///.\n\n\
             Examples:\n  rutter grpc-bootstrap --namespace shop --server 127.0.0.1:15010 --file bootstrap.json\n  \
             GRPC_XDS_BOOTSTRAP=bootstrap.json ./client xds:///echo.shop.svc.cluster.local:7070\n  \
             rutter grpc-bootstrap --server unix:///etc/istio/proxy/XDS --cert-dir /var/lib/istio/data\n  \
             rutter grpc-bootstrap --server istiod.istio-system.svc:15012 --tls --cert-dir /var/lib/istio/data",
        )
        .arg(
            option("server", "ADDRESS", "Address of the control plane (HOST:PORT) or of an agent (unix:///PATH)")
                .default_value(SERVER),
        )
        .arg(option("name", "NAME", "Name of the workload [default: $POD_NAME, else grpc]"))
        .arg(
            option("namespace", "NAMESPACE", "Namespace of the workload [default: $POD_NAMESPACE, else default]")
                .short('n'),
        )
        .arg(option("ip", "ADDRESS", "IP address of the workload [default: $INSTANCE_IP, else 127.0.0.1]"))
        .arg(option("domain", "DOMAIN", "DNS domain for short hostnames [default: NAMESPACE.svc.cluster.local]"))
        .arg(option("service-account", "NAME", "Service account of the workload [default: $SERVICE_ACCOUNT]"))
        .arg(option("locality", "REGION/ZONE/SUBZONE", "Locality of the workload; zone and subzone are optional"))
        .arg(pairs("label", "Label of the workload").short('l'))
        .arg(pairs("metadata", "Node metadata; overrides ISTIO_META_ variables"))
        .arg(
            option("cert-dir", "DIR", "Directory with key.pem, cert-chain.pem and root-cert.pem, for mutual TLS")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("tls")
                .long("tls")
                .action(ArgAction::SetTrue)
                .requires("cert-dir")
                .help("Connect to the TLS port of the control plane, with the same certificate"),
        )
        .arg(
            option("file", "FILE", "File to write, replaced atomically [default: standard output]")
                .short('f')
                .value_parser(value_parser!(PathBuf)),
        )
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let bootstrap = bootstrap(matches, io)?;
    let text = serde_json::to_string_pretty(&bootstrap)?;
    match matches.get_one::<PathBuf>("file") {
        None => io.print(text)?,
        Some(file) => write(file, &text).with_context(|| format!("cannot write {}", file.display()))?,
    }
    Ok(SUCCESS)
}

/// Replaces the file atomically, so that a starting application reads the old or the new content.
fn write(file: &Path, text: &str) -> Result<()> {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(parent)?;
    writeln!(draft, "{text}")?;
    // Applications may run as any user; the file contains no secrets.
    let mut rights = draft.as_file().metadata()?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o644);
    draft.as_file().set_permissions(rights)?;
    draft.persist(file)?;
    Ok(())
}

fn bootstrap(matches: &ArgMatches, io: &Io) -> Result<Json> {
    let given = |flag: &str, variable: &str| {
        let flag = matches.get_one::<String>(flag).cloned();
        flag.or_else(|| io.var(variable)?.into_string().ok()).filter(|text| !text.is_empty())
    };
    let namespace = given("namespace", "POD_NAMESPACE").unwrap_or_else(|| "default".to_owned());
    let name = given("name", "POD_NAME").unwrap_or_else(|| "grpc".to_owned());
    let ip = given("ip", "INSTANCE_IP").unwrap_or_else(|| "127.0.0.1".to_owned());
    let domain = given("domain", "DOMAIN").unwrap_or_else(|| format!("{namespace}.svc.cluster.local"));
    for (flag, part) in [("namespace", &namespace), ("name", &name), ("domain", &domain)] {
        ensure!(
            !part.contains('~'),
            usage(format!("--{flag}: `~` is not allowed because it separates the parts of a node ID"))
        );
    }
    ensure!(ip.parse::<std::net::IpAddr>().is_ok(), usage(format!("--ip: {ip:?} is not an IP address")));
    let mut metadata = io.metadata();
    metadata.insert("GENERATOR".to_owned(), "grpc".into());
    metadata.insert("NAMESPACE".to_owned(), namespace.clone().into());
    metadata.insert("INSTANCE_IPS".to_owned(), ip.clone().into());
    if let Some(account) = given("service-account", "SERVICE_ACCOUNT") {
        metadata.insert("SERVICE_ACCOUNT".to_owned(), account.into());
    }
    let labels = pairs(matches, "label")?;
    if !labels.is_empty() {
        metadata.insert("LABELS".to_owned(), labels.into());
    }
    metadata.extend(pairs(matches, "metadata")?);
    let server = matches.get_one::<String>("server").map_or(SERVER, String::as_str);
    let mut node = json!({"id": format!("sidecar~{ip}~{name}.{namespace}~{domain}"), "metadata": metadata});
    if let Some(locality) = matches.get_one::<String>("locality") {
        let mut parts = locality.splitn(3, '/');
        let mut part = || parts.next().unwrap_or_default();
        node["locality"] = json!({"region": part(), "zone": part(), "sub_zone": part()});
    }
    let certificates = matches.get_one::<PathBuf>("cert-dir").map(PathBuf::as_path);
    let mut bootstrap = bootstrap::grpc(node, server, certificates);
    if let Some(directory) = certificates.filter(|_| matches.get_flag("tls")) {
        let files = bootstrap::grpc_certificates(directory);
        bootstrap["xds_servers"][0]["channel_creds"] = json!([{"type": "tls", "config": files}]);
    }
    Ok(bootstrap)
}

/// The values of a repeated flag `KEY=VALUE`.
fn pairs(matches: &ArgMatches, flag: &str) -> Result<Map<String, Json>> {
    let given = matches.get_many::<String>(flag).into_iter().flatten();
    given
        .map(|text| {
            let (key, value) = text
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| usage(format!("--{flag}: {text:?} is not KEY=VALUE")))?;
            Ok((key.to_owned(), value.into()))
        })
        .collect()
}

impl Io {
    /// Node metadata from the environment variables that Istio's agent reads.
    fn metadata(&self) -> Map<String, Json> {
        const KEYS: [&str; 6] = ["CLUSTER_ID", "NETWORK", "NODE_NAME", "WORKLOAD_NAME", "MESH_ID", "OWNER"];
        let value = |key: &&str| self.var(&format!("ISTIO_META_{key}"))?.into_string().ok();
        let found = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?.into())));
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(arguments: &[&str], environment: &'static [(&str, &str)]) -> Result<Json> {
        let matches = command().try_get_matches_from([&["grpc-bootstrap"], arguments].concat())?;
        let mut io = Io::to(std::io::sink(), std::io::sink());
        io.env = Box::new(|name| Some(environment.iter().find(|(n, _)| *n == name)?.1.into()));
        bootstrap(&matches, &io)
    }

    #[test]
    fn flags_override_the_environment() {
        let environment = &[
            ("POD_NAME", "client-1"),
            ("POD_NAMESPACE", "shop"),
            ("INSTANCE_IP", "10.0.0.1"),
            ("ISTIO_META_CLUSTER_ID", "east"),
        ];
        let made = made(&["-n", "pay", "-l", "app=client", "--locality", "r/z"], environment).unwrap();
        assert_eq!(made["node"]["id"], "sidecar~10.0.0.1~client-1.pay~pay.svc.cluster.local");
        let metadata = &made["node"]["metadata"];
        assert_eq!(
            *metadata,
            json!({"CLUSTER_ID": "east", "GENERATOR": "grpc", "INSTANCE_IPS": "10.0.0.1", "LABELS": {"app": "client"}, "NAMESPACE": "pay"})
        );
        assert_eq!(made["node"]["locality"], json!({"region": "r", "zone": "z", "sub_zone": ""}));
        assert_eq!(made["xds_servers"][0]["server_uri"], SERVER);
        assert!(made.get("certificate_providers").is_none());
    }

    #[test]
    fn certificate_files_are_configured() {
        let made = made(&["--cert-dir", "/certs", "--server", "unix:///run/xds"], &[]).unwrap();
        assert_eq!(made["xds_servers"][0]["server_uri"], "unix:///run/xds");
        let provider = &made["certificate_providers"]["default"];
        assert_eq!(provider["plugin_name"], "file_watcher");
        assert_eq!(provider["config"]["ca_certificate_file"], "/certs/root-cert.pem");
        assert_eq!(made["xds_servers"][0]["channel_creds"][0]["type"], "insecure");
    }

    #[test]
    fn the_control_plane_is_called_over_tls() {
        let made = made(&["--cert-dir", "/certs", "--tls", "--server", "istiod:15012"], &[]).unwrap();
        let credentials = &made["xds_servers"][0]["channel_creds"][0];
        assert_eq!(
            (&credentials["type"], &credentials["config"]["private_key_file"]),
            (&json!("tls"), &json!("/certs/key.pem"))
        );
    }

    #[test]
    fn invalid_values_are_rejected() {
        for arguments in [&["--ip", "here"][..], &["-l", "app"], &["--name", "a~b"], &["--metadata", "=x"], &["--tls"]]
        {
            assert!(made(arguments, &[]).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn the_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bootstrap.json");
        write(&file, "old and long").unwrap();
        write(&file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
