//! Merged metrics.

use std::io::Read as _;
use std::time::Instant;

use agent_status::settings::Target;

use crate::support::{Port, Server, endless, response, settings};

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn target(server: &Server, path: &str) -> Target {
    Target { port: server.port(), path: path.to_owned() }
}

#[tokio::test]
async fn all_sources_are_merged() {
    let envoy = Server::plain(false, |_| response(200, &[("content-type", "text/plain")], "envoy_up 1\n")).await;
    let app = Server::plain(false, |seen| match &*seen.path {
        "/moved" => response(301, &[("location", "/metrics?x=1")], ""),
        "/text" => response(200, &[("content-type", "text/plain")], "second 2"),
        "/broken" => response(500, &[], "broken 1\n"),
        _ => response(200, &[("content-type", OPEN)], "first_total 1\n# EOF\n"),
    })
    .await;
    let mut base = settings();
    base.envoy_metrics = Some(envoy.port());
    let scrape = async |paths: &[&str], headers: &[(&str, &str)]| {
        let mut settings = base.clone();
        settings.targets = paths.iter().map(|path| target(&app, path)).collect();
        let port = Port::open(settings).await;
        let answer = port.ask("GET", "/stats/prometheus?usedonly", headers).await;
        (answer, port)
    };
    let accept = ("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5");
    let headers = [accept, ("User-Agent", "Prometheus/3"), ("X-Prometheus-Scrape-Timeout-Seconds", "10")];

    let (answer, _port) = scrape(&["/moved"], &headers).await;
    assert!(answer.head.contains(&format!("content-type: {OPEN}")), "{}", answer.head);
    assert!(answer.text().contains("istio_agent_scrapes_total 1\n"));
    assert!(answer.text().ends_with("envoy_up 1\nfirst_total 1\n# EOF\n"), "{}", answer.text());
    let (asked, application) = (&envoy.seen()[0], app.seen());
    assert_eq!(
        (&*asked.path, asked.header("accept")),
        ("/stats/prometheus?usedonly", "text/plain; version=0.0.4; q=0.1")
    );
    assert_eq!((&*application[0].path, &*application[1].path), ("/moved", "/metrics?x=1"));
    for seen in [asked, &application[0], &application[1]] {
        assert_eq!(
            (seen.header("user-agent"), seen.header("x-prometheus-scrape-timeout-seconds")),
            ("Prometheus/3", "10")
        );
    }
    assert!(application[0].header("accept").starts_with("application/openmetrics-text; version=1.0.0; q=0.2,"));

    // Applications that do not agree on a format are merged as text.
    let (answer, _port) = scrape(&["/metrics", "/text"], &headers).await;
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    assert!(answer.text().ends_with("envoy_up 1\nfirst_total 1\nsecond 2\n"), "{}", answer.text());

    // A failed source is counted and does not affect the others.
    let (answer, port) = scrape(&["/broken", "/text"], &[]).await;
    assert!(answer.text().ends_with("envoy_up 1\nsecond 2\n"), "{}", answer.text());
    let failures = r#"istio_agent_scrape_failures_total{type="application"} "#;
    assert!(port.get("/metrics").await.text().contains(&format!("{failures}2\n")), "each scrape fails once");
    assert_eq!(port.registry.gather().len(), 3);
}

#[tokio::test]
async fn sources_have_limits_of_time() {
    let app = Server::plain(false, |_| endless("complete 1\nincomplete 12")).await;
    let mut settings = settings();
    // Nothing listens on the port of Envoy.
    settings.envoy_metrics = Some(1);
    settings.targets = vec![target(&app, "/metrics")];
    let port = Port::open(settings).await;
    let before = Instant::now();
    let answer = port.ask("GET", "/metrics", &[("X-Prometheus-Scrape-Timeout-Seconds", "0.2")]).await;
    assert!(before.elapsed().as_secs() < 10);
    assert!(
        answer.text().contains("scrapes_total 1\n") && answer.text().ends_with("\ncomplete 1\n"),
        "{}",
        answer.text()
    );
    let metrics = port.ask("GET", "/metrics", &[("X-Prometheus-Scrape-Timeout-Seconds", "0.1")]).await.text();
    for kind in ["application", "envoy"] {
        assert!(metrics.contains(&format!("istio_agent_scrape_failures_total{{type=\"{kind}\"}}")), "{metrics}");
    }
}

#[tokio::test]
async fn large_sources_are_streamed_and_compressed() {
    let line = "large_metric{label=\"some value\"} 1234567\n";
    let app = Server::plain(false, move |_| response(200, &[], line.repeat(500_000))).await;
    let mut settings = settings();
    settings.targets = vec![target(&app, "/metrics"), target(&app, "/again")];
    let port = Port::open(settings).await;
    let plain = port.get("/metrics").await;
    let answer = port.ask("GET", "/metrics", &[("Accept-Encoding", "gzip")]).await;
    assert!(answer.head.contains("content-encoding: gzip"), "{}", answer.head);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    for (body, limit) in [(plain.text(), usize::MAX), (text, answer.body.len() * 10)] {
        assert_eq!(body.matches(line).count(), 1_000_000);
        assert!(body.len() > 40_000_000 && limit > 1_000_000);
    }
}
