//! `rutter gateway run`: runs the Envoys of Gateways on this machine, without Kubernetes.

mod follow;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use local_gateway::{Fleet, Folder, Publication, Secure, Settings, TokenRequest, Xds, find_envoy};
use model::standing::PROXY_ADDRESSES;
use serde_json::{Value as Json, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use follow::{Change, Collection, Kind, follow};

use super::workload;
use crate::age;
use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::manifests::bytes_of;
use crate::server::{self, Request, Server, encode, kubeconfig_files};

/// The path of the API of the kinds.
const API: &str = "/apis/gateway.networking.k8s.io/v1";
/// The name under which the annotation is written.
const MANAGER: &str = "rutter-gateway-run";
/// The lifetime of tokens, in seconds. They are used at once.
const TOKEN_SECONDS: u32 = 600;
/// The Unix socket of xDS in the data directory of `rutter serve`.
const SOCKET: &str = "xds.sock";
/// The address of xDS without a socket.
const PORT: &str = "127.0.0.1:15010";

pub(super) fn command() -> Command {
    let path = |name, value, help| option(name, value, help).value_parser(value_parser!(PathBuf));
    let run = Command::new("run")
        .about("Run the Envoys of Gateways on this machine, without Kubernetes")
        .after_help(
            "Starts an Envoy for each Gateway of a GatewayClass that Rutter serves, restarts it if it crashes, and drains and ends it \
             when the Gateway is deleted or on SIGTERM and SIGINT; a second signal ends at once. The addresses are written into the \
             annotation gateway.rutter.io/addresses of the Gateway, and appear in its status, whose condition Programmed is True when \
             the Envoy runs the configuration.\n\n\
             Examples:\n  rutter gateway run -A\n  rutter gateway run edge -n shop --address 127.0.0.1",
        )
        .arg(Arg::new("names").value_name("NAME").num_args(0..).help("Gateways [default: all of the namespace]"))
        .arg(flag("all-namespaces", "Gateways of all namespaces").short('A'))
        .arg(option(
            "xds",
            "ADDRESS",
            "xDS server: the path of its Unix socket, or HOST:PORT without TLS [default: xds.sock in the data directory of rutter \
             serve, else 127.0.0.1:15010]. Certificates for HTTPS need the socket or --secure-xds",
        ))
        .arg(
            option(
                "secure-xds",
                "HOST:PORT",
                "TLS port of the control plane (15012), instead of --xds. Each Envoy gets a certificate of the Gateway's service \
                 account, with which it connects there and to workloads with mutual TLS",
            )
            .conflicts_with("xds"),
        )
        .arg(
            option("secure-xds-name", "NAME", "Name in the certificate of that port [default: the host]")
                .requires("secure-xds"),
        )
        .arg(
            path("root-cert-file", "FILE", "Root certificates of that port [default: read them from the server]")
                .requires("secure-xds"),
        )
        .arg(option("istioNamespace", "NAME", "Namespace of the control plane, whose ProxyConfigs are for all").short('i').default_value("istio-system"))
        .arg(path("envoy", "PATH", "Envoy program [default: $RUTTER_ENVOY, else envoy in $PATH]"))
        .arg(
            option("address", "IP", "Address at which Gateways without spec.addresses listen; may be repeated [default: all]")
                .value_parser(value_parser!(IpAddr))
                .action(ArgAction::Append),
        )
        .arg(path("dir", "PATH", "Directory for files of the Envoys [default: gateways in the data directory]"))
        .arg(
            option("drain", "DURATION", "Maximum time in which requests end before an Envoy is stopped")
                .value_parser(age::parse)
                .default_value("30s"),
        )
        .arg(
            option("concurrency", "N", "Worker threads of each Envoy; 0 for one per processor")
                .value_parser(value_parser!(u32))
                .default_value("0"),
        )
        .arg(option("domain", "NAME", "DNS domain of the cluster").default_value("cluster.local"))
        .arg(option("cluster-id", "NAME", "ID of the cluster").default_value("Kubernetes"))
        .arg(option("envoy-log-level", "LEVEL", "Level of Envoy's log").default_value("warning"))
        .arg(option("log-level", "LEVEL", "Level of the log").default_value("info"));
    Command::new("gateway")
        .about("Run gateways without Kubernetes")
        .after_help("Examples:\n  rutter gateway run -A")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server::arguments(run))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let Some(("run", matches)) = matches.subcommand() else {
        // clap requires a subcommand.
        return Err(usage("expected run"));
    };
    let server = Server::connect(matches, io).await?;
    let home = home(matches, io);
    let folder = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_else(|| home.join("gateways"));
    let mut settings = settings(matches, &home, io)?;
    if let Some(secure) = secure(matches, &server, io).await? {
        settings.xds = Xds::Tls(secure);
    }
    let root_namespace = settings.root_namespace.clone();
    let fleet = Fleet::new(settings, Folder::take(&folder)?);
    let namespace = (!matches.get_flag("all-namespaces")).then_some(server.namespace.as_str());
    serve(fleet, &server, follow::collections(namespace, &root_namespace), &root_namespace).await?;
    Ok(SUCCESS)
}

