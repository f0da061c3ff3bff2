//! The HTTP ports of the node agent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listeners::{Limits, Usage, accept};
use tokio::net::TcpListener;
use tokio::sync::watch;

const LIMITS: Limits = Limits::of(100);

/// Serves a port until `stop` is true or closed. `answer` maps a path to a status and a body.
pub(crate) async fn serve(
    listener: TcpListener,
    what: &'static str,
    answer: impl Fn(&str) -> (StatusCode, String) + Send + Sync + 'static,
    stop: watch::Receiver<bool>,
) {
    let answer = Arc::new(answer);
    accept(
        what,
        LIMITS,
        |context| listener.poll_accept(context),
        stop.clone(),
        |(stream, _): (_, SocketAddr), usage| {
            let (answer, mut stop) = (answer.clone(), stop.clone());
            async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let open = usage.begin();
                    let (status, body) = answer(request.uri().path());
                    let mut response = Response::new(Full::new(Bytes::from(body)));
                    *response.status_mut() = status;
                    std::future::ready(Ok::<_, Infallible>(Usage::count(response, open)))
                });
                let connection =
                    http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
                let mut connection = std::pin::pin!(connection);
                // A client that breaks its connection is of no interest.
                tokio::select! {
                    _ = connection.as_mut() => return,
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        },
    )
    .await;
}
