//! Real gRPC libraries without a proxy, with routes, faults, endpoints and listeners from Rutter.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::PathBuf;
use std::time::Duration;

use e2e::grpc::{Application, Outcome};
use e2e::{Mesh, rutter_binary};
use serde_json::Value;
use test_harness::grpc::Probe;
use test_harness::run::Result;

const HOST: &str = "echo.shop.svc.cluster.local";
/// A DestinationRule policy without effect.
const ROUND_ROBIN: &str = "{ loadBalancer: { simple: ROUND_ROBIN } }";

/// The service with these instances (version and port), and subsets by version.
fn service(instances: &[(&str, u16)], policy: &str) -> String {
    let endpoints: String = instances
        .iter()
        .map(|(version, port)| {
            format!("  - {{ address: 127.0.0.1, ports: {{ grpc: {port} }}, labels: {{ version: {version} }} }}\n")
        })
        .collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: echo, namespace: shop }}\nspec:\n  \
         hosts: [{HOST}]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{ number: 7070, name: grpc, protocol: GRPC }}]\n  endpoints:\n{endpoints}---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: echo, namespace: shop }}\nspec:\n  \
         host: {HOST}\n  trafficPolicy: {policy}\n  \
         subsets: [{{ name: v1, labels: {{ version: v1 }} }}, {{ name: v2, labels: {{ version: v2 }} }}]\n"
    )
}

/// A VirtualService with these rules.
fn route(rules: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: echo, namespace: shop }}\n\
         spec: {{ hosts: [{HOST}], http: {rules} }}\n"
    )
}

fn to(subset: &str) -> String {
    format!("route: [{{ destination: {{ host: {HOST}, subset: {subset} }} }}]")
}

fn python() -> Probe {
    test_harness::grpc::python(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}"))
}

fn go() -> Probe {
    test_harness::grpc::go(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}"))
}

/// A mesh with two versions of a service, and the path of its bootstrap.
struct Shop {
    mesh: Mesh,
    probe: Probe,
    // They serve until they are dropped.
    servers: Vec<Application>,
    ports: Vec<u16>,
    bootstrap: PathBuf,
    _dir: tempfile::TempDir,
}

impl Shop {
    async fn start(probe: Probe, rules: &str) -> Result<Shop> {
        let (mut servers, mut ports) = (Vec::new(), Vec::new());
        for name in ["v1", "v2"] {
            let (server, port) = Application::serve(&probe, name).await?;
            servers.push(server);
            ports.push(port);
        }
        let service = service(&[("v1", ports[0]), ("v2", ports[1])], ROUND_ROBIN);
        let mesh = Mesh::start(&[("service.yaml", &service), ("route.yaml", &route(rules))]).await?;
        let dir = tempfile::tempdir()?;
        let bootstrap = dir.path().join("bootstrap.json");
        let written = std::process::Command::new(rutter_binary())
            .args(["grpc-bootstrap", "--namespace", "shop", "--server"])
            .arg(mesh.control.grpc().to_string())
            .arg("--file")
            .arg(&bootstrap)
            .status()?;
        assert!(written.success());
        Ok(Shop { mesh, probe, servers, ports, bootstrap, _dir: dir })
    }

    fn client(&self, target: &str) -> Result<Application> {
        Application::start(&self.probe, "call", target, Some(&self.bootstrap))
    }
}

fn only(outcome: &Outcome, name: &str) -> bool {
    outcome.errors.is_empty() && outcome.answers.keys().eq([name])
}

/// A filter that a library does not support must not prevent calls.
async fn a_service_with_sessions_is_called(probe: Probe) -> Result<()> {
    let shop = Shop::start(probe, &format!("[{{ {} }}]", to("v2"))).await?;
    let labelled = "name: echo, namespace: shop, labels: { istio.io/persistent-session: sticky } }";
    let service = service(&[("v1", shop.ports[0]), ("v2", shop.ports[1])], ROUND_ROBIN);
    let service = service.replacen("name: echo, namespace: shop }", labelled, 1);
    assert!(service.contains(labelled));
    shop.mesh.config.put("service.yaml", &service)?;
    shop.mesh.config.put("route.yaml", &route(&format!("[{{ {} }}]", to("v1"))))?;
    let mut client = shop.client("xds:///echo:7070")?;
    client.until(20, &[], |outcome| only(outcome, "v1")).await?;
    // By now the label is in effect. A new client has no earlier listener.
    let mut client = shop.client("xds:///echo:7070")?;
    let outcome = client.calls(100, &[]).await?;
    assert!(only(&outcome, "v1"), "{outcome:?}");
    Ok(())
}

