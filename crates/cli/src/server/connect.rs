//! Connection flags, kubeconfig and credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{ArgAction, ArgMatches, Command, value_parser};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::Server;
use crate::age;
use crate::failure::{Unreachable, usage};
use crate::flags::option;
use crate::io::Io;

/// The heading of connection flags in the help.
pub(crate) const CONNECTION: &str = "Connection";

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Adds the connection flags.
pub(crate) fn arguments(command: Command) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        option(name, value, help).help_heading(CONNECTION)
    };
    command
        .arg(
            text(
                "kubeconfig",
                "FILE",
                "Kubeconfig file [default: $KUBECONFIG, else ./rutter-data/kubeconfig, else ~/.kube/config]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(text("context", "NAME", "Context of the kubeconfig"))
        .arg(text("server", "URL", "URL of the server; overrides the kubeconfig").short('s'))
        .arg(text("token", "TOKEN", "Bearer token; overrides the credentials of the kubeconfig"))
        .arg(
            text(
                "certificate-authority",
                "FILE",
                "Certificates of the authorities that may sign the server's certificate",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            text("insecure-skip-tls-verify", "", "Do not verify the server's certificate")
                .action(ArgAction::SetTrue)
                .num_args(0),
        )
        .arg(
            text("request-timeout", "DURATION", "Maximum time of one request, for example 30s; 0 disables the limit")
                .value_parser(age::parse)
                .default_value("0"),
        )
        .arg(text("namespace", "NAME", "Namespace [default: that of the context]").short('n'))
}

/// Connects to the server that flags, environment and kubeconfig select.
pub(super) async fn connect(matches: &ArgMatches, io: &Io) -> Result<Server> {
    let (mut config, source) = config(matches, io).await?;
    apply_flags(&mut config, matches)?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    if config.cluster_url.host().is_some_and(is_loopback) {
        // An HTTP proxy cannot reach this machine's loopback address.
        config.proxy_url = None;
    }
    let given = matches.get_one::<String>("namespace").cloned();
    let namespace_given = given.is_some();
    let namespace = given.unwrap_or_else(|| config.default_namespace.clone());
    if !is_namespace(&namespace) {
        return Err(usage(format!("`{namespace}` is not a valid namespace name")));
    }
    let timeout = matches.get_one::<Duration>("request-timeout").copied();
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let kube = kube::Client::try_from(config).with_context(|| format!("invalid credentials in {source}"))?;
    Ok(Server {
        kube,
        url,
        source,
        namespace,
        namespace_given,
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
        warnings: io.warnings(),
    })
}

/// The kubeconfig files to use: flag, environment, embedded server, home directory. None if there is none.
pub(crate) fn kubeconfig_files(matches: Option<&ArgMatches>, io: &Io) -> Option<Vec<PathBuf>> {
    if let Some(path) = matches.and_then(|matches| matches.get_one::<PathBuf>("kubeconfig")) {
        return Some(vec![path.clone()]);
    }
    if let Some(paths) = io.var("KUBECONFIG") {
        let paths: Vec<PathBuf> = std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect();
        return Some(paths);
    }
    let data = io.path_var("RUTTER_DATA_DIR").unwrap_or_else(|| PathBuf::from("rutter-data"));
    let home = io.path_var("HOME").map(|home| home.join(".kube").join("config"));
    [Some(data.join("kubeconfig")), home].into_iter().flatten().find(|path| path.is_file()).map(|path| vec![path])
}

/// The configuration without flags, and its source for messages.
async fn config(matches: &ArgMatches, io: &Io) -> Result<(Config, String)> {
    let context = matches.get_one::<String>("context").cloned();
    let server = matches.contains_id("server");
    let chosen = context.is_some() || matches.contains_id("kubeconfig") || io.var("KUBECONFIG").is_some();
    // Never sends credentials of a default kubeconfig to a server given by a flag.
    let files = match server && !chosen {
        true => None,
        false => kubeconfig_files(Some(matches), io),
    };
    match files {
        Some(files) => of_files(&files, context).await,
        // The flag replaces the URL.
        None if server => Ok((Config::new(http::Uri::default()), "the flag --server".to_owned())),
        None => in_cluster(),
    }
}

async fn of_files(files: &[PathBuf], context: Option<String>) -> Result<(Config, String)> {
    let kubeconfig = read_all(files)?;
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let files = files.join(":");
    let name = context.or_else(|| kubeconfig.current_context.clone()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| anyhow!("{files} has no current context: choose one with --context"))?;
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect();
    ensure!(
        known.contains(&name.as_str()),
        "no context `{name}` in {files}\nhint: available contexts: {}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    );
    let source = format!("context `{name}` of {files}");
    let options = KubeConfigOptions { context: Some(name), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Ok((config.with_context(|| source.clone())?, source))
}

fn in_cluster() -> Result<(Config, String)> {
    let config = Config::incluster().map_err(|_| Unreachable {
        named: false,
        message: "no server is configured: no kubeconfig found\n\
               hint: start a server with `rutter serve`, which writes ./rutter-data/kubeconfig, or set --kubeconfig or \
                  --server"
            .to_owned(),
    })?;
    Ok((config, "the pod's service account".to_owned()))
}

/// Overrides the configuration with flags.
fn apply_flags(config: &mut Config, matches: &ArgMatches) -> Result<()> {
    if let Some(url) = matches.get_one::<String>("server") {
        let url = match url.contains("://") {
            true => url.clone(),
            false => format!("https://{url}"),
        };
        config.cluster_url = url.parse().map_err(|error| usage(format!("--server: {url:?}: {error}")))?;
    }
    if let Some(path) = matches.get_one::<PathBuf>("certificate-authority") {
        config.root_cert_file = Some(path.clone());
    }
    if matches.get_flag("insecure-skip-tls-verify") {
        config.accept_invalid_certs = true;
    }
    if let Some(token) = matches.get_one::<String>("token") {
        config.auth_info = serde_json::from_value(json!({ "token": token }))?;
    }
    Ok(())
}

/// Reads and merges files; the first definition of a name is used.
fn read_all(files: &[PathBuf]) -> Result<Kubeconfig> {
    // Like kubectl, skips missing files as long as one exists.
    let mut read: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    if read.is_empty() {
        read = files.iter().collect();
    }
    let all = read.into_iter().map(|file| read_one(file));
    let merged = all.reduce(|all, next| Ok(all?.merge(next?)?));
    merged.unwrap_or_else(|| Err(anyhow!("KUBECONFIG names no file")))
}

fn read_one(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).map_err(|error| match error {
        kube::config::KubeconfigError::ReadConfig(error, path) => anyhow!("kubeconfig {}: {error}", path.display()),
        error => anyhow!("kubeconfig {}: {error}", file.display()),
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_namespace(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
