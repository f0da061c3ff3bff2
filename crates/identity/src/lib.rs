//! The workload's identity: keys, certificate requests, rotation, trust roots, files, and the SDS server.
//!
//! ```text
//! certificate authority ─► Issuer ─┐
//! files ─► Files (watched) ────────┼─► Keeper ─► Table ─► SDS ─► proxies
//! roots of the mesh ───────────────┘     └─► Certificates, OUTPUT_CERTS
//! ```
//!
//! [`start`] chooses the [`Source`] of the workload's certificate, in this order: another SDS server, the files that the platform
//! mounts, the files that the user mounts, the certificate authority. The SDS server has `default` (certificate and key), `ROOTCA`
//! (the trust bundle), and any file as `file-cert:CHAIN~KEY` or `file-root:PATH`. A certificate is served until a new one exists:
//! a failure never replaces a secret.
//!
//! The decisions are pure: when to renew (`rotation`), what a stream is sent (`sds::subscription`), which proof a request
//! carries (`issuer`).

mod authority;
mod files;
mod issuer;
mod keeper;
mod key;
mod metrics;
mod name;
mod output;
mod pem;
mod rotation;
mod sds;
mod secret;
mod settings;
mod wanted;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use agent_core::exchange::MeshRoots;
use prometheus::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use files::Files;
use issuer::{Issued, Issuer};
use keeper::{Keeper, Origin};
use metrics::Metrics;
use name::FileName;
use sds::server::{self, Service};
use secret::{Entry, Table};
use wanted::Wanted;

pub use issuer::has_certificate;
pub use name::{ROOTS, WORKLOAD};
pub use settings::{CertificateFiles, KeyKind, Settings};

/// The workload's current certificate, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates {
    /// The certificate chain, leaf first, without the root.
    pub chain: Arc<str>,
    /// The private key.
    pub key: Arc<str>,
    /// The trust bundle.
    pub roots: Arc<str>,
    /// The moment at which the certificate expires.
    pub expires: SystemTime,
}

/// Leaves out the key.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Certificates { chain, roots, expires, .. } = self;
        f.debug_struct("Certificates")
            .field("chain", chain)
            .field("roots", roots)
            .field("expires", expires)
            .finish_non_exhaustive()
    }
}

/// The source of the workload's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Another SDS server, such as that of SPIRE, on this socket. The agent serves only files.
    OtherServer(PathBuf),
    /// Files.
    Files(CertificateFiles),
    /// The certificate authority.
    Authority,
}

/// The reason why the agent has no identity.
#[derive(thiserror::Error, Debug)]
pub enum IdentityError {
    /// A socket cannot be opened or removed.
    #[error("cannot use the SDS socket {}: {error}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Another SDS server should have the certificate, but it does not listen.
    #[error(
        "WORKLOAD_IDENTITY_SOCKET_FILE names {}, but no SDS server listens on it: start that server first, or remove the variable",
        .0.display()
    )]
    NoServer(PathBuf),
    /// The mounted files of CA_PROVIDER=GkeWorkloadCertificate do not exist.
    #[error("the certificate {} of CA_PROVIDER does not exist: mount it, or remove the variable", .0.display())]
    NoFiles(PathBuf),
    /// A metric exists already.
    #[error("cannot register the metrics of the identity: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// The running parts of the workload's identity. They end when this is dropped.
#[derive(Debug)]
pub struct Identity {
    source: Source,
    socket: Option<PathBuf>,
    certificates: watch::Receiver<Option<Certificates>>,
    tasks: JoinSet<()>,
}

impl Identity {
    /// The current certificate, none before there is one.
    #[must_use]
    pub fn certificates(&self) -> watch::Receiver<Option<Certificates>> {
        self.certificates.clone()
    }

