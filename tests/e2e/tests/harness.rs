//! Tests of the test harness.

use std::time::Duration;

use e2e::envoy_binary;
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port, http};

#[tokio::test]
async fn the_harness_starts_envoy_without_a_control_plane() -> Result<()> {
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let envoy = Envoy::start(envoy_binary(), &node, protocol, nobody).await?;
        assert_eq!(envoy.stat("^control_plane.connected_state$").await?, 0);
        assert_eq!(envoy.discovery_bytes().await?, 0);
        assert_eq!(envoy.endpoints("xds-grpc").await?, Some(vec![nobody.to_string()]));
        assert_eq!(envoy.endpoints("none").await?, None);
        assert!(envoy.routes().await?.is_empty() && envoy.listeners().await?.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn the_traffic_generator_counts_versions_and_failures() -> Result<()> {
    let backend = Backend::start("v1", "one").await?;
    let traffic = Traffic::start(backend.address(), "/", &[], 1000, 4);
    let counts = traffic.next(100).await?;
    assert_eq!((counts.errors, counts.share("v1")), (0, 1.0));
    assert_eq!(counts.by_instance.len(), 1);
    backend.fail_next(7);
    while backend.requests() < 300 {
        traffic.next(10).await?;
    }
    assert_eq!(traffic.counts().errors, 7);
    backend.reset(true);
    let reset = traffic.next(50).await?;
    assert!(reset.errors >= 40, "{reset:?}");
    backend.reset(false);
    traffic.next(10).await?;
    let counts = traffic.next(100).await?;
    assert_eq!(counts.errors, 0, "it recovers: {counts:?}");
    let total = traffic.stop().await;
    assert_eq!(total.requests, backend.requests());
    Ok(())
}

#[tokio::test]
async fn the_test_backend_reports_its_name_and_fails_on_request() -> Result<()> {
    let backend = Backend::start("v2", "two").await?;
    let answer = http::get(backend.address(), "/a?b=c", &[("x-thing", "7")]).await?;
    assert_eq!((answer.status.as_u16(), answer.header("x-version"), answer.header("x-instance")), (200, "v2", "two"));
    let body = answer.json()?;
    assert_eq!((body["path"].as_str(), body["headers"]["x-thing"].as_str()), (Some("/a?b=c"), Some("7")));
    assert_eq!(http::get(backend.address(), "/", &[("x-ask-status", "418")]).await?.status, 418);
    backend.delay(Duration::from_millis(80));
    let begin = std::time::Instant::now();
    http::get(backend.address(), "/", &[]).await?;
    assert!(begin.elapsed() >= Duration::from_millis(80));
    assert_eq!(backend.requests(), 3);
    Ok(())
}
