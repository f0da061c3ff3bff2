//! The responses of the service: HTTP/1.1, HTTP/2, gRPC, and upgraded connections.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::sync::watch;

use super::State;

/// The maximum size of an echoed gRPC message, in bytes.
const MESSAGE_LIMIT: usize = 1 << 20;
/// The gRPC status `UNAVAILABLE`.
const UNAVAILABLE: u64 = 14;

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Answers a request. An error makes the server close the connection without a response.
pub(super) async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<Answer> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let asked = |name: &str| request.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
    let (status, grpc_status) = (asked("x-ask-status"), asked("x-ask-grpc-status"));
    let delay = asked("x-ask-delay-ms").unwrap_or_else(|| state.delay_millis.load(Ordering::Relaxed));
    if delay > 0 {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    state.pass_gate().await;
    if state.reset.load(Ordering::Relaxed) {
        return Err(std::io::ErrorKind::ConnectionReset.into());
    }
    let failing = state.failures.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    if text(request.headers(), "content-type").starts_with("application/grpc") {
        let status = if failing { Some(UNAVAILABLE) } else { grpc_status };
        return grpc(request, &state, status.unwrap_or(0)).await;
    }
    let status = match (failing, status, state.status.load(Ordering::Relaxed)) {
        (true, _, _) => 503,
        (false, Some(asked), _) => asked as u16,
        (false, None, 0) => 200,
        (false, None, set) => set,
    };
    if status == 200 && request.headers().contains_key("upgrade") {
        return Ok(upgraded(request, &state, stopped));
    }
    let (request, mut body) = request.into_parts();
    // A response before the end of a request would let proxies stop sending it.
    while let Some(frame) = body.frame().await {
        frame.map_err(std::io::Error::other)?;
    }
    Ok(described(&request, &state, status))
}

/// Describes the instance and the request.
fn described(request: &Parts, state: &State, status: u16) -> Answer {
    let headers: serde_json::Map<String, serde_json::Value> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let body = json!({
        "version": state.version,
        "instance": state.instance,
        "protocol": format!("{:?}", request.version),
        "method": request.method.as_str(),
        "path": request.uri.path_and_query().map_or("", |p| p.as_str()),
        "headers": headers,
    });
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    signed(state, status, Full::new(Bytes::from(body.to_string())).boxed())
}

/// Echoes the message, followed by the status. An error status is sent without a message, as gRPC servers do.
async fn grpc(request: Request<Incoming>, state: &State, status: u64) -> std::io::Result<Answer> {
    let message = Limited::new(request.into_body(), MESSAGE_LIMIT).collect().await;
    let message = message.map_err(std::io::Error::other)?.to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    let mut response = match status {
        0 => {
            // Distinguishes these trailers from those that a proxy may write.
            trailers.insert("x-last", "yes".parse().map_err(std::io::Error::other)?);
            let body = Full::new(message).with_trailers(ready(Some(Ok(trailers))));
            signed(state, StatusCode::OK, body.boxed())
        }
        _ => {
            let mut response = signed(state, StatusCode::OK, Empty::new().boxed());
            response.headers_mut().extend(trailers);
            response
        }
    };
    let content = "application/grpc".parse().map_err(std::io::Error::other)?;
    response.headers_mut().insert("content-type", content);
    Ok(response)
}

/// Accepts an upgrade and echoes all bytes of the connection.
fn upgraded(request: Request<Incoming>, state: &State, mut stopped: watch::Receiver<bool>) -> Answer {
    let mut response = signed(state, StatusCode::SWITCHING_PROTOCOLS, Empty::new().boxed());
    let headers = response.headers_mut();
    headers.extend(request.headers().get("upgrade").cloned().map(|to| (hyper::header::UPGRADE, to)));
    headers.insert("connection", hyper::header::HeaderValue::from_static("upgrade"));
    tokio::spawn(async move {
        let Ok(connection) = hyper::upgrade::on(request).await else {
            return;
        };
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(connection));
        tokio::select! {
            _ = tokio::io::copy(&mut reader, &mut writer) => {}
            _ = stopped.changed() => {}
        }
    });
    response
}

fn signed(state: &State, status: StatusCode, body: BoxBody<Bytes, Infallible>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [("x-version", &state.version), ("x-instance", &state.instance)] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
