//! The server on a Unix socket, and the methods of the service.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tonic::codegen::BoxFuture;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::subscription::Subscription;
use super::wire::Request;
use crate::secret::Table;
use crate::settings::Settings;
use crate::wanted::Wanted;

/// The most connections. Further ones wait until one ends.
const MAX_CONNECTIONS: usize = 200;
/// The most streams of a connection: proxies open one for each secret.
const MAX_STREAMS: u32 = 5000;
/// The largest request, in bytes.
const MAX_REQUEST: usize = 1 << 20;
/// The responses of a stream that wait to be written.
const QUEUE: usize = 4;
/// The time in which a request for secrets without a stream is answered.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which another server accepts a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The permissions of the socket: the proxy may run as another user.
const SOCKET_MODE: u32 = 0o666;
/// The permissions of the socket's folder, if it does not exist.
const FOLDER_MODE: u32 = 0o750;

/// The secrets, and the files that are used.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) table: watch::Receiver<Table>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) settings: Arc<Settings>,
}

/// Whether a server accepts connections on this socket. A socket without a server is removed.
pub(crate) async fn is_served(path: &Path) -> io::Result<bool> {
    if !path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket()) {
        return Ok(false);
    }
    if matches!(tokio::time::timeout(PROBE_TIMEOUT, UnixStream::connect(path)).await, Ok(Ok(_))) {
        return Ok(true);
    }
    std::fs::remove_file(path)?;
    Ok(false)
}

/// Opens a socket, in place of the one that an earlier process left behind.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    listeners::bind_unix(path, FOLDER_MODE, SOCKET_MODE)
}

/// Serves until `stop`, then removes the socket.
pub(crate) async fn serve(listener: UnixListener, path: PathBuf, service: Service, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let budget = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let next = || async {
        let permit = budget.clone().acquire_owned().await;
        (permit, listener.accept().await)
    };
    loop {
        tokio::select! {
            () = crate::stopped(&mut stop) => break,
            Some(_) = connections.join_next() => {}
            (permit, accepted) = next() => match accepted {
                Ok((socket, _)) => {
                    let connection = connection(socket, service.clone());
                    connections.spawn(async move { (connection.await, permit).0 });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the SDS socket");
                    tokio::time::sleep(PROBE_TIMEOUT).await;
                }
            },
        }
    }
    drop(connections);
    let _ = std::fs::remove_file(path);
}

async fn connection(socket: UnixStream, service: Service) {
    let answer = hyper::service::service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.route(request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .serve_connection(TokioIo::new(socket), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the SDS socket failed");
    }
}

impl Service {
    async fn route(self, request: hyper::Request<Incoming>) -> http::Response<tonic::body::Body> {
        match request.uri().path() {
            "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets" => {
                self.stream::<DiscoveryRequest>(request).await
            }
            "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets" => {
                self.stream::<DeltaDiscoveryRequest>(request).await
            }
            "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets" => {
                grpc::<DiscoveryRequest>().unary(Fetch(self), request).await
            }
            _ => {
                Status::unimplemented("this server has envoy.service.secret.v3.SecretDiscoveryService only").into_http()
            }
        }
    }

    async fn stream<R: Request>(self, request: hyper::Request<Incoming>) -> http::Response<tonic::body::Body> {
        grpc::<R>().streaming(Stream::<R>(self, PhantomData), request).await
    }
}

fn grpc<R: Request>() -> Grpc<ProstCodec<R::Response, R>> {
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_REQUEST)
}

/// The method `FetchSecrets`.
struct Fetch(Service);

impl UnaryService<DiscoveryRequest> for Fetch {
    type Response = DiscoveryResponse;
    type Future = BoxFuture<Response<DiscoveryResponse>, Status>;

    fn call(&mut self, request: tonic::Request<DiscoveryRequest>) -> Self::Future {
        let Service { mut table, wanted, settings } = self.0.clone();
        Box::pin(async move {
            let mut subscription = Subscription::new(wanted, false);
            subscription.update(request.into_inner().update())?;
            let complete = table.wait_for(|table| subscription.complete(table));
            // After that time, the answer has the secrets that there are.
            let _ = tokio::time::timeout(FETCH_TIMEOUT, complete).await;
            let changes = subscription.next(&table.borrow())?;
            Ok(Response::new(DiscoveryRequest::response(&changes.unwrap_or_default(), settings.key_provider.as_ref())))
        })
    }
}

/// The methods `StreamSecrets` and `DeltaSecrets`.
struct Stream<R>(Service, PhantomData<R>);

impl<R: Request> StreamingService<R> for Stream<R> {
    type Response = R::Response;
    type ResponseStream = ReceiverStream<Result<R::Response, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: tonic::Request<Streaming<R>>) -> Self::Future {
        let (answers, outgoing) = mpsc::channel(QUEUE);
        tokio::spawn(run(request.into_inner(), answers, self.0.clone()));
        Box::pin(ready(Ok(Response::new(ReceiverStream::new(outgoing)))))
    }
}

/// Answers the requests of a stream, and sends secrets that change.
async fn run<R: Request>(
    mut requests: Streaming<R>,
    answers: mpsc::Sender<Result<R::Response, Status>>,
    Service { mut table, wanted, settings }: Service,
) {
    let mut subscription = Subscription::new(wanted, true);
    loop {
        let updated = tokio::select! {
            () = answers.closed() => return,
            request = requests.message() => match request {
                Ok(Some(request)) => subscription.update(request.update()),
                Ok(None) | Err(_) => return,
            },
            changed = table.changed() => match changed {
                Ok(()) => Ok(()),
                Err(_) => return,
            },
        };
        let next = updated.and_then(|()| subscription.next(&table.borrow_and_update()));
        let (answer, ends) = match next {
            Ok(None) => continue,
            Ok(Some(changes)) => (Ok(R::response(&changes, settings.key_provider.as_ref())), false),
            Err(status) => {
                tracing::warn!(reason = status.message(), "a stream of secrets ends");
                (Err(status), true)
            }
        };
        if answers.send(answer).await.is_err() || ends {
            return;
        }
    }
}
