//! `rutter serve`: sources, world and server, put together; the process's life.

mod home;
mod intake;
mod mesh_file;
mod objects;
mod status;

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use registry::inputs::MeshSettings;
use resources::{MeshConfig, ParseOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::{Options, Pilot, Server};
use settings::{Address, Home, Settings};
use store::Store;
use tokio::signal::unix::{SignalKind, signal};
use world::World;

use intake::Intake;
use mesh_file::MeshFile;

/// Runs the control plane until a signal ends it.
pub(crate) fn run(settings: &Settings) -> Result<()> {
    anyhow::ensure!(
        settings.config_dir.is_some() || home::chosen(settings) != Home::None,
        "which configuration? name a directory with --config-dir, or a store with --store"
    );
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
    let (mesh_file, mesh_config) = settings.mesh_config.as_deref().map(MeshFile::open).transpose()?.unzip();
    let store = home::open(settings).await?;
    let pilot = start_world(settings, mesh_config.clone().unwrap_or_default(), threads)?;
    let intake = Arc::new(Intake::new(pilot.clone(), settings, mesh_config));
    let server = Server::start(options(settings), pilot.clone()).await?;
    let at = server.addresses();
    tracing::info!(grpc = %at.grpc, http = %at.http, monitoring = %at.monitoring, "listening");
    let (stopping, stopped) = tokio::sync::watch::channel(false);

    let mut stop = Signals::new()?;
    let watch_mesh_file = mesh_file.map(|file| tokio::spawn(follow_mesh_file(file, Arc::clone(&intake))));
    let sources = async {
        let files = match settings.config_dir.as_deref() {
            Some(directory) => Some(watch_files(directory, intake).await?),
            None => None,
        };
        let front = match store {
            Some(store) => Some(Front::start(settings, store, pilot, stopped).await?),
            None => None,
        };
        Ok::<_, anyhow::Error>((files, front))
    };
    let (files, front) = tokio::select! {
        begun = sources => begun?,
        signal = stop.next() => {
            tracing::info!(signal, "stopped before it was ready");
            return Ok(());
        }
    };
    server.set_ready();
    tracing::info!(took = ?begin.elapsed(), "ready");

    let signal = stop.next().await;
    tracing::info!(signal, "stopping");
    if let Some(task) = watch_mesh_file {
        task.abort();
    }
    stopping.send_replace(true);
    let end = async {
        if let Some(front) = front {
            front.end(settings.shutdown_duration).await;
        }
        server.shut_down(settings.shutdown_duration).await;
    };
    tokio::select! {
        () = end => {}
        signal = stop.next() => tracing::warn!(signal, "a second signal: stopping at once"),
    }
    drop(files);
    tracing::info!("stopped");
    Ok(())
}

/// Reads a directory and follows it. Everything in it is committed when this returns.
async fn watch_files(directory: &Path, intake: Arc<Intake>) -> Result<sources::files::Watch> {
    let root = directory.to_owned();
    // Blocks while the world's queue is full.
    let reading = tokio::task::spawn_blocking(move || {
        let sink = move |change| {
            // Fails only when everything is about to end.
            let _ = intake.change(change);
        };
        sources::files::watch(&root, &ParseOptions::default(), sink)
    });
    let watch = reading.await??;
    tracing::info!(directory = %directory.display(), "read");
    Ok(watch)
}

/// The store's sides: the API before it, the world that follows it, and the statuses that go back.
struct Front {
    server: api::Server,
    store: Arc<dyn Store>,
    follower: objects::Follower,
    statuses: tokio::task::JoinHandle<()>,
}

impl Front {
    async fn start(
        settings: &Settings,
        store: Arc<dyn Store>,
        pilot: Pilot,
        stopped: tokio::sync::watch::Receiver<bool>,
    ) -> Result<Front> {
        let (api, server) = home::serve(settings, Arc::clone(&store)).await?;
        let follower = objects::Follower::start(Arc::clone(&store), pilot.clone()).await;
        let follower = follower.context("the store was closed")?;
        tracing::debug!(tasks = follower.tasks(), "following the store");
        let interval = plan::Settings {
            interval: settings.status_interval,
            ..plan::Settings::default()
        };
        let intents = pilot.feedback(interval).await?;
        let led = async move |leading| drop(pilot.lead(leading).await);
        let options = sinks::Options::new(format!("rutter-{}", std::process::id()));
        let (writer, stats) = (status::StatusWriter(api), Arc::default());
        let statuses = match home::chosen(settings) {
            // Others may have the same store.
            Home::Etcd => {
                let options = sinks::Options::new(format!("{}-{}", hostname(), std::process::id()));
                let lock = status::StoreLock(Arc::clone(&store));
                tokio::spawn(async move { sinks::run(intents, writer, lock, options, stats, led, stopped).await })
            }
            _ => tokio::spawn(async move {
                sinks::run(intents, writer, sinks::Always, options, stats, led, stopped).await;
            }),
        };
        Ok(Front {
            server,
            store,
            follower,
            statuses,
        })
    }

    async fn end(self, grace: Duration) {
        home::end(self.server, grace).await;
        drop(self.follower);
        let _ = self.statuses.await;
        self.store.close().await;
    }
}

/// What this machine calls itself, for the lease.
fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn start_world(settings: &Settings, config: MeshConfig, threads: usize) -> Result<Pilot> {
    let domain = settings.domain.as_str().into();
    let mesh = MeshSettings {
        config,
        domain,
        cluster_id: settings.cluster_id.as_str().into(),
    };
    let world = World::new(mesh, threads);
    Ok(Pilot::start(world, ads::Limits::default(), settings.commit_interval)?)
}

async fn follow_mesh_file(file: MeshFile, intake: Arc<Intake>) {
    let (changes, mut changed) = tokio::sync::watch::channel(None);
    let follow = file.follow(|config| drop(changes.send_replace(Some(config))));
    let commit = async {
        while changed.changed().await.is_ok() {
            let config = changed.borrow_and_update().clone();
            if let Some(config) = config
                && intake.mesh_file(config).await.is_err()
            {
                return;
            }
        }
    };
    tokio::join!(follow, commit);
}

fn options(settings: &Settings) -> Options {
    Options {
        grpc: bindable(&settings.grpc_addr),
        http: bindable(&settings.http_addr),
        monitoring: bindable(&settings.monitoring_addr),
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        max_request_bytes: settings.max_request_bytes.0,
        limits: ads::Limits::default(),
        version: format!("rutter {}", env!("CARGO_PKG_VERSION")),
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
