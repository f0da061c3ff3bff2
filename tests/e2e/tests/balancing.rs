//! Load balancing: consistent hashing by cookie, and slow start of endpoints.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use e2e::objects::networking;
use e2e::{Mesh, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port, http};

/// Enough requests that they would not all reach one of three endpoints by chance.
const REQUESTS: usize = 20;
/// Requests per second during the warm-up of an endpoint.
const RATE: u32 = 500;
/// The duration of the warm-up, in seconds.
const WARM: u32 = 8;

/// A service with these endpoints.
fn service(port: u16, endpoints: &[&Backend]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|one| format!("{{ address: {}, ports: {{ http: {} }} }}", one.address().ip(), one.address().port()))
        .collect();
    let spec = format!(
        "hosts: [web.test], resolution: STATIC, ports: [{{ number: {port}, name: http, protocol: HTTP }}], endpoints: [{}]",
        endpoints.join(", ")
    );
    networking("ServiceEntry", "web", &spec)
}

/// The load balancer of a DestinationRule.
fn rule(balancer: &str) -> String {
    let spec = format!("host: web.test, trafficPolicy: {{ tls: {{ mode: DISABLE }}, loadBalancer: {{ {balancer} }} }}");
    networking("DestinationRule", "web", &spec)
}

/// The mesh with a client, and the client's address for the service.
async fn start(protocol: Protocol, endpoints: &[&Backend], balancer: &str) -> Result<(Mesh, Envoy, SocketAddr)> {
    let port = free_port();
    let (service, rule) = (service(port, endpoints), rule(balancer));
    let mesh = Mesh::start(&[("service.yaml", &service), ("rule.yaml", &rule)]).await?;
    let envoy = mesh.envoy(&Node::sidecar("client", "test", "127.0.0.2", &[]), protocol).await?;
    let at = ([127, 0, 0, 1], port).into();
    envoy.wait_for_listener(at).await?;
    Ok((mesh, envoy, at))
}

async fn ask(at: SocketAddr, cookie: &str) -> Result<http::Response> {
    let headers = [("host", "web.test"), ("cookie", cookie)];
    let answer = http::get(at, "/", &headers[..if cookie.is_empty() { 1 } else { 2 }]).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(answer)
}

both_protocols! {
    async fn a_cookie_leads_to_the_same_endpoint_and_is_given_to_who_has_none(protocol) {
        let mut backends = Vec::new();
        for name in ["a", "b", "c"] {
            backends.push(Backend::start("v1", name).await?);
        }
        let all: Vec<&Backend> = backends.iter().collect();
        let cookie = |rest: &str| format!("consistentHash: {{ httpCookie: {{ name: user{rest} }} }}");
        let (mesh, envoy, at) = start(protocol, &all, &cookie(", ttl: 60s, path: /")).await?;

        let first = ask(at, "").await?;
        let given = first.header("set-cookie").to_owned();
        assert!(given.starts_with("user=") && given.contains("Max-Age=60") && given.contains("Path=/"), "{given}");
        let given = given.split(';').next().unwrap();
        for _ in 0..REQUESTS {
            let again = ask(at, given).await?;
            assert_eq!(again.header("x-instance"), first.header("x-instance"));
            assert_eq!(again.header("set-cookie"), "", "a client with a cookie keeps it");
        }
        let mut seen = BTreeSet::new();
        for number in 0..REQUESTS {
            let cookie = format!("user=number-{number}");
            let answer = ask(at, &cookie).await?;
            assert_eq!(ask(at, &cookie).await?.header("x-instance"), answer.header("x-instance"));
            seen.insert(answer.header("x-instance").to_owned());
        }
        assert!(seen.len() > 1, "other cookies select other endpoints: {seen:?}");

        // Without a TTL, Envoy sets no cookie.
        mesh.config.put("rule.yaml", &rule(&cookie("")))?;
        test_harness::run::wait_for("no cookie", e2e::PATIENCE, || async {
            let answer = ask(at, "").await.ok()?;
            answer.header("set-cookie").is_empty().then_some(())
        }).await?;
        let first = ask(at, "user=me").await?;
        for _ in 0..REQUESTS {
            assert_eq!(ask(at, "user=me").await?.header("x-instance"), first.header("x-instance"));
        }
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }

    async fn a_new_endpoint_gets_its_share_little_by_little(protocol) {
        let (old, new) = (Backend::start("old", "a").await?, Backend::start("new", "b").await?);
        let balancer = format!("simple: ROUND_ROBIN, warmup: {{ duration: {WARM}s, minimumPercent: 1, aggression: 1 }}");
        let (mesh, envoy, at) = start(protocol, &[&old], &balancer).await?;
        let traffic = Traffic::start(at, "/", &[("host", "web.test")], RATE, 4);
        // The first endpoint is warm after this time, too.
        let window = u64::from(RATE * (WARM + 1));
        assert_eq!(traffic.next(window).await?.share("old"), 1.0);

        mesh.config.put("service.yaml", &service(at.port(), &[&old, &new]))?;
        let addresses = [&old, &new].map(|one| one.address().to_string());
        mesh.wait_for_endpoints(&envoy, &format!("outbound|{}||web.test", at.port()), &addresses).await?;
        let early = traffic.next(u64::from(RATE)).await?;
        assert!(early.share("new") < 0.35, "the warm-up has just begun: {early:?}");
        traffic.next(window).await?;
        let late = traffic.next(u64::from(RATE)).await?;
        assert!((0.45..0.55).contains(&late.share("new")), "the endpoint is warm: {late:?}");
        assert_eq!(traffic.stop().await.errors, 0);
    }
}
