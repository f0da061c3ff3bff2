//! Connection flags, kubeconfig and credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kube::config::{Config, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use serde_json::json;

use super::Server;
use crate::age;
use crate::failure::{Unreachable, usage};
use crate::io::Io;

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The server's URL and its source, for messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    /// `context x of /path`, or a flag.
    pub(crate) source: String,
}

/// Adds the connection flags.
pub(crate) fn arguments(command: Command) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .help(help)
            .help_heading("Connection")
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
        .arg(text(
            "token",
            "TOKEN",
            "Bearer token; overrides the credentials of the kubeconfig",
        ))
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
            text(
                "request-timeout",
                "DURATION",
                "Maximum time of one request, for example 30s; 0 disables the limit",
            )
            .value_parser(age::parse)
            .default_value("0"),
        )
        .arg(text("namespace", "NAME", "Namespace [default: that of the context]").short('n'))
}

/// Connects to the server that flags, environment and kubeconfig select.
pub(super) async fn connect(matches: &ArgMatches, io: &Io) -> Result<Server> {
    let (mut config, endpoint) = config(matches, io).await?;
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
    let kube = kube::Client::try_from(config).with_context(|| format!("invalid credentials in {}", endpoint.source))?;
    Ok(Server {
        kube,
        endpoint,
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
        let paths: Vec<PathBuf> = std::env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        return Some(paths);
    }
    let data = io
        .path_var("RUTTER_DATA_DIR")
        .unwrap_or_else(|| PathBuf::from("rutter-data"));
    let home = io.path_var("HOME").map(|home| home.join(".kube").join("config"));
    [Some(data.join("kubeconfig")), home]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .map(|path| vec![path])
}

async fn config(matches: &ArgMatches, io: &Io) -> Result<(Config, Endpoint)> {
    let text = |name| matches.get_one::<String>(name);
    let chosen = text("context").is_some() || matches.contains_id("kubeconfig") || io.var("KUBECONFIG").is_some();
    let files = match text("server") {
        // Never sends credentials of a default kubeconfig to a server given by a flag.
        Some(_) if !chosen => None,
        _ => kubeconfig_files(Some(matches), io),
    };
    let (mut kubeconfig, source) = match (&files, text("server")) {
        (Some(files), _) => {
            let config = read_all(files)?;
            let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let name = context_name(matches, &config);
            let name =
                name.ok_or_else(|| anyhow!("{} has no current context: choose one with --context", shown.join(":")))?;
            ensure!(
                config.contexts.iter().any(|known| known.name == name),
                "no context `{name}` in {}\nhint: available contexts: {}",
                shown.join(":"),
                context_names(&config)
            );
            (config, format!("context `{name}` of {}", shown.join(":")))
        }
        (None, Some(_)) => (empty_kubeconfig(), "the flag --server".to_owned()),
        (None, None) => return in_cluster(matches),
    };
    let name = context_name(matches, &kubeconfig).unwrap_or_default();
    apply_flags(&mut kubeconfig, &name, matches)?;
    let options = KubeConfigOptions {
        context: Some(name),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| source.clone())?;
    let endpoint = Endpoint {
        url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        source,
    };
    Ok((config, endpoint))
}

fn in_cluster(matches: &ArgMatches) -> Result<(Config, Endpoint)> {
    let mut config = Config::incluster().map_err(|_| Unreachable {
        named: false,
        message: "no server is configured: no kubeconfig found\n\
               hint: start a server with `rutter serve`, which writes ./rutter-data/kubeconfig, or set --kubeconfig or \
                  --server"
            .to_owned(),
    })?;
    if let Some(token) = matches.get_one::<String>("token") {
        config.auth_info = serde_json::from_value(json!({ "token": token }))?;
    }
    let endpoint = Endpoint {
        url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        source: "the pod's service account".to_owned(),
    };
    Ok((config, endpoint))
}

fn context_name(matches: &ArgMatches, config: &Kubeconfig) -> Option<String> {
    let given = matches.try_get_one::<String>("context").ok().flatten().cloned();
    given
        .or_else(|| config.current_context.clone())
        .filter(|name| !name.is_empty())
}

fn context_names(config: &Kubeconfig) -> String {
    let names: Vec<&str> = config.contexts.iter().map(|known| known.name.as_str()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// A kubeconfig with one empty cluster, user and context.
fn empty_kubeconfig() -> Kubeconfig {
    let name = || "flags".to_owned();
    let mut config = Kubeconfig::default();
    config.clusters.push(NamedCluster {
        name: name(),
        ..NamedCluster::default()
    });
    config.auth_infos.push(NamedAuthInfo {
        name: name(),
        ..NamedAuthInfo::default()
    });
    config.contexts.push(NamedContext {
        name: name(),
        context: Some(kube::config::Context {
            cluster: name(),
            user: Some(name()),
            ..kube::config::Context::default()
        }),
        ..NamedContext::default()
    });
    config.current_context = Some(name());
    config
}

/// Overrides the cluster and user of a context with flags.
fn apply_flags(config: &mut Kubeconfig, context: &str, matches: &ArgMatches) -> Result<()> {
    let Some(context) = config
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.clone())
    else {
        return Ok(());
    };
    if let Some(named) = config.clusters.iter_mut().find(|named| named.name == context.cluster) {
        let cluster = named.cluster.get_or_insert_default();
        if let Some(url) = matches.get_one::<String>("server") {
            let url = if url.contains("://") {
                url.clone()
            } else {
                format!("https://{url}")
            };
            cluster.server = Some(url);
        }
        if let Some(path) = matches.get_one::<PathBuf>("certificate-authority") {
            cluster.certificate_authority = Some(path.display().to_string());
            cluster.certificate_authority_data = None;
        }
        if matches.get_flag("insecure-skip-tls-verify") {
            cluster.insecure_skip_tls_verify = Some(true);
        }
    }
    if let Some(token) = matches.get_one::<String>("token") {
        let user = context.user.unwrap_or_default();
        if let Some(named) = config.auth_infos.iter_mut().find(|named| named.name == user) {
            named.auth_info = Some(serde_json::from_value(json!({ "token": token }))?);
        }
    }
    Ok(())
}

/// Reads and merges files; the first definition of a name is used.
fn read_all(files: &[PathBuf]) -> Result<Kubeconfig> {
    let mut all: Option<Kubeconfig> = None;
    // Like kubectl, skips missing files as long as one exists.
    let existing: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    let read = if existing.is_empty() {
        files.iter().collect()
    } else {
        existing
    };
    for file in read {
        let next = read_one(file)?;
        all = Some(match all {
            Some(all) => all.merge(next)?,
            None => next,
        });
    }
    all.ok_or_else(|| anyhow!("KUBECONFIG names no file"))
}

fn read_one(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).map_err(|error| match error {
        kube::config::KubeconfigError::ReadConfig(error, path) => anyhow!("kubeconfig {}: {error}", path.display()),
        error => anyhow!("kubeconfig {}: {error}", file.display()),
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_namespace(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
