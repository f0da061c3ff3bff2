//! Assembles the running control plane from sources, the world thread and the servers, and manages its lifecycle
//! ([`run`]).
//!
//! ```text
//! mesh file, Kubernetes or store API, directories, configSources
//!     │ ChangeSet
//!     ▼
//! intake ─commit─► world thread ─► server (xDS, HTTP, monitoring)
//!                      │ planned statuses
//!                      ▼
//!                  leadership ◄─planned writes─ controllers ◄─ Kubernetes objects
//!                      └─► statuses and objects
//! ```
//!
//! - Nothing is committed before every local source has sent its complete state; remote sources have a timeout.
//! - Only the leader writes statuses and objects, and no write is in flight when another replica may lead.
//! - A shutdown is graceful until a second signal.

mod ack_counts;
mod api_metrics;
mod api_server;
mod api_tls;
mod authority;
mod backend;
mod changed;
mod config_sources;
mod descriptors;
mod file_objects;
mod intake;
mod jwks;
mod kubernetes;
pub mod leadership;
mod mesh_file;
mod names;
pub mod objects;
mod registration;
mod replica;
mod secure;
mod store_backend;
mod store_status;
mod webhooks;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use config::MeshConfig;
use registry::inputs::{Features, MeshSettings, Sharing};
pub use server::LogLevels;
use server::registration::Registrar;
use server::signing::Signing;
use server::{Options, Pace, Security, Server, WorldHandle};
use settings::{Address, Settings, StoreBackend};
use sources::kubernetes::Report;
use sources::xds;
use store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use world::World;

use api_server::ApiServer;
use config_sources::{ConfigSource, Running};
use intake::{Progress, Source};
use kubernetes::answer::Endpoint;
use kubernetes::{Cluster, controllers};
use mesh_file::MeshFile;
use sources::ChangeSender;

/// The time after `--shutdown-duration` in which what is left is closed.
const CLOSING: Duration = Duration::from_millis(250);
/// The time for which the end waits for threads that are blocked.
const BLOCKED_THREADS: Duration = Duration::from_millis(500);

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// A setting cannot be used, an address is taken, or a source fails before everything was read.
pub fn run(settings: &Settings, levels: LogLevels) -> Result<()> {
    descriptors::raise_limit();
    descriptors::forbid_core_files();
    let threads = match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let result = runtime.block_on(serve(settings, levels, threads));
    // A thread that hangs in a system call, such as a read of a network mount, does not prevent the end.
    runtime.shutdown_timeout(BLOCKED_THREADS);
    result
}

async fn serve(settings: &Settings, levels: LogLevels, threads: usize) -> Result<()> {
    let from = Instant::now();
    let in_kubernetes = backend::chosen(settings) == StoreBackend::Kubernetes;
    let mesh_file = open_mesh_file(settings)?;
    let mesh = mesh_file.as_ref().map(|file| file.config().clone()).unwrap_or_default();
    let config_sources = config_sources::read(&mesh)?;
    check_sources(settings, &config_sources)?;
    let store = store_backend::open(settings).await?;
    let mut cluster = match in_kubernetes {
        true => Some(Cluster::open(settings).await?),
        false => None,
    };
    // The sources add the MeshConfig, if there is one.
    let defaults = mesh_settings(settings, MeshConfig::default());
    let pilot = start_world(settings, defaults, threads)?;
    let (signing, signed) = authority::channel();
    let signed = settings.ca_server.0.then_some(signed);
    let joining = authority::join_tokens(settings, cluster.as_ref(), store.as_ref(), pilot.mesh());
    let secure = secure::prepare(settings, &pilot, cluster.as_ref(), signed, joining)?;
    let (registrar, registering) = registration::registrar(settings);
    let options = options(settings, secure.security.clone(), registrar);
    let started = Server::start_with(options, pilot.clone(), Some(pilot.configuration())).await;
    let mut server = started.map_err(addressed)?;
    let (inject, injection) = watch::channel(Arc::default());
    let serves_webhooks = webhooks::start(settings, &pilot, &secure, &mut server, injection.clone()).await?;
    if let Some(cluster) = &mut cluster {
        let signing = serves_webhooks.then(|| secure.security.signing.clone());
        cluster.follow_injection(settings, inject, signing);
    }
    let _certificates = secure.run(server.serving_status());
    if let Ok(port @ 1..) = u16::try_from(settings.ctrlz_port) {
        server.serve_log_levels(port, levels).await.context("--ctrlz-port")?;
    }
    announce(settings, &server);
    let (stopping, stopped) = watch::channel(false);
    let mut stop = Signals::new()?;

    let given = Given {
        // The Kubernetes source follows the file there.
        mesh_file: mesh_file.filter(|_| !in_kubernetes),
        store,
        cluster,
        config_sources,
        node: node(&mesh, server.addresses().grpc),
        registering,
        injection,
    };
    let parts = tokio::select! {
        started = begin(settings, given, &server, pilot, signing, stopped) => started?,
        signal = stop.next() => {
            tracing::info!(signal, "stopped before it became ready");
            return Ok(());
        }
    };
    server.set_ready();
    tracing::info!(took = ?from.elapsed(), "ready");
    if parts.api_server.is_some() {
        store_backend::greet(settings, server.addresses().grpc);
    }
    let signal = stop.next().await;
    tracing::info!(signal, "stopping");
    server.set_stopping();
    stopping.send_replace(true);
    end(settings, parts, server, stop).await;
    tracing::info!("stopped");
    Ok(())
}

