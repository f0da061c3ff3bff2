//! Opens the configured store and serves its API.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use api::access::Token;
use api::server::ServerOptions;
use api::{Access, Api, Role, Server, ServiceRange};
use settings::{Settings, StoreBackend, Switch};
use store::Store;

use super::backend::chosen;
use super::descriptors::Budget;
use super::file_objects::fresh_store;
use super::{api_tls, bindable};

/// The maximum size of a file with tokens or certificates, in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// The interval of etcd compactions.
const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// Opens the store; `None` if the settings need none that can be written.
pub(super) async fn open(settings: &Settings) -> Result<Option<Arc<dyn Store>>> {
    Ok(match chosen(settings) {
        StoreBackend::None | StoreBackend::Kubernetes | StoreBackend::Files => None,
        StoreBackend::Memory => Some(fresh_store()),
        StoreBackend::Etcd => Some(Arc::new(
            store::etcd::Etcd::open(etcd(settings)?)
                .await
                .with_context(|| format!("--etcd-endpoints {}", settings.etcd_endpoints))?,
        )),
        StoreBackend::Auto | StoreBackend::Embedded => {
            let options = store::embedded::Options {
                keep_revisions: settings.store_history as u64,
                ..store::embedded::Options::default()
            };
            let directory = settings.data_dir.join("store");
            let opened = store::embedded::Embedded::open(&directory, options).await;
            let opened = opened.map_err(|error| match error {
                store::Error::Unavailable(reason) => anyhow!("cannot open the store: {reason}"),
                error => error.into(),
            });
            Some(Arc::new(opened.with_context(|| format!("--data-dir {}", settings.data_dir.display()))?))
        }
    })
}

fn etcd(settings: &Settings) -> Result<store::etcd::Options> {
    let endpoints = settings.etcd_endpoints.split(',').map(str::trim).filter(|text| !text.is_empty());
    let mut options = store::etcd::Options::new(endpoints);
    options.prefix = settings.etcd_prefix.clone();
    if !settings.etcd_history.is_zero() {
        options.compaction = Some(store::etcd::Compaction {
            every: COMPACT_EVERY.min(settings.etcd_history),
            keep: settings.etcd_history,
        });
    }
    if let Some(file) = &settings.etcd_login {
        let text = read(file)?;
        // The error must not contain the line, which is a secret.
        let login = text.trim_end_matches(['\r', '\n']).split_once(':');
        let (user, password) = login
            .filter(|(user, _)| !user.is_empty())
            .with_context(|| format!("--etcd-login {}: expected `USER:PASSWORD` in one line", file.display()))?;
        options.login = Some(store::etcd::Login { user: user.to_owned(), password: password.to_owned() });
    }
    let ca = settings.etcd_ca.as_deref().map(read).transpose()?;
    let identity = match (&settings.etcd_cert, &settings.etcd_key) {
        (Some(cert), Some(key)) => Some((read(cert)?.into_bytes(), read(key)?.into_bytes())),
        (None, None) => None,
        _ => bail!("--etcd-cert and --etcd-key must be set together"),
    };
    if ca.is_some() || identity.is_some() {
        options.tls = Some(store::etcd::Tls { ca: ca.map(String::into_bytes), identity, server_name: None });
    }
    Ok(options)
}