/// The data directory of `rutter serve`: that of the kubeconfig, if the xDS socket is there, too.
fn home(matches: &ArgMatches, io: &Io) -> PathBuf {
    let files = kubeconfig_files(Some(matches), io).unwrap_or_default();
    let beside = files.iter().filter_map(|file| file.parent()).find(|folder| folder.join(SOCKET).exists());
    let default = || io.path_var("RUTTER_DATA_DIR").unwrap_or_else(|| PathBuf::from("rutter-data"));
    beside.map_or_else(default, Path::to_owned)
}

fn settings(matches: &ArgMatches, home: &Path, io: &Io) -> Result<Settings> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let socket = home.join(SOCKET);
    let given = matches.get_one::<String>("xds").cloned();
    let xds = match given {
        Some(given) => xds(&given)?,
        None if socket.exists() => Xds::Unix(socket),
        None => xds(PORT)?,
    };
    let envoy = matches.get_one::<PathBuf>("envoy").cloned();
    let envoy = envoy.or_else(|| io.path_var("RUTTER_ENVOY")).unwrap_or_else(|| "envoy".into());
    Ok(Settings {
        envoy: find_envoy(&envoy, io.var("PATH").as_deref())?,
        xds,
        addresses: matches.get_many::<IpAddr>("address").into_iter().flatten().copied().collect(),
        names: matches.get_many::<String>("names").into_iter().flatten().cloned().collect(),
        domain: text("domain"),
        cluster: text("cluster-id"),
        root_namespace: text("istioNamespace"),
        drain: matches.get_one::<Duration>("drain").copied().unwrap_or_default(),
        concurrency: matches.get_one("concurrency").copied().unwrap_or_default(),
        log_level: text("envoy-log-level"),
    })
}

/// The TLS port of the control plane.
async fn secure(matches: &ArgMatches, server: &Server, io: &mut Io) -> Result<Option<Secure>> {
    let text = |name: &str| matches.get_one::<String>(name);
    let Some(address) = text("secure-xds").cloned() else { return Ok(None) };
    if !matches!(xds(&address), Ok(Xds::Tcp(..))) {
        return Err(usage(format!("--secure-xds: {address:?} is not HOST:PORT")));
    }
    let root_namespace = text("istioNamespace").map_or("istio-system", String::as_str);
    let roots = match matches.get_one::<PathBuf>("root-cert-file") {
        Some(file) => String::from_utf8(bytes_of(file, io)?).context("--root-cert-file")?,
        None => workload::root(server, root_namespace, &server.namespace).await?,
    };
    Ok(Some(Secure { address, server_name: text("secure-xds-name").cloned(), roots }))
}

fn xds(text: &str) -> Result<Xds> {
    if text.contains('/') {
        return Ok(Xds::Unix(text.into()));
    }
    let parts =
        text.rsplit_once(':').and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => Ok(Xds::Tcp(host.to_owned(), port)),
        _ => {
            Err(usage(format!("--xds: {text:?} is neither HOST:PORT nor the path of a socket, which contains a slash")))
        }
    }
}

