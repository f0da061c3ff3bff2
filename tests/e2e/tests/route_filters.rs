//! Session persistence and external authorization of HTTPRoutes, with a real Envoy as a gateway and as a sidecar.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use e2e::guarded::{Judge, judge_service};
use e2e::objects::{networking, static_entry};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Node, Result, free_port, http, wait_for};

const HOST: &str = "shop.example.com";
/// Enough requests that chance would not send all to one of two endpoints.
const REQUESTS: usize = 20;

fn gateway(port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
         spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: {port}, protocol: HTTP }}] }}\n"
    )
}

/// A route of a parent (YAML in flow style) with these rules.
fn route(parent: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: shop, namespace: test }}\n\
         spec: {{ parentRefs: [{parent}], rules: [{rules}] }}\n"
    )
}

/// A backend: the ServiceEntry `NAME.test`.
fn to(name: &str, port: u16, weight: u32) -> String {
    let port = format!("port: {port}, weight: {weight}");
    format!("{{ group: networking.istio.io, kind: Hostname, name: {name}.test, {port} }}")
}

/// A service `NAME.test` with a port and two endpoints.
fn pair(name: &str, port: u16, endpoints: &[Backend]) -> String {
    let one = |backend: &Backend| {
        format!("{{ address: {}, ports: {{ http: {} }} }}", backend.address().ip(), backend.address().port())
    };
    let endpoints: Vec<String> = endpoints.iter().map(one).collect();
    networking(
        "ServiceEntry",
        name,
        &format!(
            "hosts: [{name}.test], resolution: STATIC, ports: [{{ number: {port}, name: http, protocol: HTTP }}], \
             endpoints: [{}]",
            endpoints.join(", ")
        ),
    )
}

async fn pair_of(version: &str) -> Result<[Backend; 2]> {
    Ok([
        Backend::start(version, &format!("{version}-a")).await?,
        Backend::start(version, &format!("{version}-b")).await?,
    ])
}

/// The cookies that a response sets, as a client sends them.
fn cookies(answer: &http::Response) -> String {
    let values = answer.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let pairs: Vec<&str> = values.filter_map(|value| value.split(';').next()).collect();
    pairs.join("; ")
}

/// The instances that answer requests with a header.
async fn instances(at: SocketAddr, host: &str, path: &str, header: (&str, &str)) -> Result<BTreeSet<String>> {
    let mut seen = BTreeSet::new();
    for _ in 0..REQUESTS {
        let answer = http::get(at, path, &[("host", host), header]).await?;
        seen.insert(answer.header("x-instance").to_owned());
    }
    Ok(seen)
}

/// Waits until the status of a request is this.
async fn answered(at: SocketAddr, path: &str, headers: &[(&str, &str)], status: u16) -> Result<http::Response> {
    let asked = || async {
        let headers: Vec<_> = headers.iter().copied().chain([("host", HOST)]).collect();
        http::get(at, path, &headers).await.ok().filter(|answer| answer.status.as_u16() == status)
    };
    wait_for(&format!("the status {status} of {path}"), PATIENCE, asked).await
}

