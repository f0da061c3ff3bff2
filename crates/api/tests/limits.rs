//! Limits of clients, and the responses to clients that exceed them.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use api::server::ServerLimits;
use serde_json::json;
use support::{Fixture, Reply, Request, Setting, exchange, read};
use tokio::io::AsyncWriteExt as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, bytes: usize) -> String {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": "x".repeat(bytes) } })
        .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_have_a_size() {
    let fixture = Fixture::start(Setting::default()).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |name: &str, bytes: usize| {
        let container = json!({ "name": "c", "image": "nginx", "args": ["x".repeat(bytes)] });
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } });
        let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": spec }).to_string()
    };
    assert_eq!(fixture.send("POST", path, &deployment("fits", 1_568_000)).await.status, 201);
    let (code, reason, message) = fixture.send("POST", path, &deployment("large", 1_573_000)).await.failure();
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"));
    assert!(message.contains("deployments"), "{message}");
    // A patch that makes it too large, too.
    let request = Request {
        method: "PATCH".into(),
        path: format!("{path}/fits").into(),
        headers: vec![("Content-Type".into(), "application/merge-patch+json".into())],
        body: json!({ "metadata": { "annotations": { "a": "x".repeat(10_000) } } }).to_string().into(),
    };
    assert_eq!(fixture.raw(&request.bytes()).await.failure().0, 413);
    // ConfigMaps and Secrets have less, and say so.
    let (code, _, message) = fixture.send("POST", MAPS, &map("large", 1_100_000)).await.failure();
    assert_eq!(code, 422);
    assert!(message.contains("Too long: may not be more than 1048576 bytes"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_have_a_size() {
    let fixture = Fixture::start(Setting::default()).await;
    let announced = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n";
    let (code, _, message) = exchange(fixture.connect().await, announced, None).await.failure();
    assert_eq!((code, message.as_str()), (413, "Request entity too large: limit is 3145728"));
    let mut chunked =
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..4 {
        chunked.extend_from_slice(b"100000\r\n");
        chunked.extend(vec![b' '; 0x10_0000]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(exchange(fixture.connect().await, &chunked, None).await.failure().0, 413);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_requests_get_retry_after() {
    let setting =
        Setting { server: ServerLimits { rate: 0.01, burst: 3.0, ..ServerLimits::default() }, ..Setting::default() };
    let fixture = Fixture::start(setting).await;
    for _ in 0..3 {
        assert_eq!(fixture.send("GET", MAPS, "").await.status, 200);
    }
    let reply = fixture.send("GET", MAPS, "").await;
    assert_eq!(reply.failure().0, 429);
    assert_eq!(reply.failure().1, "TooManyRequests");
    let seconds: u64 = reply.header("retry-after")[0].parse().unwrap();
    assert!((1..=100).contains(&seconds), "{seconds}");
    assert_eq!(reply.json()["details"]["retryAfterSeconds"], seconds);
    assert_eq!(fixture.api.metrics().limited, 1);
    // Others do not wait.
    let other = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer reader-token\r\nConnection: close\r\n\r\n";
    assert_eq!(fixture.raw(other).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_only_so_many_watches() {
    let mut setting = Setting::default();
    setting.api.watches = 1;
    let fixture = Fixture::start(setting).await;
    let watch =
        format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer reader-token\r\n\r\n");
    assert_eq!(fixture.send("POST", MAPS, &map("a", 1)).await.status, 201);
    let mut open = fixture.connect().await;
    open.write_all(watch.as_bytes()).await.unwrap();
    assert_eq!(read(&mut open, Some(1)).await.status, 200);
    let reply = exchange(fixture.connect().await, watch.as_bytes(), None).await;
    assert_eq!(reply.failure().0, 429);
    assert_eq!(reply.header("retry-after"), ["5"]);
}

/// A request of a user whose body does not come.
fn unfinished(method: &str, path: &str, user: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {user}-token\r\nContent-Type: \
         application/json\r\nContent-Length: 10\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_their_bodies_do_not_lock_out_others() {
    let server = ServerLimits {
        requests: 8,
        requests_per_user: 4,
        place_within: Duration::from_millis(100),
        ..ServerLimits::default()
    };
    let fixture = Fixture::start(Setting { server, ..Setting::default() }).await;
    // A viewer may not write: refused before the body.
    let reply = exchange(fixture.connect().await, unfinished("POST", MAPS, "viewer").as_bytes(), None).await;
    assert_eq!(reply.failure().0, 403);
    // The body of a read is not read.
    let read_with_body = unfinished("GET", "/api/v1/namespaces/a/configmaps", "viewer");
    assert_eq!(exchange(fixture.connect().await, read_with_body.as_bytes(), None).await.status, 200);
    // An editor uses up the places of one user.
    let mut open = Vec::new();
    let write = unfinished("POST", "/api/v1/namespaces/a/configmaps", "editor");
    for _ in 0..4 {
        let mut stream = fixture.connect().await;
        stream.write_all(write.as_bytes()).await.unwrap();
        open.push(stream);
    }
    let more =
        "GET /api/v1/namespaces/a/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer editor-token\r\n\r\n";
    let wait_until_refused =
        async { while exchange(fixture.connect().await, more.as_bytes(), None).await.status != 429 {} };
    tokio::time::timeout(support::PATIENCE, wait_until_refused).await.unwrap();
    for user in ["viewer", "admin"] {
        let read = more.replace("editor", user);
        assert_eq!(exchange(fixture.connect().await, read.as_bytes(), None).await.status, 200, "{user}");
    }
    let health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(exchange(fixture.connect().await, health, None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watches_of_a_user_do_not_lock_out_others() {
    let mut setting = Setting::default();
    (setting.api.watches, setting.api.watches_per_user) = (2, 1);
    let fixture = Fixture::start(setting).await;
    assert_eq!(fixture.send("POST", MAPS, &map("a", 1)).await.status, 201);
    let watch = |user: &str| {
        format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {user}-token\r\n\r\n")
    };
    let mut open = fixture.connect().await;
    open.write_all(watch("reader").as_bytes()).await.unwrap();
    assert_eq!(read(&mut open, Some(1)).await.status, 200);
    assert_eq!(exchange(fixture.connect().await, watch("reader").as_bytes(), None).await.failure().0, 429);
    assert_eq!(exchange(fixture.connect().await, watch("admin").as_bytes(), Some(1)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_request_are_closed_and_replaced() {
    let connections = listeners::Limits {
        shared: None,
        connections: 2,
        first_request: Duration::from_millis(200),
        idle: Duration::from_millis(200),
    };
    let fixture = Fixture::start(Setting {
        server: ServerLimits { connections, ..ServerLimits::default() },
        ..Setting::default()
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(fixture.connect().await);
    }
    assert_eq!(fixture.send("GET", MAPS, "").await.status, 200, "it replaces one of them");
    for mut stream in silent {
        assert_eq!(read(&mut stream, None).await.status, 0, "closed without an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_http_ends_only_its_connection() {
    let fixture = Fixture::start(Setting::default()).await;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(200));
    for (bytes, codes) in [
        (&b"\x00\x01\x02 nonsense\r\n\r\n"[..], &[400, 0][..]),
        (b"GET /api/v1/namespaces/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        (b"GET /api/v1/namespaces?labelSelector=\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        (b"GET /api/v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n", &[400]),
        (
            b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: \
              chunked\r\n\r\nzz\r\n",
            &[400, 0],
        ),
        (b"GET /api/v1 HTTP/9.9\r\n\r\n", &[400, 505, 0]),
        (long.as_bytes(), &[431, 0]),
        (many.as_bytes(), &[431]),
    ] {
        let reply = fixture.raw(bytes).await;
        assert!(
            codes.contains(&reply.status),
            "{} for {}",
            reply.status,
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
    assert_eq!(fixture.send("GET", MAPS, "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_cut_short_writes_nothing() {
    let fixture = Fixture::start(Setting::default()).await;
    let body = map("cut", 10);
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len() + 10
    );
    let mut stream = fixture.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let reply: Reply = read(&mut stream, None).await;
    assert!([0, 400].contains(&reply.status), "{}", reply.status);
    assert_eq!(fixture.send("GET", &format!("{MAPS}/cut"), "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let setting = Setting {
        server: ServerLimits { body_within: Duration::from_millis(50), ..ServerLimits::default() },
        ..Setting::default()
    };
    let fixture = Fixture::start(setting).await;
    let head = unfinished("POST", MAPS, "admin");
    let (code, _, message) = exchange(fixture.connect().await, head.as_bytes(), None).await.failure();
    assert_eq!((code, message.as_str()), (408, "timed out while reading the body"));
}