/// The mesh configuration file, if there is one. In Kubernetes the file is one of several sources and may be missing.
fn open_mesh_file(settings: &Settings) -> Result<Option<MeshFile>> {
    let path = match backend::chosen(settings) {
        StoreBackend::Kubernetes => Some(kubernetes::mesh_file(settings)).filter(|path| path.exists()),
        _ => settings.mesh_config.clone(),
    };
    path.as_deref().map(MeshFile::open).transpose()
}

fn check_sources(settings: &Settings, config_sources: &[ConfigSource]) -> Result<()> {
    anyhow::ensure!(
        settings.config_dir.is_some() || backend::chosen(settings) != StoreBackend::None || !config_sources.is_empty(),
        "no configuration source: set --config-dir, --store, or configSources in --mesh-config"
    );
    anyhow::ensure!(
        settings.config_dir.is_some() || backend::chosen(settings) != StoreBackend::Files,
        "--store files serves the objects of a directory: set --config-dir"
    );
    Ok(())
}

/// Logs the addresses, and a warning if the plaintext one can be reached from other machines.
fn announce(settings: &Settings, server: &Server) {
    let at = server.addresses();
    let tls = at.secure.map(|address| address.to_string()).unwrap_or_default();
    tracing::info!(grpc = %at.grpc, tls, http = %at.http, monitoring = %at.monitoring, "listening");
    secure::warn_of_plaintext(settings, at.grpc);
}

/// Starts the sources, and after their first commit the authority, the fetching of names and keys, the controllers and the
/// status writer.
async fn begin(
    settings: &Settings,
    mut given: Given,
    server: &Server,
    pilot: WorldHandle,
    signing: watch::Sender<Arc<Signing>>,
    stopped: watch::Receiver<bool>,
) -> Result<Parts> {
    let (stored, registering) = (given.store.clone(), given.registering.take());
    let injection = given.injection.clone();
    let intake = intake::Options { pilot: pilot.clone(), patience: settings.source_timeout };
    let mut parts = begin_sources(settings, given, intake, server).await?;
    if let (Some(events), Some(endpoint)) = (registering, parts.endpoint()) {
        let port = server.addresses().grpc.port();
        let driver = registration::Driver::new(settings, endpoint, pilot.configuration(), port);
        server.serving_status().provide(driver.shown().metrics());
        parts.registering.spawn(driver.run(events, stopped.clone()));
    }
    let home = match &parts.cluster {
        Some(cluster) => authority::Home::Kubernetes(cluster.clients()),
        None => authority::Home::without_kubernetes(settings, stored, parts.files.clone()).await?,
    };
    let authority = parts.authority.insert(authority::start(settings, home, &pilot, signing).await?);
    parts.names = names::begin(settings, &pilot).await?;
    parts.keys = jwks::begin(settings, &pilot, &server.serving_status()).await?;
    if let Some(api_server) = &mut parts.api_server {
        api_server.start_status_writer(settings, pilot, stopped).await?;
    } else if let Some(cluster) = &mut parts.cluster {
        let configuration = pilot.configuration();
        let inputs = controllers::Inputs {
            mesh: pilot.mesh(),
            roots: authority.published(),
            configuration,
            injection,
            world: pilot.clone(),
        };
        cluster.control(settings, inputs, &stopped);
        cluster.review_secret_readers(settings, pilot.clone());
        cluster.start_status_writer(settings, pilot, stopped).await?;
    }
    Ok(parts)
}

/// Stops everything gracefully within `--shutdown-duration`, or immediately at a second signal.
async fn end(settings: &Settings, parts: Parts, server: Server, mut stop: Signals) {
    drop((parts.mesh_file, parts.names, parts.keys, parts.authority));
    let grace = settings.shutdown_duration;
    let mut registering = parts.registering;
    // All clients at the same time: each part may use all of the time.
    let end = async {
        let api_server = async {
            // The last writes of registrations need the store.
            while registering.join_next().await.is_some() {}
            if let Some(api_server) = parts.api_server {
                api_server.end(grace).await;
            }
        };
        let cluster = async {
            if let Some(cluster) = parts.cluster {
                cluster.end().await;
            }
        };
        tokio::join!(api_server, cluster, server.shut_down(grace));
    };
    tokio::select! {
        ended = tokio::time::timeout(grace + CLOSING, end) => if ended.is_err() {
            tracing::warn!("the shutdown took longer than {grace:?} (--shutdown-duration), stopping immediately");
        },
        signal = stop.next() => tracing::warn!(signal, "received a second signal, stopping immediately"),
    }
    drop(parts.running);
}

