//! The running control plane: connects sources, the world thread and the servers, and manages the life of the process.

mod elsewhere;
mod front;
mod home;
mod intake;
mod kubernetes;
pub mod leadership;
mod mesh_file;
mod names;
pub mod objects;
mod status;
mod tallies;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use config::{Diagnostic, MeshConfig, Severity};
use registry::inputs::{Features, MeshSettings, Sharing};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::{Configuration, Options, Server, WorldHandle};
use settings::{Address, Settings, StoreBackend};
use sources::kubernetes::Report;
use sources::xds;
use store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use world::World;

use elsewhere::{Elsewhere, Running};
use front::Front;
use intake::{Progress, Source, Voice};
use kubernetes::Cluster;
use mesh_file::MeshFile;

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// A setting cannot be used, an address is taken, or a source fails before everything was read.
pub fn run(settings: &Settings) -> Result<()> {
    raise_file_limit();
    let threads = match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    runtime.block_on(serve(settings, threads))
}

async fn serve(settings: &Settings, threads: usize) -> Result<()> {
    let begin = Instant::now();
    let in_kubernetes = home::chosen(settings) == StoreBackend::Kubernetes;
    // There it is one of the sources of the mesh configuration, and may be missing.
    let mesh_path = match in_kubernetes {
        true => Some(kubernetes::mesh_file(settings)).filter(|path| path.exists()),
        false => settings.mesh_config.clone(),
    };
    let mesh_file = mesh_path.as_deref().map(MeshFile::open).transpose()?;
    let mesh = mesh_file.as_ref().map(|file| file.config().clone()).unwrap_or_default();
    let elsewhere = elsewhere::read(&mesh)?;
    anyhow::ensure!(
        settings.config_dir.is_some() || home::chosen(settings) != StoreBackend::None || !elsewhere.is_empty(),
        "which configuration? name a directory with --config-dir, a store with --store, or configSources in --mesh-config"
    );
    let store = home::open(settings).await?;
    let cluster = match in_kubernetes {
        true => Some(Cluster::open(settings).await?),
        false => None,
    };
    let defaults = mesh_settings(settings, MeshConfig::default());
    let pilot = start_world(settings, mesh_settings(settings, mesh.clone()), threads)?;
    let configuration = Configuration::new();
    let server = Server::start_with(options(settings), pilot.clone(), Some(configuration.clone()))
        .await
        .map_err(addressed)?;
    let at = server.addresses();
    tracing::info!(grpc = %at.grpc, http = %at.http, monitoring = %at.monitoring, "listening");
    let (stopping, stopped) = watch::channel(false);
    let mut stop = Signals::new()?;

    let intake = intake::Options {
        pilot: pilot.clone(),
        configuration,
        defaults,
        patience: settings.source_timeout,
        mesh: watch::Sender::new(Arc::new(mesh.clone())),
    };
    let told = intake.mesh.subscribe();
    let given = Given {
        // In Kubernetes it is followed with the ConfigMaps.
        mesh_file: mesh_file.filter(|_| !in_kubernetes),
        store,
        cluster,
        elsewhere,
        node: node(&mesh, at.grpc),
    };
    let started = async {
        let mut parts = begin_sources(settings, given, intake, &server).await?;
        parts.names = names::begin(settings, &pilot).await?;
        if let Some(front) = &mut parts.front {
            front.tell(settings, pilot, stopped).await?;
        } else if let Some(cluster) = &mut parts.cluster {
            cluster.control(settings, &told, &stopped);
            cluster.tell(settings, pilot, stopped).await?;
        }
        Ok::<_, anyhow::Error>(parts)
    };
    let parts = tokio::select! {
        started = started => started?,
        signal = stop.next() => {
            tracing::info!(signal, "stopped before it was ready");
            return Ok(());
        }
    };
    server.set_ready();
    tracing::info!(took = ?begin.elapsed(), "ready");
    if parts.front.is_some() {
        home::greet(settings, at.grpc);
    }
    let signal = stop.next().await;
    tracing::info!(signal, "stopping");
    stopping.send_replace(true);
    end(settings, parts, server, stop).await;
    tracing::info!("stopped");
    Ok(())
}

/// Ends everything in good order, or at once when asked again.
async fn end(settings: &Settings, parts: Parts, server: Server, mut stop: Signals) {
    drop((parts.mesh_file, parts.names));
    let end = async {
        if let Some(front) = parts.front {
            front.end(settings.shutdown_duration).await;
        }
        if let Some(cluster) = parts.cluster {
            cluster.end().await;
        }
        server.shut_down(settings.shutdown_duration).await;
    };
    tokio::select! {
        () = end => {}
        signal = stop.next() => tracing::warn!(signal, "a second signal: stopping at once"),
    }
    drop(parts.running);
}

/// Logs a diagnostic at the level of its severity.
pub(crate) fn log_diagnostic(diagnostic: &Diagnostic) {
    match diagnostic.severity {
        Severity::Error => tracing::error!(code = diagnostic.code, "{diagnostic}"),
        Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        Severity::Info => tracing::info!(code = diagnostic.code, "{diagnostic}"),
    }
}

/// Where configuration comes from.
struct Given {
    mesh_file: Option<MeshFile>,
    store: Option<Arc<dyn Store>>,
    cluster: Option<Cluster>,
    elsewhere: Vec<Elsewhere>,
    /// Who we say that we are to other control planes.
    node: xds::Node,
}

/// What runs.
struct Parts {
    /// Follows the file with the mesh configuration.
    mesh_file: JoinSet<()>,
    /// Looks names up.
    names: JoinSet<()>,
    front: Option<Front>,
    cluster: Option<Cluster>,
    running: Running,
}

