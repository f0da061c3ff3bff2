//! The Unix socket of the relay, and its connections.

use std::future::ready;
use std::io::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http2_server::{Connection, RequestBody, Settings};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Status;

use crate::envelope::Variant;
use crate::grpc::{Outgoing, refuse, respond};
use crate::stream::{self, Hub, QUEUE};

/// The maximum number of connections. Further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// The maximum number of streams of one connection.
const MAX_STREAMS: u32 = 16;
/// The bytes of requests that a stream may send before they are read.
const WINDOW: u32 = 64 << 10;
/// The pause after connections cannot be accepted, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens on the socket. Replaces an old socket, but no other file.
///
/// # Errors
/// The socket cannot be bound.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    // Applications that use gRPC without a proxy may run as any user.
    listeners::bind_unix(path, 0o750, 0o666)
}

/// Serves connections until the agent stops.
pub(crate) async fn serve(listener: UnixListener, hub: Arc<Hub>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut stop = hub.stop.clone();
    let next = async || {
        let permit = connections.clone().acquire_owned().await.map_err(Error::other)?;
        Ok::<_, Error>((listener.accept().await?.0, permit))
    };
    loop {
        let accepted = tokio::select! {
            accepted = next() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((socket, permit)) => {
                tokio::spawn(connection(socket, hub.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the xDS socket");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(socket: UnixStream, hub: Arc<Hub>, permit: OwnedSemaphorePermit) {
    let mut stop = hub.stop.clone();
    let settings = Settings { max_streams: MAX_STREAMS, window: WINDOW, keepalive: None };
    let mut connection = Connection::new(socket, settings, |request| ready(call(&hub, request)));
    let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopped => {
            connection.graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the xDS socket broke");
    }
    drop(permit);
}

fn call(hub: &Arc<Hub>, request: Request<RequestBody>) -> Response<Outgoing> {
    let Some(variant) = Variant::at(request.uri().path()) else {
        return refuse(&Status::unimplemented("the agent serves the aggregated discovery service only"));
    };
    let Ok(permit) = hub.streams.clone().try_acquire_owned() else {
        return refuse(&Status::resource_exhausted("too many discovery streams"));
    };
    let (down, items) = mpsc::channel(QUEUE);
    tokio::spawn(stream::run(hub.clone(), variant, request.into_body(), down, permit));
    respond(items)
}