/// The configuration sources.
struct Given {
    mesh_file: Option<MeshFile>,
    store: Option<Arc<dyn Store>>,
    cluster: Option<Cluster>,
    config_sources: Vec<ConfigSource>,
    /// The node that this process sends to other control planes.
    node: xds::Node,
    /// The events of workloads that register.
    registering: registration::Events,
    /// The injection configuration.
    injection: watch::Receiver<Arc<webhooks::Injection>>,
}

/// The running tasks.
struct Parts {
    /// Follows the mesh configuration file.
    mesh_file: JoinSet<()>,
    /// Resolves host names.
    names: JoinSet<()>,
    /// Fetches keys.
    keys: JoinSet<()>,
    /// Registers workloads.
    registering: JoinSet<()>,
    /// The certificate authority.
    authority: Option<authority::Running>,
    /// The objects of files as the API serves them.
    files: Option<Arc<dyn Store>>,
    api_server: Option<ApiServer>,
    cluster: Option<Cluster>,
    running: Running,
}

impl Parts {
    /// The API of the objects.
    fn endpoint(&self) -> Option<Endpoint> {
        let of_cluster = self.cluster.as_ref().map(|cluster| Endpoint::Kubernetes(cluster.clients().home));
        of_cluster.or_else(|| self.api_server.as_ref().map(|server| Endpoint::Store(server.api())))
    }
}

/// Starts all sources in order of precedence: the mesh configuration file, the store, the directory, and `configSources`.
/// Returns once their content is committed.
async fn begin_sources(settings: &Settings, given: Given, intake: intake::Options, server: &Server) -> Result<Parts> {
    let known = |name: String| Source { name: name.into(), remote: false };
    let mesh_file = settings.mesh_config.as_deref().filter(|_| given.mesh_file.is_some());
    let mut names: Vec<Source> = Vec::new();
    names.extend(mesh_file.map(|file| known(format!("--mesh-config {}", file.display()))));
    names.extend((given.store.is_some() || given.cluster.is_some()).then(|| known(backend::name(settings))));
    names.extend(given.cluster.is_some().then(|| known("other clusters".to_owned())));
    let directory = settings.config_dir.as_deref();
    names.extend(directory.map(|directory| known(format!("--config-dir {}", directory.display()))));
    names.extend(given.config_sources.iter().map(ConfigSource::source));
    let (senders, mut progress) = intake::start(names, intake);

    let mut senders = senders.into_iter();
    let mut next = || senders.next().context("every source has a sender");
    let mut parts = Parts {
        mesh_file: JoinSet::new(),
        names: JoinSet::new(),
        keys: JoinSet::new(),
        registering: JoinSet::new(),
        authority: None,
        files: None,
        api_server: None,
        cluster: None,
        running: Running::default(),
    };
    if let Some(file) = given.mesh_file {
        parts.mesh_file.spawn(file.follow(next()?));
    }
    if let Some(cluster) = given.cluster {
        let cluster = parts.cluster.insert(cluster);
        cluster.follow(settings, next()?, server.serving_status());
        cluster.follow_others(settings, next()?, server.serving_status());
    }
    let store: Option<(Arc<dyn Store>, ChangeSender)> = match given.store {
        Some(store) => Some((store, next()?)),
        None => None,
    };
    let files = (backend::chosen(settings) == StoreBackend::Files).then(file_objects::fresh_store);
    parts.files.clone_from(&files);
    match (directory, &files) {
        (Some(directory), Some(files)) => parts.running.stored_directory(directory, files.clone(), next()?).await?,
        (Some(directory), None) => parts.running.directory(directory, next()?).await?,
        (None, _) => {}
    }
    for place in given.config_sources {
        parts.running.place(place, given.node.clone(), next()?).await?;
    }
    // The API starts last, after everything that may fail.
    if let Some((store, changes)) = store {
        let api_server = parts.api_server.insert(ApiServer::open(settings, store, server.serving_status()).await?);
        server.serving_status().provide(api_server.metrics());
        tokio::try_join!(api_server.follow(changes), begun(&mut progress, server, None))?;
    } else {
        let details = parts.cluster.as_ref().map(|cluster| (cluster.report(), cluster.awaited()));
        begun(&mut progress, server, details).await?;
        if let Some(files) = files {
            let api_server = parts.api_server.insert(ApiServer::open_files(settings, files).await?);
            server.serving_status().provide(api_server.metrics());
        }
    }
    Ok(parts)
}

