//! The interface on sockets: HTTP/1.1 and HTTP/2, with TLS, or plain on loopback.

mod connection;
mod limits;
mod tls;

pub use limits::ServerLimits;
pub use tls::{Tls, TlsError};

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::api::{Api, stopped};
use crate::failure::Failure;

use connection::{Shared, serve};

/// Where and how to listen.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Where HTTPS is spoken; port 0 chooses a free one.
    pub https: Option<(SocketAddr, Tls)>,
    /// Where plain HTTP is spoken, in which everybody is an administrator: a loopback address.
    pub http: Option<SocketAddr>,
    /// What clients may use.
    pub limits: ServerLimits,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is taken, or not of this machine.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Plain HTTP was asked for on an address that others reach.
    #[error("plain HTTP is spoken on loopback addresses only, and {0} is none: use HTTPS there")]
    NotLoopback(SocketAddr),
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store cannot be written.
    #[error("the usual namespaces cannot be made: {}", .0.message)]
    Prepare(Box<Failure>),
}

/// A server that runs. Dropping it ends it at once; [`Server::shutdown`] ends it in good order.
pub struct Server {
    api: Api,
    /// The address of HTTPS.
    https: Option<SocketAddr>,
    /// The address of plain HTTP.
    http: Option<SocketAddr>,
    config: Option<Arc<RwLock<Arc<ServerConfig>>>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    house: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Listens, and answers requests from then on. Also begins to keep house ([`Api::keep_house`]).
    ///
    /// # Errors
    /// An address cannot be listened on, TLS material is not good, or the store cannot be written.
    pub async fn start(options: ServerOptions, api: Api) -> Result<Server, ServerError> {
        api.prepare()
            .await
            .map_err(|failure| ServerError::Prepare(Box::new(failure)))?;
        let shared = Arc::new(Shared::new(api.clone(), options.limits));
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        let mut config = None;
        let mut https = None;
        if let Some((address, tls)) = options.https {
            let current = Arc::new(RwLock::new(Arc::new(tls.config()?)));
            let listener = listen(address).await?;
            https = listener.local_addr().ok();
            config = Some(Arc::clone(&current));
            tasks.spawn(accept(listener, Some(current), Arc::clone(&shared), stop.subscribe()));
        }
        let mut http = None;
        if let Some(address) = options.http {
            if !address.ip().is_loopback() {
                return Err(ServerError::NotLoopback(address));
            }
            let listener = listen(address).await?;
            http = listener.local_addr().ok();
            tasks.spawn(accept(listener, None, shared, stop.subscribe()));
        }
        let keeper = api.clone();
        let house = tokio::spawn(async move { keeper.keep_house().await });
        Ok(Server {
            api,
            https,
            http,
            config,
            stop,
            tasks,
            house,
        })
    }

    /// The address at which HTTPS is spoken.
    pub fn https(&self) -> Option<SocketAddr> {
        self.https
    }

    /// The address at which plain HTTP is spoken.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Uses other certificates for connections that come from now on.
    ///
    /// # Errors
    /// They are not good; the ones before stay in use.
    pub fn renew(&self, tls: &Tls) -> Result<(), TlsError> {
        let Some(current) = &self.config else {
            return Ok(());
        };
        let config = Arc::new(tls.config()?);
        *current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Takes no more connections, ends watches, and waits for requests that are under way, but no longer than this.
    pub async fn shutdown(mut self, grace: Duration) {
        self.stop.send_replace(true);
        self.api.end_watches();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            tracing::info!("some connections of the API did not end in time and are cut");
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
    TcpListener::bind(address)
        .await
        .map_err(|error| ServerError::Listen { address, error })
}

/// Takes connections until it is told to stop, then waits for them.
async fn accept(
    listener: TcpListener,
    tls: Option<Arc<RwLock<Arc<ServerConfig>>>>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    let mut connections = JoinSet::new();
    loop {
        // A place first: what cannot be served waits in the system's own queue.
        let place = tokio::select! {
            () = stopped(&mut stop) => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others must end first.
                tracing::warn!(%error, "a connection to the API could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small answers must not wait for the acknowledgement of the one before. A socket that refuses works all the same.
        let _ = stream.set_nodelay(true);
        let config = tls
            .as_ref()
            .map(|tls| Arc::clone(&tls.read().unwrap_or_else(PoisonError::into_inner)));
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        connections.spawn(async move {
            serve(stream, peer, config, shared, stop).await;
            drop(place);
        });
    }
    while connections.join_next().await.is_some() {}
}
