//! Lists, errors and unreachable servers, over a socket.

use std::convert::Infallible;
use std::sync::Arc;

use clap::Command;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::failure::{StatusError, Unreachable};

type Answer = dyn Fn(&str) -> (u16, Json) + Send + Sync;

/// Starts a server that answers by path and query; returns its URL.
async fn serving(answer: impl Fn(&str) -> (u16, Json) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer: Arc<Answer> = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let path = request.uri().path_and_query().map_or("", |path| path.as_str()).to_owned();
                let (code, body) = answer(&path);
                async move {
                    let response = hyper::Response::builder()
                        .status(code)
                        .header("warning", "299 - \"it is old\"")
                        .body(Full::new(Bytes::from(body.to_string())))
                        .unwrap();
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    url
}

async fn connected(url: &str, io: &Io) -> Server {
    let matches = arguments(Command::new("x")).get_matches_from(["x", "--server", url]);
    Server::connect(&matches, io).await.unwrap()
}

fn quiet() -> Io {
    Io::to(std::io::sink(), std::io::sink())
}

fn page(items: &[u32], token: &str) -> (u16, Json) {
    let meta = json!({"resourceVersion": "7", "continue": token, "remainingItemCount": 1});
    (200, json!({"kind": "List", "metadata": meta, "items": items}))
}

fn expired() -> (u16, Json) {
    (410, json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
}

#[tokio::test]
async fn the_pages_of_a_list_are_joined() {
    let url = serving(|path| match path {
        "/all?limit=500" => page(&[1, 2], "more"),
        "/all?limit=500&continue=more" => page(&[3], ""),
        other => panic!("{other}"),
    })
    .await;
    let list = connected(&url, &quiet()).await.list(Request::get("/all")).await.unwrap();
    assert_eq!(list, json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [1, 2, 3]}));
}

#[tokio::test]
async fn an_expired_continue_token_causes_one_full_list() {
    let url = serving(|path| match path {
        "/all?limit=500" => page(&[1], "more"),
        "/all?limit=500&continue=more" => expired(),
        "/all" => page(&[1, 2], ""),
        other => panic!("{other}"),
    })
    .await;
    let list = connected(&url, &quiet()).await.list(Request::get("/all")).await.unwrap();
    assert_eq!(list["items"], json!([1, 2]));
}

#[tokio::test]
async fn errors_and_warnings_are_returned() {
    let url = serving(|_| (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}))).await;
    let io = quiet();
    let server = connected(&url, &io).await;
    let error = server.get("/x").await.unwrap_err();
    assert_eq!(error.downcast_ref::<StatusError>().unwrap().status.message, "no");
    assert_eq!(io.warnings().take(), ["it is old"]);
}

#[tokio::test]
async fn an_unreachable_server_has_its_own_error() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = connected(&format!("http://{address}"), &quiet()).await;
    let error = server.get("/x").await.unwrap_err();
    assert!(error.downcast_ref::<Unreachable>().unwrap().named);
    assert!(error.to_string().contains("rutter serve"), "{error}");
}