/// Waits for the first commit. Until then `/ready` reports the sources that are not synced.
async fn begun(
    progress: &mut watch::Receiver<Progress>,
    server: &Server,
    mut details: Option<(watch::Receiver<Report>, watch::Receiver<String>)>,
) -> Result<()> {
    loop {
        let now = progress.borrow_and_update().clone();
        if now.begun {
            return Ok(());
        }
        let mut awaited = now.awaited.join(", ");
        if let Some((report, others)) = &mut details {
            let reasons = [kubernetes::waiting(&report.borrow_and_update()), others.borrow_and_update().clone()];
            let reasons: Vec<String> = reasons.into_iter().filter(|reason| !reason.is_empty()).collect();
            if !reasons.is_empty() {
                awaited = format!("{awaited} ({})", reasons.join("; "));
            }
        }
        server.set_awaited(&awaited);
        let reported = async {
            let changed = match &mut details {
                Some((report, others)) => tokio::select! {
                    changed = report.changed() => changed.is_ok(),
                    changed = others.changed() => changed.is_ok(),
                },
                None => false,
            };
            if !changed {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            changed = progress.changed() => changed.context("the control plane ended")?,
            () = reported => {}
        }
    }
}

/// The node that this process sends to other control planes.
fn node(mesh: &MeshConfig, grpc: SocketAddr) -> xds::Node {
    let ip = match grpc.ip() {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    xds::Node {
        namespace: mesh.root_namespace.clone(),
        name: replica::hostname().into(),
        ip: ip.to_string().into(),
        revision: "".into(),
    }
}

fn mesh_settings(settings: &Settings, config: MeshConfig) -> MeshSettings {
    MeshSettings {
        config,
        domain: settings.domain.as_str().into(),
        cluster_id: settings.cluster_id.as_str().into(),
        sharing: sharing(settings),
        features: Features {
            ignores_entry_health: !settings.workload_health.0,
            http3: settings.http3.0,
            http10: settings.http10.0,
            jwks: jwks::mode(settings),
        },
        assigned_addresses: settings.ip_autoallocate.0,
    }
}

/// The endpoints that clients in other clusters receive. As in istiod, each setting requires the previous ones.
fn sharing(settings: &Settings) -> Sharing {
    match (settings.mcs_service_discovery.0, settings.mcs_host.0 && settings.mcs_cluster_local.0) {
        (false, _) => Sharing::All,
        (true, false) => Sharing::Exported,
        (true, true) => Sharing::Imported,
    }
}

fn start_world(settings: &Settings, mesh: MeshSettings, threads: usize) -> Result<WorldHandle> {
    let world = World::new(mesh, threads);
    let Settings { commit_interval: interval, commit_delay: delay, push_share, .. } = *settings;
    let pace = Pace { interval, delay, share: push_share.0 };
    Ok(WorldHandle::start(world, xds_limits(settings), pace)?)
}

fn xds_limits(settings: &Settings) -> ::xds::Limits {
    ::xds::Limits::sized(settings.max_request_bytes.0, settings.max_request_names)
}

fn options(settings: &Settings, security: Security, registrar: Option<Registrar>) -> Options {
    Options {
        grpc: bindable(&secure::plaintext_address(settings)),
        socket: backend::socket(settings),
        http: bindable(&settings.http_addr),
        monitoring: bindable(&backend::monitoring_address(settings)),
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        max_connection_age: Some(settings.max_connection_age).filter(|age| !age.is_zero()),
        max_request_bytes: settings.max_request_bytes.0,
        vhds: settings.vhds.0,
        secret_access: backend::secret_access(settings),
        registrar,
        limits: xds_limits(settings),
        security,
        connections: descriptors::Budget::of_process().server(),
        version: format!("rutter {}", env!("CARGO_PKG_VERSION")),
        instance: replica::hostname(),
    }
}

/// Adds the flags that change an address to the error that it is in use.
fn addressed(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{error}; another control plane may be running (change --grpc-addr, --secure-grpc-addr, --http-addr or --monitoring-addr)"
        ),
        _ => error.into(),
    }
}

/// The first candidate address that this system supports. Without a host that is `[::]`, which includes IPv4, or `0.0.0.0`
/// if the system has no IPv6.
fn bindable(address: &Address) -> SocketAddr {
    let candidates = address.candidates();
    let has_ipv6 = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    match candidates[..] {
        [first, second, ..] => {
            if has_ipv6() {
                first
            } else {
                second
            }
        }
        [only] => only,
        [] => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// The signals that stop the process gracefully.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