/// Options of a filter that a library does not support must not prevent a route from being used.
async fn a_rule_with_sessions_is_used(probe: Probe) -> Result<()> {
    let shop = Shop::start(probe, &format!("[{{ {} }}]", to("v1"))).await?;
    let rule = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: echo, namespace: shop }}\nspec:\n  \
         parentRefs: [{{ group: networking.istio.io, kind: ServiceEntry, name: echo }}]\n  rules:\n  - \
         matches: [{{ headers: [{{ name: end-user, value: jason }}] }}]\n    \
         backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {HOST}, port: 7070 }}]\n    \
         sessionPersistence: {{ sessionName: sticky }}\n"
    );
    shop.mesh.config.put("route.yaml", &rule)?;
    let mut client = shop.client("xds:///echo:7070")?;
    client.until(20, &[], |outcome| outcome.answers.is_empty()).await?;
    // The library applies a route before the cluster of the route is ready.
    client.until(20, &[("end-user", "jason")], |outcome| outcome.errors.is_empty()).await?;
    let outcome = client.calls(100, &[("end-user", "jason")]).await?;
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    Ok(())
}

async fn a_split_and_a_header_decide(probe: Probe) -> Result<()> {
    let rules = format!(
        "[{{ match: [{{ headers: {{ end-user: {{ exact: jason }} }} }}], {} }}, \
         {{ route: [{{ destination: {{ host: {HOST}, subset: v1 }}, weight: 80 }}, {{ destination: {{ host: {HOST}, subset: v2 }}, weight: 20 }}] }}]",
        to("v2")
    );
    let shop = Shop::start(probe, &rules).await?;
    for target in ["xds:///echo:7070", "xds:///echo.shop.svc.cluster.local:7070"] {
        let mut client = shop.client(target)?;
        let outcome = client.calls(1000, &[]).await?;
        assert!(outcome.errors.is_empty(), "{outcome:?}");
        // One fifth, within six standard deviations.
        assert!((124..=276).contains(&outcome.answers["v2"]), "{outcome:?}");
        let outcome = client.calls(50, &[("end-user", "jason")]).await?;
        assert!(only(&outcome, "v2"), "{outcome:?}");
    }
    Ok(())
}

async fn routes_and_endpoints_change_under_a_channel(probe: Probe) -> Result<()> {
    let mut shop = Shop::start(probe, &format!("[{{ {} }}]", to("v1"))).await?;
    let mut client = shop.client("xds:///echo.shop:7070")?;
    assert!(only(&client.calls(20, &[]).await?, "v1"));
    shop.mesh.config.put("route.yaml", &route(&format!("[{{ {} }}]", to("v2"))))?;
    client.until(20, &[], |outcome| only(outcome, "v2")).await?;
    let (server, port) = Application::serve(&shop.probe, "v2-next").await?;
    shop.servers.push(server);
    let moved = service(&[("v1", shop.ports[0]), ("v2", port)], ROUND_ROBIN);
    shop.mesh.config.put("service.yaml", &moved)?;
    client.until(20, &[], |outcome| only(outcome, "v2-next")).await?;
    let none = service(&[("v1", shop.ports[0])], ROUND_ROBIN);
    shop.mesh.config.put("service.yaml", &none)?;
    let outcome = client.until(20, &[], |outcome| outcome.errors.get("UNAVAILABLE") == Some(&20)).await?;
    assert!(outcome.answers.is_empty(), "{outcome:?}");
    Ok(())
}

async fn faults_are_injected_by_the_client_itself(probe: Probe) -> Result<()> {
    let fault = |name: &str, fault: &str| {
        let condition = format!("match: [{{ headers: {{ ask: {{ exact: {name} }} }} }}]");
        format!("{{ {condition}, fault: {fault}, {} }}", to("v1"))
    };
    let rules = [
        fault("abort", "{ abort: { grpcStatus: RESOURCE_EXHAUSTED, percentage: { value: 100 } } }"),
        fault("delay", "{ delay: { fixedDelay: 0.3s, percentage: { value: 100 } } }"),
        format!("{{ corsPolicy: {{ allowOrigins: [{{ exact: a }}] }}, {} }}", to("v1")),
    ];
    let shop = Shop::start(probe, &format!("[{}]", rules.join(", "))).await?;
    let mut client = shop.client("xds:///echo:7070")?;
    assert!(only(&client.calls(10, &[]).await?, "v1"), "options of other filters are ignored");
    let outcome = client.calls(10, &[("ask", "abort")]).await?;
    assert_eq!(outcome.errors.get("RESOURCE_EXHAUSTED"), Some(&10), "{outcome:?}");
    let outcome = client.calls(3, &[("ask", "delay")]).await?;
    assert!(only(&outcome, "v1") && outcome.took >= Duration::from_millis(900), "{outcome:?}");
    Ok(())
}

