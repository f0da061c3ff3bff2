//! The life of a connection: checks, shutdown, clients that do not read, and streams that end early.

use std::sync::Mutex;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use http2_server::{Keepalive, RequestBody, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::frames::*;

const CHECKED: Settings = Settings {
    keepalive: Some(Keepalive { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) }),
    ..FEW
};

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_is_disconnected() {
    let mut bench = Bench::start(CHECKED, 1 << 10);
    let start = tokio::time::Instant::now();
    bench.send(&hello()).await;
    bench.until("ping alive").await;
    assert_eq!(start.elapsed().as_secs(), 30);
    // Any frame is an answer.
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.send(&frame(PING, 0, 0, &[0; 8])).await;
    bench.until("ping alive").await;
    assert_eq!(start.elapsed().as_secs(), 65, "30 seconds after the last frame");
    assert_eq!(bench.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 75);
    assert_eq!(bench.server.await.expect("no panic").map_err(|error| error.kind()), Err(std::io::ErrorKind::TimedOut));
}

/// Sends pings without reading until the server does not read them.
async fn flood(bench: &mut Bench) {
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(10_000);
    tokio::select! {
        biased;
        _ = bench.client.write_all(&pings) => panic!("170 KB are not taken"),
        () = async { for _ in 0..1000 { tokio::task::yield_now().await } } => {}
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_but_its_requests_are_served() {
    let (start, started) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel::<()>();
    let waiting = Mutex::new(Some((started, end)));
    let mut bench = Bench::serve(FEW, 1 << 10, move |request| {
        let (started, end) = waiting.lock().expect("not poisoned").take().expect("one request");
        async move {
            started.await.expect("the test starts it");
            end.send(()).expect("the test waits");
            echo(request).await
        }
    });
    bench.send(&[hello(), post(1)].concat()).await;
    flood(&mut bench).await;
    start.send(()).expect("the service waits");
    ended.await.expect("the service goes on");
}

#[tokio::test]
async fn a_stream_that_ends_within_a_frame_does_not_hurt_others() {
    let mut bench = Bench::start(FEW, 4 << 10);
    let body = frame(DATA, 0, 1, &[7; 10 << 10]);
    let (mut reader, mut writer) = tokio::io::split(bench.client);
    let sending = tokio::spawn(async move {
        writer.write_all(&[hello(), post(1), body].concat()).await.expect("read");
        writer
    });
    // The response does not fit into the connection, so that its frame is begun.
    let mut first = [0; 3 << 10];
    reader.read_exact(&mut first).await.expect("a part of the response");
    let mut writer = sending.await.expect("no panic");
    writer.write_all(&[frame(RST_STREAM, 0, 1, &[0; 4]), get(3)].concat()).await.expect("read");
    // All bytes are frames, of which the begun one is whole.
    bench.client = tokio::io::duplex(1).0;
    let mut received = first.to_vec();
    let mut frames = Vec::new();
    loop {
        while let Some((head, rest)) = received.split_first_chunk::<9>()
            && let length = usize::from(head[1]) << 8 | usize::from(head[2])
            && rest.len() >= length
        {
            frames.push(describe(head[3], head[4], u32::from(head[8]), &rest[..length]));
            received.drain(..9 + length);
        }
        if frames.contains(&"headers 3 end".to_owned()) {
            break;
        }
        let mut more = [0; 512];
        let count = reader.read(&mut more).await.expect("open");
        assert!(count > 0, "the end after {frames:?}");
        received.extend_from_slice(&more[..count]);
    }
    assert!(frames.contains(&"headers 1".to_owned()), "{frames:?}");
    assert!(received.is_empty());
}

#[tokio::test]
async fn a_shutdown_waits_for_the_streams_that_are_open() {
    let (client, socket) = tokio::io::duplex(1 << 16);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let mut connection = http2_server::Connection::new(socket, FEW, echo);
        tokio::select! {
            ended = &mut connection => return ended,
            _ = &mut stopped => connection.graceful_shutdown(),
        }
        connection.await
    });
    let mut bench = Bench { client, server };
    bench.send(&[hello(), post(1)].concat()).await;
    assert_eq!(bench.until("headers 1").await, ["settings", "settings ack", "headers 1"]);
    stop.send(()).expect("the server waits");
    assert_eq!(bench.until("ping shutdown").await, ["goaway 2147483647 0", "ping shutdown"]);
    // A request that was under way is served, one that comes later is not.
    bench.send(&[get(3), frame(PING, ACK, 0, b"shutdown"), get(5), frame(DATA, END, 1, b"abc")].concat()).await;
    let mut rest = Vec::new();
    while let Some(frame) = bench.next().await {
        rest.push(frame);
    }
    rest.sort();
    assert_eq!(rest, ["data 1 0 end", "data 1 3", "goaway 3 0", "headers 3 end"]);
    assert!(bench.server.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn a_client_that_goes_away_is_served_until_its_streams_end() {
    let mut bench = Bench::start(FEW, 1 << 16);
    bench.send(&[hello(), post(1), frame(GOAWAY, 0, 0, &[0; 8]), frame(DATA, END, 1, b"abc")].concat()).await;
    let frames = bench.until("data 1 0 end").await;
    assert_eq!(frames[2..], ["goaway 1 0", "headers 1", "data 1 3", "data 1 0 end"]);
    assert_eq!(bench.next().await, None);
    assert!(bench.server.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn a_panic_ends_only_its_stream() {
    let mut bench = Bench::serve(FEW, 1 << 16, |request| async move {
        assert!(request.method() == Method::GET, "a panic of the test");
        echo(request).await
    });
    bench.send(&[hello(), post(1), get(3)].concat()).await;
    assert_eq!(bench.until("headers 3 end").await[2..], ["reset 1 2", "headers 3 end"]);
}

#[tokio::test]
async fn a_body_that_is_not_read_does_not_stop_other_streams() {
    let settings = Settings { window: 64 << 10, ..FEW };
    let mut bench = Bench::serve(settings, 1 << 20, |request: Request<RequestBody>| async move {
        let is_read = request.method() == Method::POST;
        let mut body = request.into_body();
        while is_read && body.frame().await.is_some() {}
        std::future::pending::<()>().await;
        Response::new(body)
    });
    let unread = frame(HEADERS, END_HEADERS, 1, b"\x82\x86\x84");
    let body = frame(DATA, 0, 1, &[0; 16 << 10]).repeat(4);
    bench.send(&[hello(), unread, post(3), body].concat()).await;
    // The rest of the window of the connection.
    bench.send(&frame(DATA, 0, 3, &[0; 16 << 10]).repeat(2)).await;
    assert_eq!(
        bench.until("window 0 32768").await,
        ["settings", "window 0 65537", "settings ack", "window 3 32768", "window 0 32768"]
    );
}

#[tokio::test]
async fn a_response_without_data_and_trailers_ends() {
    let mut bench = Bench::serve(FEW, 1 << 16, |_| async {
        let trailers =
            Ok::<_, std::convert::Infallible>(http_body::Frame::<bytes::Bytes>::trailers(http::HeaderMap::new()));
        Response::new(http_body_util::StreamBody::new(futures::stream::iter([trailers])))
    });
    bench.send(&[hello(), get(1)].concat()).await;
    assert_eq!(bench.until("data 1 0 end").await[2..], ["headers 1", "data 1 0 end"]);
}

#[tokio::test]
async fn a_goaway_does_not_promise_more_than_the_one_before() {
    let mut bench = Bench::start(FEW, 1 << 16);
    bench.send(&[hello(), post(1), frame(GOAWAY, 0, 0, &[0; 8]), get(3), frame(DATA, 0, 0, b"")].concat()).await;
    assert_eq!(bench.until("goaway 1 1").await[2..], ["goaway 1 0", "goaway 1 1"]);
}