/// Starts the API and writes the kubeconfig.
pub(super) async fn serve(settings: &Settings, store: Arc<dyn Store>) -> Result<(Api, Server)> {
    let address = bindable(&settings.api_addr);
    let credentials = api_tls::credentials(settings)?;
    let mut tokens = vec![credentials.admin()];
    if let Some(file) = &settings.api_tokens {
        tokens.extend(read_tokens(file)?);
    }
    let ranges = settings.service_cluster_ip_range.0.iter();
    let options = api::Options {
        access: Access { tokens, ..Access::default() },
        read_only: read_only(settings),
        domain: settings.domain.as_str().into(),
        service_ranges: ranges.map(|(first, length)| ServiceRange { first: *first, length: *length }).collect(),
        ..api::Options::default()
    };
    let api = Api::new(store, options);
    let Switch(plaintext) = settings.api_plaintext;
    let mut listen = ServerOptions::default();
    listen.limits.rate = settings.api_requests_per_second as f64;
    listen.limits.burst = listen.limits.rate * 2.0;
    listen.limits.connections.connections = Budget::of_process().api;
    match plaintext {
        true => listen.http = Some(address),
        false => listen.https = Some((address, api_tls::material(settings, &credentials)?)),
    }
    let server = Server::start(listen, api.clone()).await.context("the API (--api-addr)")?;
    let url = match (server.https(), server.http()) {
        (Some(address), _) => format!("https://{}", reachable(address)),
        (_, Some(address)) => format!("http://{}", reachable(address)),
        _ => bail!("the API does not listen"),
    };
    let kubeconfig = kubeconfig(settings);
    credentials.write_kubeconfig(&kubeconfig, &url)?;
    tracing::info!(%url, store = place(settings), "API is listening; to use it with kubectl or rutter, run `export KUBECONFIG={}`", kubeconfig.display());
    Ok((api, server))
}

/// The reason for which the API refuses writes, if it does.
fn read_only(settings: &Settings) -> Option<Arc<str>> {
    let directory = settings.config_dir.as_deref().filter(|_| chosen(settings) == StoreBackend::Files)?;
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let why =
        format!("its objects are read from the files in {}; edit the files there to change them", directory.display());
    Some(why.into())
}

/// Prints the addresses if the process was started from a terminal.
pub(super) fn greet(settings: &Settings, grpc: std::net::SocketAddr) {
    let mut out = std::io::stdout();
    if !out.is_terminal() {
        return;
    }
    // The log has the same information, so errors are ignored.
    let _ = writeln!(
        out,
        "\n  objects   {}\n  kubectl   export KUBECONFIG={}\n  proxies   {}, plaintext gRPC\n",
        place(settings),
        kubeconfig(settings).display(),
        reachable(grpc)
    );
}

/// The absolute path of the kubeconfig.
fn kubeconfig(settings: &Settings) -> PathBuf {
    let file = settings.data_dir.join("kubeconfig");
    std::path::absolute(&file).unwrap_or(file)
}

/// The location of the objects, for people.
fn place(settings: &Settings) -> String {
    match chosen(settings) {
        StoreBackend::None => "not kept".to_owned(),
        StoreBackend::Kubernetes => "in Kubernetes".to_owned(),
        StoreBackend::Files => match &settings.config_dir {
            Some(directory) => format!("in the files in {}, read-only", directory.display()),
            None => "in files".to_owned(),
        },
        StoreBackend::Memory => "in memory, until this process ends".to_owned(),
        StoreBackend::Etcd => format!("in etcd, below {} at {}", settings.etcd_prefix, settings.etcd_endpoints),
        StoreBackend::Auto | StoreBackend::Embedded => {
            let directory = settings.data_dir.join("store");
            format!("embedded, in {}", std::path::absolute(&directory).unwrap_or(directory).display())
        }
    }
}

/// The address under which a client on this machine reaches the server.
fn reachable(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}

pub(super) fn read(path: &Path) -> Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    file.take(FILE_LIMIT).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}

/// Reads a file of tokens, one `TOKEN USER ROLE` per line.
fn read_tokens(path: &Path) -> Result<Vec<Token>> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            // The error must not contain the line, which is a secret.
            let wrong = || format!("--api-tokens {}:{}: expected `TOKEN USER ROLE`", path.display(), number + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            let [token, user, role] = words[..] else { bail!(wrong()) };
            let role = match role.split_once(':') {
                None if role == "admin" => Role::Admin,
                None if role == "view" => Role::ReadOnly,
                Some((namespace, "edit")) => Role::Edit(namespace.to_owned()),
                Some((namespace, "view")) => Role::View(namespace.to_owned()),
                _ => bail!(
                    "--api-tokens {}:{}: unknown role; use admin, view, NAMESPACE:edit or NAMESPACE:view",
                    path.display(),
                    number + 1
                ),
            };
            Ok(Token::new(token, user, [], [role]))
        })
        .collect()
}