async fn no_policy_is_refused(probe: Probe) -> Result<()> {
    let shop = Shop::start(probe, &format!("[{{ {} }}]", to("v1"))).await?;
    let mut client = shop.client("xds:///echo:7070")?;
    let policies = [
        "{ loadBalancer: { simple: LEAST_REQUEST } }",
        "{ loadBalancer: { simple: RANDOM }, outlierDetection: { consecutive5xxErrors: 3 } }",
        "{ loadBalancer: { consistentHash: { httpHeaderName: x-user } } }",
        "{ loadBalancer: { consistentHash: { httpHeaderName: x-user, maglev: { tableSize: 65537 } } } }",
        "{ connectionPool: { http: { http2MaxRequests: 10 } } }",
    ];
    for (round, policy) in policies.into_iter().enumerate() {
        // A new version each time: once it answers, the policy that was written with it is in effect.
        let (server, port) = Application::serve(&shop.probe, &format!("round-{round}")).await?;
        shop.mesh.config.put("service.yaml", &service(&[("v1", port)], policy))?;
        let name = format!("round-{round}");
        client.until(20, &[("x-user", "a")], |outcome| only(outcome, &name)).await?;
        let page: Value = serde_json::from_str(&shop.mesh.control.debug("/debug/syncz").await?.text())?;
        let types = page[0]["resources"].as_object().ok_or("no such client")?;
        assert!(!types.is_empty() && types.values().all(|t| t["lastError"].is_null()), "{policy}: {page}");
        drop(server);
    }
    Ok(())
}

macro_rules! both_libraries {
    ($($name:ident)+) => {
        mod python_client {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::python()).await.unwrap_or_else(|error| panic!("{error}"));
            })+
        }

        mod go_client {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::go()).await.unwrap_or_else(|error| panic!("{error}"));
            })+
        }
    };
}

both_libraries! {
    a_service_with_sessions_is_called
    a_rule_with_sessions_is_used
    a_split_and_a_header_decide
    routes_and_endpoints_change_under_a_channel
    faults_are_injected_by_the_client_itself
    no_policy_is_refused
}

/// A server with a listener from Rutter, which is the only instance of the service, and a client that it has answered.
async fn served_over_xds(shop: &Shop) -> Result<(Application, Application)> {
    let mut server = Application::start(&shop.probe, "serve-xds", "mine", Some(&shop.bootstrap))?;
    let port = server.port().await?;
    shop.mesh.config.put("service.yaml", &service(&[("v1", port)], ROUND_ROBIN))?;
    // Until a service targets its port, the server may report that it does not serve.
    while server.says().await?["serving"] != true {}
    let mut client = shop.client("xds:///echo:7070")?;
    client.until(20, &[], |outcome| only(outcome, "mine")).await?;
    Ok((server, client))
}

#[tokio::test]
async fn a_grpc_server_gets_its_listener_over_xds() -> Result<()> {
    let shop = Shop::start(go(), &format!("[{{ {} }}]", to("v1"))).await?;
    served_over_xds(&shop).await?;
    Ok(())
}

#[tokio::test]
async fn a_grpc_server_enforces_authorization_policies() -> Result<()> {
    let shop = Shop::start(go(), &format!("[{{ {} }}]", to("v1"))).await?;
    let (_server, mut client) = served_over_xds(&shop).await?;
    let policy = |action: &str, rule: &str| {
        let spec = format!("action: {action}, rules: [{rule}]");
        let policy = format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{ name: a, namespace: shop }}\nspec: {{ {spec} }}\n"
        );
        shop.mesh.config.put("policy.yaml", &policy)
    };
    let denied = |outcome: &Outcome| outcome.answers.is_empty() && outcome.errors.keys().eq(["PERMISSION_DENIED"]);
    let answered = |outcome: &Outcome| only(outcome, "mine");
    let secret = [("ask", "secret")];
    policy("DENY", "{ when: [{ key: 'request.headers[ask]', values: [secret] }] }")?;
    client.until(20, &secret, denied).await?;
    client.until(20, &[], answered).await?;
    policy("ALLOW", "{ when: [{ key: 'request.headers[ask]', values: [secret] }] }")?;
    client.until(20, &[], denied).await?;
    client.until(20, &secret, answered).await?;
    // A token cannot be verified by a gRPC server: a rule that asks for one must not permit more.
    policy("ALLOW", "{ from: [{ source: { requestPrincipals: ['*'] } }] }")?;
    client.until(20, &secret, denied).await?;
    policy("DENY", "{ from: [{ source: { notRequestPrincipals: ['*'] } }], to: [{ operation: { methods: [GET] } }] }")?;
    client.until(20, &secret, answered).await?;
    shop.mesh.config.remove("policy.yaml")?;
    client.until(20, &[], answered).await?;
    Ok(())
}
