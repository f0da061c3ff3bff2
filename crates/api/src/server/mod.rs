//! The API over sockets: HTTP/1.1 and HTTP/2 with TLS, or plaintext on loopback addresses.

mod browsers;
mod connection;
mod limits;
mod tls;

pub use limits::ServerLimits;
pub use tls::{Tls, TlsError, TlsHandle};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use listeners::accept;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::error::ApiError;

use connection::{Shared, serve};

/// Addresses and limits.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The HTTPS address; port 0 selects a free port.
    pub https: Option<(SocketAddr, Tls)>,
    /// The plaintext address, which must be a loopback address. Every client is an administrator.
    pub http: Option<SocketAddr>,
    /// Limits for clients.
    pub limits: ServerLimits,
}

/// The error of starting a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is in use or not an address of this machine.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Plaintext HTTP is configured for an address that is not loopback.
    #[error("plaintext HTTP is allowed only on loopback addresses, not on {0}: use HTTPS")]
    NotLoopback(SocketAddr),
    /// Certificates or keys are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store is not writable.
    #[error("cannot create the default namespaces: {0}")]
    Prepare(Box<ApiError>),
}

/// A running server. Dropping it closes all connections; [`Server::shutdown`] stops it gracefully.
pub struct Server {
    api: Api,
    /// The HTTPS address.
    https: Option<SocketAddr>,
    /// The plaintext address.
    http: Option<SocketAddr>,
    tls: Option<TlsHandle>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    house: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts listening and housekeeping ([`Api::run_housekeeping`]).
    ///
    /// # Errors
    /// An address cannot be used, TLS material is invalid, or the store is not writable.
    pub async fn start(options: ServerOptions, api: Api) -> Result<Server, ServerError> {
        api.prepare().await.map_err(|failure| ServerError::Prepare(Box::new(failure)))?;
        let shared = Arc::new(Shared::new(api.clone(), options.limits));
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        let (mut https, mut renewal) = (None, None);
        if let Some((address, tls)) = options.https {
            let config = TlsHandle::new(&tls)?;
            renewal = Some(config.clone());
            let listener = listen(address).await?;
            https = listener.local_addr().ok();
            tasks.spawn(serve_all(listener, Some(config), Arc::clone(&shared), stop.subscribe()));
        }
        let mut http = None;
        if let Some(address) = options.http {
            if !address.ip().is_loopback() {
                return Err(ServerError::NotLoopback(address));
            }
            let listener = listen(address).await?;
            http = listener.local_addr().ok();
            tasks.spawn(serve_all(listener, None, shared, stop.subscribe()));
        }
        let keeper = api.clone();
        let house = tokio::spawn(async move {
            if !keeper.is_read_only() {
                keeper.run_housekeeping().await;
            }
        });
        Ok(Server { api, https, http, tls: renewal, stop, tasks, house })
    }

    /// The HTTPS address.
    pub fn https(&self) -> Option<SocketAddr> {
        self.https
    }

    /// The certificates in use, which can be replaced while the server runs; none without HTTPS.
    pub fn tls(&self) -> Option<TlsHandle> {
        self.tls.clone()
    }

    /// The plaintext address.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Stops accepting connections, ends watches, and waits at most this long for open requests.
    pub async fn shutdown(mut self, grace: Duration) {
        self.stop.send_replace(true);
        self.api.end_watches();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            tracing::info!("closing API connections that did not end in time");
        }
        self.tasks.abort_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.api.end_watches();
        self.house.abort();
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|error| ServerError::Listen { address, error })
}

async fn serve_all(listener: TcpListener, tls: Option<TlsHandle>, shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    let (limits, ending) = (shared.limits.connections.clone(), stop.clone());
    accept(
        "the API",
        limits,
        move |cx| listener.poll_accept(cx),
        stop,
        move |(stream, peer), usage| {
            // Disables Nagle's algorithm, which delays small responses. Errors are ignored.
            let _ = stream.set_nodelay(true);
            serve(stream, peer, tls.as_ref().map(TlsHandle::config), Arc::clone(&shared), usage, ending.clone())
        },
    )
    .await;
}
