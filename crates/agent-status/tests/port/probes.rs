//! Probes of applications.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_core::exchange::Health;
use agent_status::{Settings, health};
use config::istio::{ExecCheck, GrpcCheck, HealthCheck, HttpCheck, HttpCheckHeader, ReadinessProbe, TcpCheck};
use http::Version;
use tokio::sync::watch;

use crate::support::{self, Port, Server, endless, probers, response, settings};

/// The settings for a probe, in JSON.
fn probing(probe: &str) -> Settings {
    Settings { probers: probers(&format!(r#"{{"/app-health/web/livez":{probe}}}"#)), ..settings() }
}

fn http_get(server: &Server, path: &str, more: &str) -> Settings {
    let port = server.port();
    probing(&format!(r#"{{"httpGet":{{"path":"{path}","port":{port}{more}}},"timeoutSeconds":10}}"#))
}

async fn livez(settings: Settings, headers: &[(&str, &str)]) -> (u16, String) {
    let answer = Port::open(settings).await.ask("GET", "/app-health/web/livez", headers).await;
    (answer.status, answer.text())
}

#[tokio::test]
async fn http_probes_pass_on_request_and_response() {
    let app = Server::plain(false, |seen| match &*seen.path {
        "/large" => response(200, &[], "x".repeat(100_000)),
        "/fails?a=b" => response(503, &[("x-secret", "1")], "not yet"),
        _ => response(204, &[], ""),
    })
    .await;
    let port = Port::open(http_get(&app, "fails?a=b", "")).await;
    let host = format!("web:{}", port.running.port);
    let headers = [("Host", &*host), ("User-Agent", "kube-probe/1.36"), ("X-Custom", "1"), ("Connection", "close")];
    let answer = port.ask("GET", "/app-health/web/livez", &headers).await;
    assert_eq!((answer.status, &*answer.text()), (503, "not yet"));
    assert!(!answer.head.contains("x-secret"), "{}", answer.head);
    let seen = app.seen().pop().unwrap();
    assert_eq!((&*seen.path, seen.peer.ip()), ("/fails?a=b", IpAddr::from([127, 0, 0, 6])));
    assert_eq!((&*seen.host, seen.header_pair()), (&*format!("web:{}", app.port()), ("kube-probe/1.36", "1")));

    assert_eq!(livez(http_get(&app, "/large", ""), &[]).await, (200, "x".repeat(10 << 10)));
    assert_eq!(livez(http_get(&app, "/", ""), &[("Host", "other.example:80")]).await, (204, String::new()));
    assert_eq!(app.seen().pop().unwrap().host, "other.example:80");
    let unknown = Port::open(settings()).await.get("/app-health/web/readyz").await;
    assert_eq!(
        (unknown.status, &*unknown.text()),
        (400, "app prober config does not exists for /app-health/web/readyz")
    );
}

impl support::Seen {
    fn header_pair(&self) -> (&str, &str) {
        (self.header("user-agent"), self.header("x-custom"))
    }
}

#[tokio::test]
async fn redirects_are_followed_to_the_same_host() {
    let app = Server::plain(false, |seen| {
        let to = |location: &str| response(302, &[("location", location)], "");
        match &*seen.path {
            "/relative" => to("end"),
            "/absolute" => to(&format!("http://127.0.0.1:{}/end", seen.header("x-port"))),
            "/elsewhere" => to("http://elsewhere.example/end"),
            "/loop" => to("/loop"),
            "/none" => response(304, &[], ""),
            _ => response(418, &[], "the end"),
        }
    })
    .await;
    let port = app.port().to_string();
    for (path, expected, requests) in [
        ("/relative", (418, "the end"), 2),
        ("/absolute", (418, "the end"), 2),
        ("/elsewhere", (200, ""), 1),
        ("/loop", (500, ""), 10),
        ("/none", (200, ""), 1),
    ] {
        let settings = Settings { destination: "127.0.0.1".to_owned(), ..http_get(&app, path, "") };
        let answer = livez(settings, &[("X-Port", &port)]).await;
        assert_eq!((answer.0, &*answer.1), expected, "{path}");
        assert_eq!(app.seen().len(), requests, "{path}");
    }
}

#[tokio::test]
async fn certificates_are_not_verified_and_http2_is_offered() {
    let app = Server::tls(|_| response(200, &[], "secure")).await;
    for (http2, version) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let settings = Settings { http2, ..http_get(&app, "/", r#","scheme":"HTTPS""#) };
        assert_eq!(livez(settings, &[("Host", "web.example")]).await, (200, "secure".to_owned()));
        let seen = app.seen().pop().unwrap();
        assert_eq!((seen.version, &*seen.host), (version, "web.example"));
    }
    let settings = http_get(&app, "/", "");
    assert_eq!(livez(settings, &[]).await.0, 500, "plain text to a TLS port");
}

#[tokio::test]
async fn connections_are_used_again_on_request() {
    let app = Server::plain(false, |_| response(200, &[], "ok")).await;
    for (keep_alive, connections) in [(true, 1), (false, 3)] {
        let port = Port::open(Settings { keep_alive, ..http_get(&app, "/", "") }).await;
        for _ in 0..3 {
            assert_eq!(port.get("/app-health/web/livez").await.text(), "ok");
        }
        let mut peers: Vec<_> = app.seen().into_iter().map(|seen| seen.peer).collect();
        peers.dedup();
        assert_eq!(peers.len(), connections, "{keep_alive}");
    }
}

#[tokio::test]
async fn probes_end_with_their_timeout() {
    let app = Server::plain(false, |seen| match &*seen.path {
        "/body" => endless("begin"),
        _ => response(200, &[], ""),
    })
    .await;
    let port = app.port();
    let body = probing(&format!(r#"{{"httpGet":{{"path":"/body","port":{port}}},"timeoutSeconds":1}}"#));
    assert_eq!(livez(body, &[]).await.0, 500);
}

#[tokio::test]
async fn tcp_and_grpc_are_probed() {
    let app = Server::plain(true, |seen| match &seen.body[..] {
        b"\0\0\0\0\0" => support::health(1),
        b"\0\0\0\0\x06\x0a\x04good" => support::health(1),
        b"\0\0\0\0\x05\x0a\x03bad" => support::health(2),
        _ => response(200, &[("content-type", "application/grpc"), ("grpc-status", "5")], ""),
    })
    .await;
    let port = app.port();
    for (probe, status) in [
        (format!(r#"{{"tcpSocket":{{"port":{port}}}}}"#), 200),
        (r#"{"tcpSocket":{"port":1}}"#.to_owned(), 500),
        (format!(r#"{{"grpc":{{"port":{port}}},"timeoutSeconds":10}}"#), 200),
        (format!(r#"{{"grpc":{{"port":{port},"service":"good"}},"timeoutSeconds":10}}"#), 200),
        (format!(r#"{{"grpc":{{"port":{port},"service":"bad"}},"timeoutSeconds":10}}"#), 500),
        (format!(r#"{{"grpc":{{"port":{port},"service":"unknown"}},"timeoutSeconds":10}}"#), 500),
        (r#"{"grpc":{"port":1}}"#.to_owned(), 500),
    ] {
        let settings = Settings { destination: "127.0.0.1".to_owned(), ..probing(&probe) };
        assert_eq!(livez(settings, &[("User-Agent", "kube-probe/1.36")]).await.0, status, "{probe}");
    }
    let seen = app.seen();
    assert!(
        seen.iter()
            .all(|seen| seen.path == "/grpc.health.v1.Health/Check" && seen.peer.ip() == IpAddr::from([127, 0, 0, 6]))
    );
    assert!(seen[0].header("user-agent").starts_with("kube-probe/1.36"), "{:?}", seen[0].headers);
}

/// The first health that a probe reports.
async fn first(settings: &Settings, method: HealthCheck) -> Result<(), String> {
    let (health, mut reported) = watch::channel(Health::Unknown);
    let (_stop, stopped) = watch::channel(false);
    let probe = ReadinessProbe { method: Some(method), ..ReadinessProbe::default() };
    let known = async { reported.wait_for(|health| *health != Health::Unknown).await.unwrap().clone() };
    tokio::select! {
        () = health::check(settings, &probe, &health, stopped) => panic!("the check has ended"),
        known = tokio::time::timeout(Duration::from_secs(30), known) => match known.unwrap() {
            Health::Unhealthy { reason } => Err(reason),
            _ => Ok(()),
        },
    }
}

#[tokio::test]
async fn applications_of_virtual_machines_are_checked() {
    let app = Server::plain(false, |seen| response(if seen.path == "/ok" { 302 } else { 500 }, &[], "")).await;
    let grpc = Server::plain(true, |_| support::health(1)).await;
    let mut settings = settings();
    let http = |path: &str, headers: &[(&str, &str)]| {
        let headers =
            headers.iter().map(|(name, value)| HttpCheckHeader { name: (*name).into(), value: (*value).into() });
        let port = u32::from(app.port());
        HealthCheck::HttpGet(HttpCheck {
            path: path.into(),
            port,
            http_headers: headers.collect(),
            ..HttpCheck::default()
        })
    };
    let command =
        |words: &[&str]| HealthCheck::Exec(ExecCheck { command: words.iter().map(|word| Arc::from(*word)).collect() });
    let tcp = |port: u32| HealthCheck::TcpSocket(TcpCheck { port, host: "127.0.0.1".into() });
    for (method, expected) in [
        (http("ok", &[("X-Custom", "1"), ("Host", "vm.example")]), Ok(())),
        (http("", &[]), Err("status code was not from [200,400), bad code 500")),
        (tcp(u32::from(app.port())), Ok(())),
        (tcp(1), Err("cannot connect to port 1: ")),
        (HealthCheck::Grpc(GrpcCheck { port: u32::from(grpc.port()), service: "".into() }), Ok(())),
        (command(&["true"]), Ok(())),
        (command(&["false"]), Err("the command failed: exit status: 1")),
        (command(&["/does/not/exist"]), Err("cannot run the command: No such file")),
        (command(&["sleep", "100"]), Err("no result within 1s")),
    ] {
        match (first(&settings, method.clone()).await, expected) {
            (Ok(()), Ok(())) => {}
            (Err(reason), Err(expected)) if reason.starts_with(expected) => {}
            other => panic!("{method:?}: {other:?}"),
        }
    }
    let seen = app.seen();
    assert_eq!(
        (&*seen[0].path, &*seen[0].host, seen[0].header_pair()),
        ("/ok", "vm.example", ("istio-probe/1.0", "1"))
    );
    assert_eq!(seen[1].path, "/");
    // Envoy must be ready, too.
    settings.admin = Some(app.address);
    let reason = first(&settings, command(&["true"])).await.unwrap_err();
    assert!(reason.starts_with("Envoy's statistics cannot be read: status 500"), "{reason}");
}
