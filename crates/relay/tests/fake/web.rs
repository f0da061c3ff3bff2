//! A web server that answers with a function.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub type Answer = Response<Full<Bytes>>;

/// The server. It ends when it is dropped.
pub struct Web {
    pub address: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Web {
    /// Starts a server. `answer` gets the address of the server, the path with its query, and the headers.
    pub async fn start(answer: impl Fn(SocketAddr, &str, &HeaderMap) -> Answer + Send + Sync + 'static) -> Web {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (paths, answer, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer), JoinSet::new());
        let seen: Arc<Mutex<Vec<String>>> = paths.clone();
        tasks.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (answer, seen) = (answer.clone(), seen.clone());
                tokio::spawn(async move {
                    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                        seen.lock().unwrap().push(path.to_owned());
                        let response = answer(address, path, request.headers());
                        async { Ok::<_, Infallible>(response) }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Web { address, paths, _tasks: tasks }
    }

    /// The paths that were requested.
    pub fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

pub fn ok(body: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(body.into()))
}

pub fn status(code: u16) -> Answer {
    Response::builder().status(code).body(Full::default()).unwrap()
}
