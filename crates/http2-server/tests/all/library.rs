//! The HTTP library as client: it compresses fields, and divides bodies by the windows.

use std::convert::Infallible;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use http2_server::{Connection, RequestBody, Settings};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;

type Parts = StreamBody<stream::Iter<std::vec::IntoIter<Result<http_body::Frame<Bytes>, Infallible>>>>;

/// Answers with the fields and the body of a request, and its length in trailers.
async fn reflect(request: Request<RequestBody>) -> Response<Parts> {
    let (head, body) = request.into_parts();
    // By another task, which must wake that of the connection.
    let body = tokio::spawn(body.collect()).await.expect("no panic").map(|body| body.to_bytes()).unwrap_or_default();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("length", HeaderValue::from(body.len()));
    let mut frames: Vec<_> = body.chunks(3000).map(|part| Ok(http_body::Frame::data(body.slice_ref(part)))).collect();
    frames.push(Ok(http_body::Frame::trailers(trailers)));
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    *response.headers_mut() = head.headers;
    response
}

/// A client whose streams have this window, and whose connection holds so many bytes.
async fn connect(window: u32, bytes: usize) -> SendRequest<Full<Bytes>> {
    let (client, socket) = tokio::io::duplex(bytes);
    let settings = Settings { max_streams: 10, window: 2 << 10, keepalive: None };
    tokio::spawn(async move { Connection::new(socket, settings, reflect).await });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(client)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Names and values that a client may send.
fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let value = prop_oneof!["[ -~]{0,40}".prop_map(String::into_bytes), prop::collection::vec(32..=255u8, 0..40)];
    let value = value.prop_map(|value| value.into_iter().filter(|byte| *byte != 127).collect());
    prop::collection::vec((prop_oneof!["x-[a-z0-9-]{1,20}", Just("x-same".to_owned())], value), 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn fields_and_bodies_arrive(
        requests in prop::collection::vec((fields(), prop_oneof![0..100usize, 0..100_000usize]), 1..8),
        window in 1..100_000u32,
        bytes in prop_oneof![9..60usize, 16..100_000usize],
    ) {
        block_on(async {
            let sender = connect(window, bytes).await;
            let calls = requests.iter().map(|(fields, length)| {
                let mut sender = sender.clone();
                async move {
                    let body: Bytes = (0..(*length).min(50 * bytes)).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
                    let mut request = Request::post("http://host/path?query").body(Full::new(body.clone())).unwrap();
                    for (name, value) in fields {
                        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
                    }
                    let sent = request.headers().clone();
                    let (head, received) = sender.send_request(request).await.unwrap().into_parts();
                    let received = received.collect().await.unwrap();
                    let length = received.trailers().unwrap()["length"].clone();
                    let mut headers = head.headers;
                    headers.remove("content-length");
                    (sent == headers, length == HeaderValue::from(body.len()), received.to_bytes() == body)
                }
            });
            for outcome in join_all(calls).await {
                assert_eq!(outcome, (true, true, true));
            }
        });
    }
}

#[test]
fn long_fields_of_a_response_are_divided() {
    block_on(async {
        let (client, socket) = tokio::io::duplex(1 << 16);
        let settings = Settings { max_streams: 10, window: 2 << 10, keepalive: None };
        let answer = |_| async {
            let mut response = Response::new(Full::new(Bytes::new()));
            response.headers_mut().insert("long", HeaderValue::from_str(&"v".repeat(40_000)).expect("a value"));
            response
        };
        tokio::spawn(async move { Connection::new(socket, settings, answer).await });
        let mut builder = Builder::new(TokioExecutor::new());
        builder.max_header_list_size(100_000);
        let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.expect("a handshake");
        tokio::spawn(connection);
        let request = Request::get("http://host/").body(Full::<Bytes>::default()).expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        assert_eq!(response.headers()["long"].len(), 40_000);
    });
}

#[test]
fn a_service_that_never_reads_does_not_stop_others() {
    block_on(async {
        let (client, socket) = tokio::io::duplex(1 << 16);
        let settings = Settings { max_streams: 10, window: 2 << 10, keepalive: None };
        // The first request is not read before its response ends.
        let answer = |request: Request<RequestBody>| async move {
            if request.uri().path() == "/ignored" {
                return Response::new(Full::new(Bytes::from("ignored")));
            }
            Response::new(Full::new(request.into_body().collect().await.expect("a body").to_bytes()))
        };
        tokio::spawn(async move { Connection::new(socket, settings, answer).await });
        let (sender, connection) =
            Builder::new(TokioExecutor::new()).handshake(TokioIo::new(client)).await.expect("open");
        tokio::spawn(connection);
        let call = |path: &'static str| {
            let mut sender = sender.clone();
            async move {
                let request = Request::post(path).body(Full::new(Bytes::from(vec![7; 100_000]))).expect("a request");
                Ok::<_, hyper::Error>(sender.send_request(request).await?.into_body().collect().await?.to_bytes().len())
            }
        };
        for _ in 0..20 {
            let ended = futures::join!(call("http://host/ignored"), call("http://host/read"));
            assert_eq!(ended.0.ok(), Some(7));
            assert_eq!(ended.1.ok(), Some(100_000));
        }
    });
}