both_protocols! {
    async fn a_session_stays_with_its_endpoint_and_backend(protocol) {
        let (v1, v2) = (pair_of("v1").await?, pair_of("v2").await?);
        let port = free_port();
        let at: SocketAddr = ([127, 0, 0, 1], port).into();
        let rules = |one: u32, two: u32| route("{ name: edge }", &format!(
            "{{ matches: [{{ path: {{ value: /split }} }}], backendRefs: [{}, {}], \
                sessionPersistence: {{ sessionName: split, absoluteTimeout: 1h, cookieConfig: {{ lifetimeType: Permanent }} }} }}, \
             {{ matches: [{{ path: {{ value: /header }} }}], backendRefs: [{}], \
                sessionPersistence: {{ type: Header, header: {{ name: x-session }} }} }}, \
             {{ matches: [{{ path: {{ value: /any }} }}], backendRefs: [{}], sessionPersistence: {{}} }}, \
             {{ backendRefs: [{}] }}",
            to("v1", 80, one), to("v2", 80, two), to("v1", 80, 1), to("v1", 80, 1), to("v2", 80, 1),
        ));
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(port)), ("route.yaml", &rules(1, 1)),
            ("v1.yaml", &pair("v1", 80, &v1)), ("v2.yaml", &pair("v2", 80, &v2)),
        ]).await?;
        let envoy = mesh.edge(protocol, &[port]).await?;
        let first = answered(at, "/split", &[], 200).await?;
        assert!(first.headers.get_all("set-cookie").iter().all(|one| one.to_str().is_ok_and(|one| one.contains("Max-Age=3600"))));
        let (session, own) = (cookies(&first), BTreeSet::from([first.header("x-instance").to_owned()]));
        assert!(session.contains("split=") && session.contains("split-backend="), "{session}");
        assert_eq!(instances(at, HOST, "/split", ("cookie", &session)).await?, own);
        assert!(instances(at, HOST, "/split", ("x-none", "")).await?.len() > 1, "without cookies requests are spread");
        // The session stays when its backend gets no other requests any more.
        let (zero, other) = if first.header("x-version") == "v1" { (rules(0, 1), "v2") } else { (rules(1, 0), "v1") };
        mesh.reroute(&envoy, "route.yaml", &zero).await?;
        assert_eq!(instances(at, HOST, "/split", ("cookie", &session)).await?, own);
        let others = instances(at, HOST, "/split", ("x-none", "")).await?;
        assert!(others.iter().all(|instance| instance.starts_with(other)), "{others:?}");

        let first = answered(at, "/header", &[], 200).await?;
        let own = BTreeSet::from([first.header("x-instance").to_owned()]);
        assert_eq!(instances(at, HOST, "/header", ("x-session", first.header("x-session"))).await?, own);
        let first = answered(at, "/any", &[], 200).await?;
        let own = BTreeSet::from([first.header("x-instance").to_owned()]);
        assert_eq!(instances(at, HOST, "/any", ("cookie", &cookies(&first))).await?, own);

        // The policy of a service is for rules that set nothing.
        assert_eq!(cookies(&answered(at, "/else", &[], 200).await?), "");
        let policy = "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\n\
             metadata: { name: v2, namespace: test }\n\
             spec: { targetRefs: [{ group: networking.istio.io, kind: ServiceEntry, name: v2 }], \
             sessionPersistence: { cookie: { name: of-v2 } } }\n";
        mesh.reroute(&envoy, "policy.yaml", policy).await?;
        let first = answered(at, "/else", &[], 200).await?;
        let own = BTreeSet::from([first.header("x-instance").to_owned()]);
        assert!(cookies(&first).starts_with("of-v2="), "{}", cookies(&first));
        assert_eq!(instances(at, HOST, "/else", ("cookie", &cookies(&first))).await?, own);
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }

    async fn a_route_of_a_service_has_sessions(protocol) {
        let v1 = pair_of("v1").await?;
        let port = free_port();
        let at: SocketAddr = ([127, 0, 0, 1], port).into();
        let parent = "{ group: networking.istio.io, kind: ServiceEntry, name: v1 }";
        let rule = format!("{{ backendRefs: [{}], sessionPersistence: {{ cookie: {{ name: mine }} }} }}", to("v1", port, 1));
        let mesh = Mesh::start(&[("v1.yaml", &pair("v1", port, &v1)), ("route.yaml", &route(parent, &rule))]).await?;
        let envoy = mesh.envoy(&Node::sidecar("client", "test", "127.0.0.2", &[]), protocol).await?;
        envoy.wait_for_listener(at).await?;
        let first = http::get(at, "/", &[("host", "v1.test")]).await?;
        assert!(cookies(&first).starts_with("mine="), "{}", cookies(&first));
        let own = BTreeSet::from([first.header("x-instance").to_owned()]);
        assert_eq!(instances(at, "v1.test", "/", ("cookie", &cookies(&first))).await?, own);
        assert_eq!(instances(at, "v1.test", "/", ("x-none", "")).await?.len(), 2);
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }

    async fn a_service_is_asked_before_requests_are_forwarded(protocol) {
        let (web, judge, calls) = (Backend::start("v1", "web").await?, Backend::start("judge", "court").await?, Judge::start().await?);
        let port = free_port();
        let at: SocketAddr = ([127, 0, 0, 1], port).into();
        let asks = |path: &str, settings: &str| format!(
            "{{ matches: [{{ path: {{ value: {path} }} }}], backendRefs: [{}], \
                filters: [{{ type: ExternalAuth, externalAuth: {{ {settings} }} }}] }}",
            to("web", 80, 1),
        );
        let by = |host: &str| format!("backendRef: {{ group: networking.istio.io, kind: Hostname, name: {host}, port: 9000 }}");
        let rules = [
            asks("/http", &format!("protocol: HTTP, {}, http: {{ path: /check, allowedHeaders: [x-user] }}", by("http.ext.test"))),
            asks("/some", &format!("protocol: HTTP, {}, http: {{ allowedResponseHeaders: [x-instance] }}", by("http.ext.test"))),
            asks("/grpc", &format!("protocol: GRPC, {}, grpc: {{}}, forwardBody: {{ maxSize: 10 }}", by("grpc.ext.test"))),
            asks("/gone", &format!("protocol: GRPC, {}, grpc: {{}}", by("gone.ext.test"))),
            format!("{{ backendRefs: [{}] }}", to("web", 80, 1)),
        ];
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(port)), ("route.yaml", &route("{ name: edge }", &rules.join(", "))),
            ("web.yaml", &static_entry("web", "web.test", (80, "HTTP"), web.address())),
            ("http.yaml", &judge_service("http.ext.test", "HTTP", judge.address())),
            ("grpc.yaml", &judge_service("grpc.ext.test", "GRPC", calls.address())),
        ]).await?;
        let envoy = mesh.edge(protocol, &[port]).await?;

        // The application sees all headers of the answer, but those that describe it.
        let seen = answered(at, "/http", &[("x-user", "ann"), ("x-other", "secret")], 200).await?.json()?;
        assert_eq!(seen["headers"]["x-instance"], "court", "{seen}");
        assert!(seen["headers"].get("content-length").is_none(), "{seen}");
        let seen = answered(at, "/some", &[], 200).await?.json()?;
        assert_eq!((seen["headers"]["x-instance"].as_str(), seen["headers"].get("x-version")), (Some("court"), None));
        // The service sees the path with its prefix, and the headers that are named. Its refusal is the answer.
        judge.answer_with(401);
        let question = answered(at, "/http", &[("x-user", "ann"), ("x-other", "secret"), ("authorization", "b")], 401).await?.json()?;
        assert_eq!(question["path"], "/check/http");
        let headers = &question["headers"];
        assert_eq!((headers["x-user"].as_str(), headers["authorization"].as_str()), (Some("ann"), Some("b")), "{question}");
        assert!(headers.get("x-other").is_none(), "{question}");

        answered(at, "/grpc", &[], 403).await?;
        calls.allow(true);
        answered(at, "/grpc", &[], 200).await?;
        let asked = (judge.requests(), calls.asked());
        answered(at, "/else", &[], 200).await?;
        assert_eq!((judge.requests(), calls.asked()), asked, "nobody is asked about other requests");
        answered(at, "/gone", &[], 500).await?;
        // Without an answer requests fail.
        let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
        for (file, host, speaks) in [("http.yaml", "http.ext.test", "HTTP"), ("grpc.yaml", "grpc.ext.test", "GRPC")] {
            mesh.config.put(file, &judge_service(host, speaks, nobody))?;
        }
        for path in ["/http", "/grpc"] {
            answered(at, path, &[], 403).await?;
        }
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }
}
