//! Session affinity by cookie and by header.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use e2e::{Mesh, both_protocols};
use test_harness::run::{Backend, Node, free_port, http, wait_for};

/// The maximum time for a change on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough requests that they would not all reach one of two endpoints by chance.
const REQUESTS: usize = 20;

/// A service with two endpoints and a session label.
fn service(port: u16, label: &str, endpoints: [SocketAddr; 2]) -> String {
    let endpoints = endpoints.map(|at| format!("{{ address: {}, ports: {{ http: {} }} }}", at.ip(), at.port()));
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{ name: web, namespace: test, labels: {{ {label} }} }}\n\
         spec: {{ hosts: [web.test], resolution: STATIC, ports: [{{ number: {port}, name: http, protocol: HTTP }}], \
         endpoints: [{}] }}\n",
        endpoints.join(", ")
    )
}

both_protocols! {
    async fn a_client_stays_with_the_endpoint_that_it_had(protocol) {
        let (one, two) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
        let endpoints = [one.address(), two.address()];
        let port = free_port();
        let cookie = "istio.io/persistent-session: sticky";
        let mesh = Mesh::start(&[("service.yaml", &service(port, cookie, endpoints))]).await?;
        let envoy = mesh.envoy(&Node::sidecar("client", "test", "127.0.0.2", &[]), protocol).await?;
        let at: SocketAddr = ([127, 0, 0, 1], port).into();
        envoy.wait_for_listener(at).await?;
        let ask = |header: (&'static str, String)| async move {
            http::get(at, "/", &[("host", "web.test"), (header.0, &header.1)]).await
        };

        // The first response contains the cookie.
        let given = |name: &'static str| async move {
            let asked = || async {
                let answer = http::get(at, "/", &[("host", "web.test")]).await.ok()?;
                Some(answer).filter(|answer| !answer.header(name).is_empty())
            };
            wait_for(name, PATIENCE, asked).await
        };
        let first = given("set-cookie").await?;
        let cookie = first.header("set-cookie").split(';').next().unwrap().to_owned();
        assert!(cookie.starts_with("sticky="), "{cookie}");
        for _ in 0..REQUESTS {
            let again = ask(("cookie", cookie.clone())).await?;
            assert_eq!(again.header("x-version"), first.header("x-version"));
        }
        let mut seen = BTreeSet::new();
        for _ in 0..REQUESTS {
            seen.insert(ask(("x-nothing", String::new())).await?.header("x-version").to_owned());
        }
        assert_eq!(seen.len(), 2, "without a cookie requests are spread");

        let header = "istio.io/persistent-session-header: x-session";
        mesh.config.put("service.yaml", &service(port, header, endpoints))?;
        let first = given("x-session").await?;
        let session = first.header("x-session").to_owned();
        for _ in 0..REQUESTS {
            let again = ask(("x-session", session.clone())).await?;
            assert_eq!(again.header("x-version"), first.header("x-version"));
        }
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }
}
