//! The check that connections are redirected.

use std::cell::Cell;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use interception::{Config, Plan};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{sleep, timeout};

/// The exit code if the check fails. The repair controller of the CNI node agent recognizes pods by it.
pub const VALIDATION_EXIT_CODE: u8 = 126;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections are not redirected.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// No connection arrived.
    #[error(
        "no connection to {probe} was redirected to the proxy's ports in {after:?}: the rules of the capture are missing. \
         If the CNI plugin makes them, the pod started before the plugin was ready: delete it, or let the repair \
         controller do so (repair.deletePods)"
    )]
    NotRedirected {
        /// The address that was connected to.
        probe: SocketAddr,
        /// How long the check waited.
        after: Duration,
    },
    /// The ports of the proxy are in use.
    #[error("cannot listen on ports {0} and {1} of the proxy: {2}; run the check before the proxy starts")]
    Listen(u16, u16, io::Error),
}

/// Checks that a connection of this process, which has to run as the proxy's user, is redirected to the proxy's ports: it
/// listens there and connects to an address where nothing listens.
///
/// # Errors
/// No connection arrives in time, or both ports are in use.
pub async fn validate(config: &Config, plan: &Plan) -> Result<(), ValidationError> {
    let (local, remote): (IpAddr, IpAddr) = match plan.address {
        IpAddr::V4(_) => (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 6).into()),
        IpAddr::V6(_) => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into()),
    };
    let probe = SocketAddr::new(remote, config.probe_port);
    let outbound = listen(SocketAddr::new(local, config.proxy_port));
    let inbound = listen(SocketAddr::new(local, config.inbound_capture_port));
    let (outbound, inbound) = match (outbound, inbound) {
        (Err(error), Err(_)) => {
            return Err(ValidationError::Listen(config.proxy_port, config.inbound_capture_port, error));
        }
        (outbound, inbound) => (outbound.ok(), inbound.ok()),
    };
    // The address of the latest attempt: its connection keeps it when it is redirected.
    let own = Cell::new(None);
    let attempts = async {
        loop {
            // An attempt that is not redirected is refused.
            let _ = timeout(PAUSE, connect(SocketAddr::new(local, 0), probe, &own)).await;
            sleep(PAUSE).await;
        }
    };
    let arrival = async {
        loop {
            let peer = tokio::select! {
                peer = accept(outbound.as_ref()) => peer,
                peer = accept(inbound.as_ref()) => peer,
            };
            if own.get() == Some(peer) {
                return;
            }
        }
    };
    let check = async {
        tokio::select! {
            () = attempts => {}
            () = arrival => {}
        }
    };
    let after = config.probe_timeout;
    timeout(after, check).await.map_err(|_| ValidationError::NotRedirected { probe, after })
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(16)
}

async fn connect(from: SocketAddr, to: SocketAddr, own: &Cell<Option<SocketAddr>>) -> io::Result<()> {
    let socket = socket(from)?;
    socket.bind(from)?;
    own.set(Some(socket.local_addr()?));
    // Held until it is accepted or the attempt ends.
    let _connection = socket.connect(to).await?;
    pending().await
}

async fn accept(listener: Option<&TcpListener>) -> SocketAddr {
    loop {
        match listener {
            None => pending().await,
            Some(listener) => match listener.accept().await {
                Ok((_, peer)) => return peer,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}
