//! Which server, and with what credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kube::config::{Config, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use serde_json::json;

use super::Server;
use crate::age;
use crate::failure::{NoServer, usage};
use crate::io::Io;

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the server is and who said so, for messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The URL.
    pub(crate) url: String,
    /// `context x of /path`, or the flag.
    pub(crate) from: String,
}

/// Adds the flags that name a server and a namespace.
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
                "The kubeconfig file [default: $KUBECONFIG, else ./rutter-data/kubeconfig, else ~/.kube/config]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(text("context", "NAME", "The context of the kubeconfig"))
        .arg(text("server", "URL", "The server, instead of the kubeconfig's").short('s'))
        .arg(text(
            "token",
            "TOKEN",
            "The bearer token, instead of the kubeconfig's credentials",
        ))
        .arg(
            text(
                "certificate-authority",
                "FILE",
                "The certificates to trust the server by",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            text("insecure-skip-tls-verify", "", "Trust whoever answers")
                .action(ArgAction::SetTrue)
                .num_args(0),
        )
        .arg(
            text(
                "request-timeout",
                "TIME",
                "How long one request may take, such as 30s; 0: for ever",
            )
            .value_parser(age::parse)
            .default_value("0"),
        )
        .arg(text("namespace", "NAME", "The namespace").short('n'))
}

/// The server that the flags, the environment and the kubeconfig files name.
pub(super) async fn connect(matches: &ArgMatches, io: &Io) -> Result<Server> {
    let (mut config, place) = config(matches, io).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    if config.cluster_url.host().is_some_and(is_loopback) {
        // A proxy of the environment leads away from this machine.
        config.proxy_url = None;
    }
    let given = matches.get_one::<String>("namespace").cloned();
    let namespace_given = given.is_some();
    let namespace = given.unwrap_or_else(|| config.default_namespace.clone());
    if !is_namespace(&namespace) {
        return Err(usage(format!("`{namespace}` is no name of a namespace")));
    }
    let timeout = matches.get_one::<Duration>("request-timeout").copied();
    let kube =
        kube::Client::try_from(config).with_context(|| format!("the credentials of {} are no good", place.from))?;
    Ok(Server {
        kube,
        place,
        namespace,
        namespace_given,
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
        warnings: io.warnings(),
    })
}

/// The kubeconfig files that are in force: flag, environment, the embedded server's, the user's. None: there is none.
pub(crate) fn kubeconfig_files(matches: &ArgMatches, io: &Io) -> Option<Vec<PathBuf>> {
    if let Some(path) = matches.try_get_one::<PathBuf>("kubeconfig").ok().flatten() {
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

async fn config(matches: &ArgMatches, io: &Io) -> Result<(Config, Place)> {
    let text = |name| matches.get_one::<String>(name);
    let chosen = text("context").is_some() || matches.contains_id("kubeconfig") || io.var("KUBECONFIG").is_some();
    let files = match text("server") {
        // Credentials that nobody asked for are not sent to a server that a flag names.
        Some(_) if !chosen => None,
        _ => kubeconfig_files(matches, io),
    };
    let (mut kubeconfig, from) = match (&files, text("server")) {
        (Some(files), _) => {
            let config = read_all(files)?;
            let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let name = context_name(matches, &config);
            let name = name.ok_or_else(|| {
                anyhow!(
                    "{} names no current context: choose one with --context",
                    shown.join(":")
                )
            })?;
            ensure!(
                config.contexts.iter().any(|known| known.name == name),
                "there is no context `{name}` in {}\nhint: its contexts: {}",
                shown.join(":"),
                names_of(&config)
            );
            (config, format!("context `{name}` of {}", shown.join(":")))
        }
        (None, Some(_)) => (of_flags(), "the flag --server".to_owned()),
        (None, None) => return in_cluster(matches),
    };
    let name = context_name(matches, &kubeconfig).unwrap_or_default();
    overrule(&mut kubeconfig, &name, matches)?;
    let options = KubeConfigOptions {
        context: Some(name),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| from.clone())?;
    let place = Place {
        url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        from,
    };
    Ok((config, place))
}

fn in_cluster(matches: &ArgMatches) -> Result<(Config, Place)> {
    let mut config = Config::incluster().map_err(|_| NoServer {
        named: false,
        what: "no server is named: there is no kubeconfig\n\
               hint: `rutter serve` in this directory starts a server and writes ./rutter-data/kubeconfig; or name one with \
               --kubeconfig or --server"
            .to_owned(),
    })?;
    if let Some(token) = matches.get_one::<String>("token") {
        config.auth_info = serde_json::from_value(json!({ "token": token }))?;
    }
    let place = Place {
        url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        from: "the pod's service account".to_owned(),
    };
    Ok((config, place))
}

fn context_name(matches: &ArgMatches, config: &Kubeconfig) -> Option<String> {
    let given = matches.try_get_one::<String>("context").ok().flatten().cloned();
    given
        .or_else(|| config.current_context.clone())
        .filter(|name| !name.is_empty())
}

fn names_of(config: &Kubeconfig) -> String {
    let names: Vec<&str> = config.contexts.iter().map(|known| known.name.as_str()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// A kubeconfig of one empty cluster, user and context.
fn of_flags() -> Kubeconfig {
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

/// Puts the flags over the context.
fn overrule(config: &mut Kubeconfig, context: &str, matches: &ArgMatches) -> Result<()> {
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

/// Reads and joins files; of what two files name, the first one counts.
fn read_all(files: &[PathBuf]) -> Result<Kubeconfig> {
    let mut all: Option<Kubeconfig> = None;
    // Like `kubectl`, files of a list that do not exist are passed over as long as there is one.
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
