//! Errors, limits and back pressure of the relay.
#![allow(clippy::unwrap_used)]

mod fake;

use std::os::unix::net::UnixListener;

use bytes::Bytes;
use fake::ads::Ads;
use fake::client::{Client, SOTW, Stream};
use fake::{LISTENERS, NAMES, Running, until};
use protos::Any;
use relay::RelayError;

const WORKLOADS: &str = "type.googleapis.com/istio.workload.Workload";

async fn stream(relay: &Running) -> Stream {
    Client::connect(&relay.socket()).await.open(SOTW).await
}

fn resource(size: usize) -> Any {
    Any { type_url: "t".to_owned(), value: vec![7; size].into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_either_side_end_the_stream_with_a_status() {
    let ads = Ads::start().await;
    let relay = Running::start(ads.address, |_| {});
    let unknown = Client::connect(&relay.socket()).await.open("/grpc.health.v1.Health/Check").await.status().await;
    assert_eq!(unknown, (12, "the%20agent%20serves%20the%20aggregated%20discovery%20service%20only".to_owned()));
    for (bytes, code) in [
        (&b"\x01\0\0\0\x01x"[..], 12),
        (b"\0\x7f\xff\xff\xff", 8),
        // A field that ends too early.
        (b"\0\0\0\0\x02\x22\x09", 3),
    ] {
        let mut stream = stream(&relay).await;
        stream.send(Bytes::from_static(bytes)).await;
        assert_eq!(stream.status().await.0, code, "{bytes:?}");
    }
    ads.refuse(16, "no token");
    assert_eq!(stream(&relay).await.status().await, (16, "no%20token".to_owned()));
    assert_eq!(relay.metric("istiod_connection_terminations", "error"), 1.0);
    drop(ads);
    let (code, message) = stream(&relay).await.status().await;
    assert!(code == 14 && message.contains("cannot%20connect"), "{code} {message}");
    assert_eq!(relay.metric("istiod_connection_failures", ""), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_types_of_proxies_are_forwarded() {
    let ads = Ads::start().await;
    let relay = Running::start(ads.address, |settings| settings.names = true);
    for type_url in [NAMES, "type.googleapis.com/istio.other", WORKLOADS, LISTENERS] {
        ads.set(type_url, vec![("r", resource(1))]);
    }
    let mut stream = stream(&relay).await;
    // The proxy's own request for the name table is dropped: only one arrives, after the one for listeners.
    stream.request(NAMES, "forged").await;
    stream.request("type.googleapis.com/istio.other", "").await;
    stream.request(WORKLOADS, "").await;
    let forwarded = stream.next().await;
    assert_eq!((&*forwarded.type_url, forwarded.resources), (WORKLOADS, vec![resource(1)]));
    stream.request(LISTENERS, "").await;
    assert_eq!(stream.next().await.type_url, LISTENERS);
    // The resource is no name table: the agent rejects it.
    until("the NACK", None, async || ads.requests(NAMES).iter().any(|seen| seen.error.is_some()).then_some(())).await;
    assert!(ads.requests(NAMES).iter().all(|seen| seen.nonce != "forged"));
    assert!(relay.names.borrow().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_does_not_read_stops_the_control_plane() {
    const TYPES: usize = 60;
    const SIZE: usize = 1 << 20;
    let ads = Ads::start().await;
    let relay = Running::start(ads.address, |_| {});
    let types: Vec<String> = (0..TYPES).map(|index| format!("type.googleapis.com/envoy.t{index:02}")).collect();
    for type_url in &types {
        ads.set(type_url, vec![("r", resource(SIZE))]);
    }
    let mut stream = stream(&relay).await;
    for type_url in &types {
        stream.request(type_url, "").await;
    }
    // Nothing more is sent when all buffers are full.
    let (mut last, mut same) = (0, 0);
    until("the pause", None, async || {
        same = if ads.sent() == last && last > 0 { same + 1 } else { 0 };
        last = ads.sent();
        (same > 20).then_some(())
    })
    .await;
    assert!(last < TYPES / 2, "{last} of {TYPES} responses were sent");
    let mut read = Vec::new();
    for _ in &types {
        let response = stream.next().await;
        assert_eq!(response.resources[0].value.len(), SIZE);
        read.push(response.type_url);
    }
    read.sort();
    assert_eq!(read, types);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_limited() {
    let ads = Ads::start().await;
    let relay = Running::start(ads.address, |_| {});
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(&relay.socket()).await;
        for _ in 0..8 {
            streams.push(client.open(SOTW).await);
        }
    }
    assert_eq!(stream(&relay).await.status().await.0, 8);
    drop(streams);
    ads.set(WORKLOADS, vec![("r", resource(1))]);
    until("a free stream", None, async || {
        let mut stream = stream(&relay).await;
        stream.request(WORKLOADS, "").await;
        stream.try_next().await
    })
    .await;
}

#[tokio::test]
async fn an_old_socket_is_replaced_and_a_file_is_not() {
    let ads = Ads::start().await;
    let other = tempfile::tempdir().unwrap();
    let path = other.path().join("XDS");
    drop(UnixListener::bind(&path).unwrap());
    let relay = Running::start(ads.address, |settings| settings.socket.clone_from(&path));
    Client::connect(&path).await;
    drop(relay);
    let file = other.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let channels = |socket| {
        let mut settings = relay::Settings::from_environment(&Default::default()).unwrap();
        settings.socket = socket;
        let (names, roots) = (tokio::sync::watch::Sender::new(None), tokio::sync::watch::Sender::default());
        let health = tokio::sync::watch::Sender::default().subscribe();
        (settings, relay::Channels { names, roots, health })
    };
    let (settings, channels) = channels(file.clone());
    let upstream = fake::upstream(ads.address, None);
    let stop = tokio::sync::watch::Sender::new(false).subscribe();
    let error = relay::start(&settings, upstream, channels, &prometheus::Registry::new(), stop).err().unwrap();
    assert!(matches!(&error, RelayError::Socket { .. }) && error.to_string().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "content");
}
