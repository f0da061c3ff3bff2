//! Readiness.

use std::sync::{Arc, Mutex};

use agent_core::exchange::NameTable;

use crate::support::{Port, Server, response, settings};

const READY: &str = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\nserver.state: 0\n\
                     listener_manager.workers_started: 1\n";

#[tokio::test]
async fn envoy_is_asked_until_it_is_ready() {
    let statistics = Arc::new(Mutex::new((503, "")));
    let source = statistics.clone();
    let envoy = Server::plain(false, move |_| {
        let (status, text) = *source.lock().unwrap();
        response(status, &[], text)
    })
    .await;
    let mut settings = settings();
    settings.admin = Some(envoy.address);
    let port = Port::open(settings).await;
    for (status, text, expected) in [
        (503, "", "Envoy's statistics cannot be read: status 503 Service Unavailable\n"),
        (200, "server.state: 2\n", "config not received from XDS server (is Istiod running?): "),
        (200, "listener_manager.lds.update_success: 1\n", "config not fully received from XDS server: "),
    ] {
        *statistics.lock().unwrap() = (status, text);
        // A failure counts for a moment.
        let answer = loop {
            let answer = port.get("/healthz/ready").await;
            if answer.text().starts_with(expected) {
                break answer;
            }
        };
        assert_eq!(answer.status, 503);
    }
    *statistics.lock().unwrap() = (200, READY);
    while port.get("/healthz/ready").await.status != 200 {}
    let asked = envoy.seen();
    assert!(asked[0].path.starts_with("/stats?usedonly&filter="), "{}", asked[0].path);
    *statistics.lock().unwrap() = (503, "");
    for method in ["GET", "HEAD"] {
        let answer = port.ask(method, "/healthz/ready", &[]).await;
        assert_eq!((answer.status, answer.text()), (200, String::new()));
    }
    assert!(envoy.seen().is_empty(), "Envoy is not asked again");
    let metrics = port.get("/metrics").await.text();
    assert!(metrics.contains("istio_agent_startup_duration_seconds 0."), "{metrics}");
    port.obstacle.send_replace(Some("the proxy is draining"));
    let answer = port.get("/healthz/ready").await;
    assert_eq!((answer.status, &*answer.text()), (503, "the proxy is draining\n"));
}

#[tokio::test]
async fn a_storm_of_probes_asks_envoy_once() {
    let envoy = Server::plain(false, |_| response(200, &[], "server.state: 2\n")).await;
    let mut settings = settings();
    settings.admin = Some(envoy.address);
    let port = Port::open(settings).await;
    let storm = (0..50).map(|_| port.get("/healthz/ready"));
    let answers = futures::future::join_all(storm).await;
    assert!(answers.iter().all(|answer| answer.status == 503));
    assert!(envoy.seen().len() < 10, "{} requests", envoy.seen().len());
}

#[tokio::test]
async fn names_and_files_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let (bootstrap, key) = (folder.path().join("bootstrap.json"), folder.path().join("key.pem"));
    let mut settings = settings();
    settings.grpc_bootstrap = Some(bootstrap.clone());
    let port = Port::open_with(settings, Some(None)).await;
    let reason = async || {
        let answer = port.get("/healthz/ready").await;
        (answer.status == 503).then(|| answer.text())
    };
    assert!(reason().await.unwrap().contains("bootstrap.json: No such file"));
    std::fs::write(&bootstrap, "{").unwrap();
    assert!(reason().await.unwrap().contains("bootstrap.json: EOF while parsing"));
    let provider = serde_json::json!({"plugin_name": "file_watcher", "config": {"private_key_file": key}});
    std::fs::write(&bootstrap, serde_json::json!({"certificate_providers": {"default": provider}}).to_string())
        .unwrap();
    assert!(reason().await.unwrap().contains("key.pem does not exist"));
    std::fs::write(&key, "").unwrap();
    assert_eq!(reason().await.unwrap(), "istio DNS capture is turned ON and DNS lookup table is not ready yet\n");
    port.names.send_replace(Some(Arc::new(NameTable::default())));
    assert_eq!(reason().await, None);
}
