//! Envoy's admin interface.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The time for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Active connections of listeners.
const ACTIVE: &str = "/stats?usedonly&filter=downstream_cx_active$";
/// Listeners that wait for something, and failures to open a port.
const LISTENERS: &str = "/stats?filter=listener_manager.(total_listeners_warming|listener_create_failure)$";

/// The address of the admin interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admin {
    /// A port of the loopback address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The reason why the admin interface did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no connection.
    #[error("cannot connect to Envoy's admin interface: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection ended without an answer, or the answer is too large.
    #[error("Envoy's admin interface failed: {0}")]
    Exchange(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is an error.
    #[error("Envoy's admin interface answered {0}")]
    Status(StatusCode),
    /// There was no answer in time.
    #[error("Envoy's admin interface did not answer in {} seconds", PATIENCE.as_secs())]
    Timeout,
}

/// The state of listeners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listeners {
    /// The number of listeners that wait for something.
    pub warming: u64,
    /// The number of listeners that could not be opened since the start, whether Envoy rejected them or not.
    pub failures: u64,
    /// The ports at which Envoy accepts connections.
    pub ports: BTreeSet<u16>,
}

impl Admin {
    /// Drains listeners: responses ask clients to close their connections, and the listeners close after the drain time. Of a
    /// sidecar, only inbound listeners are drained. `stays` keeps Envoy running after that.
    ///
    /// # Errors
    /// Envoy does not answer, or with an error.
    pub async fn drain(&self, inbound_only: bool, stays: bool) -> Result<(), AdminError> {
        let inbound = if inbound_only { "inboundonly&" } else { "" };
        let stays = if stays { "&skip_exit" } else { "" };
        self.send(Method::POST, &format!("/drain_listeners?{inbound}graceful{stays}")).await.map(drop)
    }

    /// Ends Envoy at once.
    ///
    /// # Errors
    /// Envoy does not answer, or with an error.
    pub async fn quit(&self) -> Result<(), AdminError> {
        self.send(Method::POST, "/quitquitquit").await.map(drop)
    }

    /// Whether Envoy has its first configuration and accepts connections.
    pub async fn is_ready(&self) -> bool {
        self.send(Method::GET, "/ready").await.is_ok()
    }

    /// The number of connections from clients, without those of the ports that Envoy has for itself; none if Envoy has not counted
    /// any.
    ///
    /// # Errors
    /// Envoy does not answer, or with an error.
    pub async fn connections(&self, own_ports: &[u16]) -> Result<Option<u64>, AdminError> {
        Ok(sum(&self.send(Method::GET, ACTIVE).await?, own_ports))
    }

    /// The state of listeners.
    ///
    /// # Errors
    /// Envoy does not answer, or with an error.
    pub async fn listeners(&self) -> Result<Listeners, AdminError> {
        let stats = self.send(Method::GET, LISTENERS).await?;
        let value = |name: &str| {
            let of_line = |line: &str| line.split_once(": ").filter(|(stat, _)| stat.ends_with(name))?.1.parse().ok();
            stats.lines().find_map(of_line).unwrap_or(0)
        };
        let (warming, failures) = (value("total_listeners_warming"), value("listener_create_failure"));
        Ok(Listeners { warming, failures, ports: ports(&self.send(Method::GET, "/listeners").await?) })
    }

    async fn send(&self, method: Method, path: &str) -> Result<String, AdminError> {
        let exchange = async {
            match self {
                Admin::Tcp(address) => ask(TcpStream::connect(address).await?, method, path).await,
                Admin::Unix(socket) => ask(UnixStream::connect(socket).await?, method, path).await,
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| AdminError::Timeout)?
    }
}

async fn ask<S>(stream: S, method: Method, path: &str) -> Result<String, AdminError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| AdminError::Exchange(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::builder().method(method).uri(path).header("host", "localhost").body(Empty::<Bytes>::new());
    let exchange = async {
        let response =
            sender.send_request(request.map_err(|error| AdminError::Exchange(error.into()))?).await.map_err(failed)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(AdminError::Exchange)?;
        match status.is_success() {
            true => Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned()),
            false => Err(AdminError::Status(status)),
        }
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut connection => match ended {
            // The answer may have arrived with the end of the connection.
            Ok(()) => exchange.await,
            Err(error) => Err(failed(error)),
        },
    }
}

/// Adds the connections of all listeners up. Statistics of workers repeat them.
fn sum(stats: &str, own_ports: &[u16]) -> Option<u64> {
    if stats.is_empty() {
        return None;
    }
    let is_own = |listener: &str| own_ports.iter().any(|port| listener.ends_with(&format!("_{port}")));
    let counted = stats.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let listener = name.strip_prefix("listener.")?.strip_suffix(".downstream_cx_active")?;
        let skipped = listener.contains("worker_")
            || listener.starts_with("envoy_internal_")
            || listener == "admin"
            || listener.starts_with("admin.")
            || is_own(listener);
        (!skipped).then(|| value.trim().parse::<u64>().ok())?
    });
    Some(counted.fold(0, u64::saturating_add))
}

/// The ports of lines such as `NAME::127.0.0.1:80`.
fn ports(listeners: &str) -> BTreeSet<u16> {
    listeners.lines().filter_map(|line| line.rsplit_once(':')?.1.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_listeners_are_read() {
        let text = "0.0.0.0_80::0.0.0.0:80\n[__]_443::[::]:443\ninternal::envoy://internal/\n";
        assert_eq!(ports(text), BTreeSet::from([80, 443]));
        assert_eq!(ports(""), BTreeSet::new());
    }

    #[test]
    fn connections_of_own_listeners_do_not_count() {
        let stats = "listener.0.0.0.0_15006.downstream_cx_active: 2\n\
                     listener.0.0.0.0_15006.worker_0.downstream_cx_active: 2\n\
                     listener.0.0.0.0_15021.downstream_cx_active: 1\n\
                     listener.[__]_15090.downstream_cx_active: 1\n\
                     listener.admin.downstream_cx_active: 1\n\
                     listener.admin.main_thread.downstream_cx_active: 1\n\
                     listener.envoy_internal_connect_originate.downstream_cx_active: 5\n\
                     http.inbound_0.0.0.0_80;.downstream_cx_active: 9\n\
                     listener.10.0.0.1_80.downstream_cx_active: 1\n\
                     listener.bad.downstream_cx_active: many\nno separator\n";
        assert_eq!(sum(stats, &[15021, 15090]), Some(3));
        assert_eq!(sum("", &[]), None);
        assert_eq!(sum("nothing", &[]), Some(0));
    }
}