    /// The source of the certificate.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The socket of the agent's SDS server; none if it serves nothing.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Waits until all parts have ended after `stop`.
    pub async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts the parts of the workload's identity. They end when `stop` becomes true or its sender is dropped.
///
/// # Errors
/// A socket cannot be used, or files or another server that the settings name do not exist.
pub async fn start(
    settings: Settings,
    mesh: watch::Receiver<MeshRoots>,
    registry: &Registry,
    stop: watch::Receiver<bool>,
) -> Result<Identity, IdentityError> {
    let source = choose(&settings).await?;
    tracing::info!(?source, "the source of the workload's certificate");
    let settings = Arc::new(settings);
    let metrics = Metrics::new(registry)?;
    let (table, _) = watch::channel(Table::default());
    let (table, wanted) = (Arc::new(table), Arc::<Wanted>::default());
    let mut tasks = JoinSet::new();
    let socket = listen(&settings, &source, &table, &wanted, &stop, &mut tasks)?;

    let files =
        Files { settings: settings.clone(), wanted: wanted.clone(), table: table.clone(), metrics: metrics.clone() };
    tasks.spawn(until(stop.clone(), files.run()));
    let (certificates, receiver) = watch::channel(None);
    let (issued, issued_receiver) = watch::channel(Issued::default());
    let authority_origin = || match settings.well_known().filter(|files| files.roots.exists()) {
        Some(files) => file(&wanted, FileName::Roots(files.roots)),
        None => Origin::Authority,
    };
    let (pair, roots) = match &source {
        Source::OtherServer(path) => {
            let reason: Arc<str> =
                format!("the SDS server on {} has the workload's certificate", path.display()).into();
            table.send_modify(|table| {
                (table.workload, table.roots) = (Entry::Failed(reason.clone()), Entry::Failed(reason));
            });
            return Ok(Identity { source, socket, certificates: receiver, tasks });
        }
        Source::Files(files) => {
            let pair = FileName::Pair(files.chain.clone(), files.key.clone());
            (file(&wanted, pair), file(&wanted, FileName::Roots(files.roots.clone())))
        }
        Source::Authority => {
            tasks.spawn(until(stop.clone(), Issuer::new(settings.clone(), metrics.clone(), issued).run()));
            (Origin::Authority, authority_origin())
        }
    };
    let keeper = Keeper { settings, pair, roots, issued: issued_receiver, mesh, table, certificates, metrics };
    tasks.spawn(until(stop, keeper.run()));
    Ok(Identity { source, socket, certificates: receiver, tasks })
}

fn file(wanted: &Arc<Wanted>, name: FileName) -> Origin {
    let _lease = wanted.lease(&name);
    Origin::File { name, _lease }
}

async fn choose(settings: &Settings) -> Result<Source, IdentityError> {
    let socket = settings.socket();
    let failed = |error| IdentityError::Socket { path: socket.clone(), error };
    if server::is_served(&socket).await.map_err(failed)? {
        return Ok(Source::OtherServer(socket));
    }
    if !settings.has_own_socket() {
        return Err(IdentityError::NoServer(socket));
    }
    let platform = settings.workload_credentials();
    if platform.exist() {
        return Ok(Source::Files(platform));
    }
    if let Some(files) = &settings.mounted {
        if settings.requires_mounted && !files.exist() {
            return Err(IdentityError::NoFiles(files.chain.clone()));
        }
        return Ok(Source::Files(files.clone()));
    }
    Ok(settings.well_known().filter(CertificateFiles::exist).map_or(Source::Authority, Source::Files))
}

/// Opens the socket and serves it.
fn listen(
    settings: &Arc<Settings>,
    source: &Source,
    table: &watch::Sender<Table>,
    wanted: &Arc<Wanted>,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Result<Option<PathBuf>, IdentityError> {
    if !settings.serve {
        return Ok(None);
    }
    let path = settings.own_socket(matches!(source, Source::OtherServer(_)));
    let listener = server::listen(&path).map_err(|error| IdentityError::Socket { path: path.clone(), error })?;
    let service = Service { table: table.subscribe(), wanted: wanted.clone(), settings: settings.clone() };
    tasks.spawn(server::serve(listener, path.clone(), service, stop.clone()));
    Ok(Some(path))
}

/// Runs a part until `stop`.
async fn until(mut stop: watch::Receiver<bool>, part: impl Future<Output = ()>) {
    tokio::select! {
        () = stopped(&mut stop) => {}
        () = part => {}
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Reads a name, a certificate and a key, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let _ = name::Name::parse(&String::from_utf8_lossy(bytes));
    let _ = (pem::bundle([bytes]), pem::check_pair(bytes, bytes));
    let answer = bytes.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let _ = authority::check("ca", answer, String::new(), SystemTime::UNIX_EPOCH);
}
