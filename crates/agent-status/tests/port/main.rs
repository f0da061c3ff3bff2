//! Tests of the status port with real sockets on loopback.

#![allow(clippy::unwrap_used)]

mod commands;
mod envoy;
mod metrics;
mod probes;
mod readiness;
mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use agent_core::exchange::Event;
use agent_core::exchange::NameTable;
use agent_status::{StartError, start};
use protos::istio::networking::nds::v1::name_table::NameInfo;
use support::{Port, ask, settings};

#[tokio::test]
async fn commands_reach_the_agent() {
    let mut port = Port::open(settings()).await;
    for (path, event) in [("/drain", Event::Drain), ("/quitquitquit", Event::Quit)] {
        let refused = port.get(path).await;
        assert_eq!((refused.status, &*refused.text()), (405, "Method Not Allowed\n"));
        for _ in 0..10 {
            let accepted = port.ask("POST", path, &[]).await;
            assert_eq!((accepted.status, &*accepted.text()), (200, "OK"), "a full channel is no error");
        }
        for _ in 0..4 {
            assert_eq!(port.events.recv().await, Some(event));
        }
        assert!(port.events.try_recv().is_err());
    }
    for (path, status, text) in
        [("/debug/pprof/heap", 404, "has no pprof"), ("/", 404, "not found"), ("/debug/ndsz", 404, "{}")]
    {
        let answer = port.get(path).await;
        assert!(answer.status == status && answer.text().contains(text), "{answer:?}");
    }
}

#[tokio::test]
async fn the_name_table_is_shown_as_json() {
    let info = NameInfo { ips: vec!["10.0.0.1".to_owned()], registry: "External".to_owned(), ..NameInfo::default() };
    let table = NameTable { table: [("a.example".to_owned(), info)].into() };
    let port = Port::open_with(settings(), Some(Some(Arc::new(table)))).await;
    let answer = port.get("/debug/ndsz").await;
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    assert_eq!(answer.text(), r#"{"table":{"a.example":{"ips":["10.0.0.1"],"registry":"External"}}}"#);
}

#[tokio::test]
async fn other_machines_may_not_command() {
    // The address of this machine that is not its loopback one, if it has one.
    let outside = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let Some(outside) = outside.ok().filter(|address| !address.ip().is_loopback()) else {
        return println!("skipped: this machine has no other address");
    };
    let mut settings = settings();
    settings.local_metrics = true;
    let mut port = Port::open(settings).await;
    let address = SocketAddr::new(outside.ip(), port.running.port);
    for path in ["/drain", "/quitquitquit", "/debug/ndsz", "/metrics", "/stats/prometheus"] {
        let refused = ask(address, "POST", path, &[]).await;
        assert_eq!((refused.status, &*refused.text()), (403, "Only requests from localhost are allowed\n"), "{path}");
    }
    assert!(port.events.try_recv().is_err());
    assert_eq!(ask(address, "GET", "/healthz/ready", &[]).await.status, 200);
}

#[tokio::test]
async fn the_port_closes() {
    let port = Port::open(settings()).await;
    let mut again = settings();
    again.port = port.running.port;
    let (names, obstacle, events, stop) = (port.names, port.obstacle, port.events, port.stop);
    let channels = || agent_status::Channels {
        names: Some(names.subscribe()),
        obstacle: obstacle.subscribe(),
        events: tokio::sync::mpsc::channel(1).0,
    };
    let used = start(again.clone(), channels(), &prometheus::Registry::new(), stop.subscribe()).await;
    assert!(matches!(used, Err(StartError::Listen { port, .. }) if port == again.port));
    stop.send_replace(true);
    port.running.stopped().await;
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let running = start(again.clone(), channels(), &prometheus::Registry::new(), stopped).await.unwrap();
    assert_eq!(running.port, again.port);
    drop(events);
}
