//! `rutter serve`: sources, world and server, put together; the process's life.

mod intake;
mod mesh_file;

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use registry::inputs::MeshSettings;
use resources::{MeshConfig, ParseOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::{Options, Pilot, Server};
use settings::{Address, Settings};
use tokio::signal::unix::{SignalKind, signal};
use world::World;

use intake::Intake;
use mesh_file::MeshFile;

/// Runs the control plane until a signal ends it.
pub(crate) fn run(settings: &Settings) -> Result<()> {
    let directory = settings.config_dir.as_deref();
    let directory = directory.context("which configuration? name a directory with --config-dir")?;
    raise_file_limit();
    let threads = match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    runtime.block_on(serve(settings, directory, threads))
}

async fn serve(settings: &Settings, directory: &Path, threads: usize) -> Result<()> {
    let begin = Instant::now();
    let (mesh_file, mesh_config) = settings.mesh_config.as_deref().map(MeshFile::open).transpose()?.unzip();
    let pilot = start_world(settings, mesh_config.clone().unwrap_or_default(), threads)?;
    let intake = Arc::new(Intake::new(pilot.clone(), settings, mesh_config));
    let server = Server::start(options(settings), pilot).await?;
    let at = server.addresses();
    tracing::info!(grpc = %at.grpc, http = %at.http, monitoring = %at.monitoring, "listening");

    let (reader, root) = (Arc::clone(&intake), directory.to_owned());
    // Reads everything before it returns, and blocks while the world's queue is full.
    let reading = tokio::task::spawn_blocking(move || {
        let sink = move |change| {
            // Fails only when everything is about to end.
            let _ = reader.change(change);
        };
        sources::files::watch(&root, &ParseOptions::default(), sink)
    });
    let watch_mesh_file = mesh_file.map(|file| tokio::spawn(follow_mesh_file(file, intake)));
    let mut stop = Signals::new()?;
    let source = tokio::select! {
        read = reading => read??,
        signal = stop.next() => {
            tracing::info!(signal, "stopped before it was ready");
            return Ok(());
        }
    };
    server.set_ready();
    tracing::info!(directory = %directory.display(), took = ?begin.elapsed(), "ready");

    let signal = stop.next().await;
    tracing::info!(signal, "stopping");
    if let Some(task) = watch_mesh_file {
        task.abort();
    }
    tokio::select! {
        () = server.shut_down(settings.shutdown_duration) => {}
        signal = stop.next() => tracing::warn!(signal, "a second signal: stopping at once"),
    }
    drop(source);
    tracing::info!("stopped");
    Ok(())
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