/// Begins all sources, in the order in which they hold: the file with the mesh configuration, the store, the directory,
/// the places that the mesh configuration names. Returns when what they have is committed.
async fn begin_sources(settings: &Settings, given: Given, intake: intake::Options, server: &Server) -> Result<Parts> {
    let known = |name: String| Source {
        name: name.into(),
        elsewhere: false,
    };
    let mesh_file = settings.mesh_config.as_deref().filter(|_| given.mesh_file.is_some());
    let mut names: Vec<Source> = Vec::new();
    names.extend(mesh_file.map(|file| known(format!("--mesh-config {}", file.display()))));
    names.extend((given.store.is_some() || given.cluster.is_some()).then(|| known(home::name(settings))));
    names.extend(given.cluster.is_some().then(|| known("other clusters".to_owned())));
    let directory = settings.config_dir.as_deref();
    names.extend(directory.map(|directory| known(format!("--config-dir {}", directory.display()))));
    names.extend(given.elsewhere.iter().map(Elsewhere::source));
    let (voices, mut progress) = intake::start(names, intake);

    let mut voices = voices.into_iter();
    let mut next = || voices.next().context("every source has a voice");
    let mut parts = Parts {
        mesh_file: JoinSet::new(),
        names: JoinSet::new(),
        front: None,
        cluster: None,
        running: Running::default(),
    };
    if let Some(file) = given.mesh_file {
        parts.mesh_file.spawn(file.follow(next()?));
    }
    if let Some(cluster) = given.cluster {
        let cluster = parts.cluster.insert(cluster);
        cluster.follow(settings, next()?, server.standing());
        cluster.follow_others(settings, next()?, server.standing());
    }
    let store: Option<(Arc<dyn Store>, Voice)> = match given.store {
        Some(store) => Some((store, next()?)),
        None => None,
    };
    if let Some(directory) = directory {
        parts.running.directory(directory, next()?).await?;
    }
    for place in given.elsewhere {
        parts.running.place(place, given.node.clone(), next()?).await?;
    }
    // After what may fail: nobody is let in before.
    if let Some((store, voice)) = store {
        let front = parts.front.insert(Front::open(settings, store).await?);
        tokio::try_join!(front.follow(voice), begun(&mut progress, server, None))?;
    } else {
        let details = parts
            .cluster
            .as_ref()
            .map(|cluster| (cluster.report(), cluster.awaited()));
        begun(&mut progress, server, details).await?;
    }
    Ok(parts)
}

/// Waits for the first commit; `/ready` says meanwhile what is missing, in detail what is missing of Kubernetes.
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
            let told = [
                kubernetes::waiting(&report.borrow_and_update()),
                others.borrow_and_update().clone(),
            ];
            let told: Vec<String> = told.into_iter().filter(|told| !told.is_empty()).collect();
            if !told.is_empty() {
                awaited = format!("{awaited} ({})", told.join("; "));
            }
        }
        server.set_awaited(&awaited);
        let reported = async {
            let news = match &mut details {
                Some((report, others)) => tokio::select! {
                    changed = report.changed() => changed.is_ok(),
                    changed = others.changed() => changed.is_ok(),
                },
                None => false,
            };
            if !news {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            changed = progress.changed() => changed.context("the control plane ended")?,
            () = reported => {}
        }
    }
}

/// Who we are to other control planes.
fn node(mesh: &MeshConfig, grpc: SocketAddr) -> xds::Node {
    let ip = match grpc.ip() {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    xds::Node {
        namespace: mesh.root_namespace.clone(),
        name: front::hostname().into(),
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
            http3: settings.http3.0,
            http10: settings.http10.0,
        },
        assigned_addresses: settings.ip_autoallocate.0,
    }
}

/// Which endpoints clients of other clusters get. As with istiod, the switches build on each other.
fn sharing(settings: &Settings) -> Sharing {
    match (
        settings.mcs_service_discovery.0,
        settings.mcs_host.0 && settings.mcs_cluster_local.0,
    ) {
        (false, _) => Sharing::All,
        (true, false) => Sharing::Exported,
        (true, true) => Sharing::Imported,
    }
}

fn start_world(settings: &Settings, mesh: MeshSettings, threads: usize) -> Result<WorldHandle> {
    let world = World::new(mesh, threads);
    Ok(WorldHandle::start(
        world,
        ::xds::Limits::default(),
        settings.commit_interval,
    )?)
}

fn options(settings: &Settings) -> Options {
    Options {
        grpc: bindable(&settings.grpc_addr),
        http: bindable(&settings.http_addr),
        monitoring: bindable(&settings.monitoring_addr),
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        max_request_bytes: settings.max_request_bytes.0,
        vhds: settings.vhds.0,
        leds: settings.leds_min_endpoints.0,
        secrets_to_local: home::gives_secrets(settings),
        limits: ::xds::Limits::default(),
        version: format!("rutter {}", env!("CARGO_PKG_VERSION")),
    }
}

/// Names the flags by which an address that is taken can be changed.
fn addressed(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{error}; another control plane may be running: --grpc-addr, --http-addr and --monitoring-addr choose others"
        ),
        _ => error.into(),
    }
}

/// The first address of a setting that this system can have: without a host it is every IPv6 address, which includes
/// IPv4, or every IPv4 address where there is no IPv6.
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

/// Every proxy is an open file; as many are allowed as the system lets a process have.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .is_err()
    {
        tracing::warn!(limit = ?limit.current, "the limit of open files could not be raised");
    }
}

/// The signals that end the process in order.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