/// Follows the objects until a signal arrives; then drains the Envoys.
async fn serve(mut fleet: Fleet, server: &Server, collections: Vec<Collection>, root_namespace: &str) -> Result<()> {
    let failed = "cannot wait for signals";
    let mut signals =
        (signal(SignalKind::terminate()).context(failed)?, signal(SignalKind::interrupt()).context(failed)?);
    let (sender, mut changes) = mpsc::channel(64);
    let mut followers = JoinSet::new();
    let (gateways, others): (Vec<_>, Vec<_>) = collections.into_iter().partition(|one| one.kind == Kind::Gateway);
    // Gateways come last, so that no Envoy starts with settings of which a part is missing.
    let mut awaited: Vec<Collection> = others;
    awaited.iter().for_each(|one| drop(followers.spawn(follow(server.clone(), one.clone(), sender.clone()))));
    let mut writes = JoinSet::new();
    loop {
        tokio::select! {
            () = received(&mut signals) => break,
            () = fleet.event() => {}
            Some(change) = changes.recv() => {
                if let Change::All(collection, _) = &change
                    && !awaited.is_empty()
                {
                    awaited.retain(|one| one != collection);
                    if awaited.is_empty() {
                        gateways.iter().for_each(|one| drop(followers.spawn(follow(server.clone(), one.clone(), sender.clone()))));
                    }
                }
                apply(&mut fleet, change);
            }
            Some(ended) = followers.join_next() => {
                let Err(error) = ended.map_err(|error| anyhow!(error)).and_then(|never| never);
                return Err(error);
            }
            Some(_) = writes.join_next() => {}
        }
        for request in fleet.requests() {
            let (server, root_namespace) = (server.clone(), root_namespace.to_owned());
            match request {
                local_gateway::Request::Publish(publication) => drop(writes.spawn(publish(server, publication))),
                local_gateway::Request::Token(request) => {
                    drop(writes.spawn(write_token(server, request, root_namespace)))
                }
            }
        }
    }
    tracing::info!("a signal was received: all Envoys drain and end");
    tokio::select! {
        () = fleet.stop() => {}
        () = received(&mut signals) => tracing::info!("a second signal was received: all Envoys end at once"),
    }
    Ok(())
}

async fn received((terminated, interrupted): &mut (Signal, Signal)) {
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
}

fn apply(fleet: &mut Fleet, change: Change) {
    match change {
        Change::All(Collection { kind, namespace, .. }, all) => match kind {
            Kind::Class => fleet.classes(&all),
            Kind::Set => fleet.listener_sets(&all),
            Kind::ProxyConfig => fleet.proxy_configs(namespace.as_deref(), &all),
            Kind::ConfigMap => fleet.config_maps(&all),
            Kind::Gateway => {
                fleet.gateways(&all);
                for name in fleet.missing() {
                    tracing::warn!(name, "there is no such Gateway; it runs when it is created");
                }
            }
        },
        Change::One(Kind::Class, object, there) => fleet.class(&object, there),
        Change::One(Kind::Set, object, there) => fleet.listener_set(&object, there),
        Change::One(Kind::ProxyConfig, object, there) => fleet.proxy_config(&object, there),
        Change::One(Kind::ConfigMap, object, there) => fleet.config_map(&object, there),
        Change::One(Kind::Gateway, object, there) => fleet.gateway(&object, there),
    }
}

/// Writes the addresses of a Gateway into its annotation.
async fn publish(server: Server, Publication { id, addresses }: Publication) {
    let path = format!("{API}/namespaces/{}/gateways/{}", encode(&id.namespace), encode(&id.name));
    let patch = json!({"metadata": {"annotations": {PROXY_ADDRESSES: addresses}}});
    let request = Request::patch(path, "application/merge-patch+json", patch.to_string());
    match server.send::<Json>(request.with("fieldManager", MANAGER)).await {
        Ok(_) => tracing::info!(gateway = %id, addresses, "the addresses are published"),
        Err(error) if StatusError::is_not_found(&error) => {}
        Err(error) => {
            tracing::warn!(gateway = %id, addresses, "cannot write the addresses, so that they are not in the status: {error:#}");
        }
    }
}

/// Writes a token with which a Gateway gets its first certificate.
async fn write_token(server: Server, request: TokenRequest, root_namespace: String) {
    let TokenRequest { namespace, account, file } = request;
    let token = workload::token(&server, (&namespace, &account), TOKEN_SECONDS, &root_namespace).await;
    match token.and_then(|token| workload::write(&file, token.as_bytes(), 0o600)) {
        Ok(()) => tracing::info!(namespace, account, "wrote a token for the first certificate"),
        Err(error) => tracing::warn!(
            namespace,
            account,
            "cannot create a token for the first certificate: {error:#}. Write one to {} with `rutter token create`",
            file.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_xds_are_sockets_or_ports() {
        assert_eq!(xds("./xds.sock").unwrap(), Xds::Unix("./xds.sock".into()));
        assert_eq!(xds("localhost:15010").unwrap(), Xds::Tcp("localhost".to_owned(), 15010));
        assert_eq!(xds("[::1]:15010").unwrap(), Xds::Tcp("::1".to_owned(), 15010));
        for wrong in ["localhost", ":15010", "host:port"] {
            assert!(xds(wrong).is_err(), "{wrong}");
        }
    }
}
