//! A Gateway of the Gateway API: matches, filters, invalid backends, and changes under traffic, with a real Envoy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use e2e::objects::static_entry;
use e2e::{Mesh, both_protocols, done, envoy_binary, rutter, rutter_binary};
use serde_json::Value;
use tempfile::TempDir;
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, Traffic, free_port, http, wait_for};

const HOST: &str = "shop.example.com";

/// Two versions of a service, each of which is a service of its own, and a proxy that the label of the Gateway binds.
struct Edge {
    mesh: Mesh,
    envoy: Envoy,
    address: SocketAddr,
    _versions: [Backend; 2],
}

impl Edge {
    async fn start(protocol: Protocol, rules: &str) -> Result<Edge> {
        let versions = [Backend::start("v1", "one").await?, Backend::start("v2", "two").await?];
        let port = free_port();
        let gateway = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
             spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: {port}, protocol: HTTP }}] }}\n"
        );
        let entries: Vec<String> = versions
            .iter()
            .map(|one| static_entry(one.version(), &format!("{}.test", one.version()), (80, "HTTP"), one.address()))
            .collect();
        let files = [
            ("gateway.yaml", gateway.as_str()),
            ("v1.yaml", &entries[0]),
            ("v2.yaml", &entries[1]),
            ("route.yaml", &route(rules)),
        ];
        let mesh = Mesh::start(&files).await?;
        let labels = [("gateway.networking.k8s.io/gateway-name", "edge")];
        let envoy = mesh.envoy(&Node::gateway("edge", "test", "127.0.0.3", &labels), protocol).await?;
        envoy.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
        Ok(Edge { mesh, envoy, address: ([127, 0, 0, 1], port).into(), _versions: versions })
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Response> {
        let headers: Vec<_> = headers.iter().copied().chain([("host", HOST)]).collect();
        http::get(self.address, path, &headers).await
    }
}

/// A control plane with its own store, and the namespace `test` in it.
struct Home {
    control: Control,
    kubeconfig: PathBuf,
    _data: TempDir,
}

impl Home {
    async fn start() -> Result<Home> {
        let data = tempfile::tempdir()?;
        let control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
        let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
        let home = Home { control, kubeconfig, _data: data };
        home.apply("apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n").await?;
        Ok(home)
    }

    async fn apply(&self, objects: &str) -> Result<()> {
        done(&self.kubeconfig, &["apply", "-f", "-"], objects).await.map(drop)
    }

    async fn status(&self, kind: &str, name: &str) -> Result<Value> {
        let arguments = ["get", kind, name, "-n", "test", "-o", "json"];
        let object: Value = serde_json::from_str(&done(&self.kubeconfig, &arguments, "").await?)?;
        Ok(object["status"].clone())
    }

    /// Waits until a condition is as given: `STATUS REASON`. `at` is the part of the status that has it.
    async fn wait_for(&self, (kind, name): (&str, &str), at: &str, wanted: (&str, &str)) -> Result<Value> {
        let (condition, wanted) = wanted;
        let reached = || async {
            let status = self.status(kind, name).await.ok()?;
            let text = told(status.pointer(at)?, condition);
            text.starts_with(wanted).then_some(status)
        };
        let what = format!("{kind} {name} with {condition}: {wanted}");
        match wait_for(&what, Duration::from_secs(20), reached).await {
            Ok(status) => Ok(status),
            Err(error) => Err(format!("{error}: {}", self.status(kind, name).await?).into()),
        }
    }

    /// Runs `rutter wait` for these objects. Returns the exit code and the output.
    async fn outcome(&self, object: &str, goal: &str) -> Result<(Option<i32>, String)> {
        let arguments = ["wait", object, "-n", "test", goal, "--timeout", "30s"];
        let output = rutter(&self.kubeconfig, &arguments, "").await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code(), text))
    }
}

/// `STATUS REASON MESSAGE` of a condition.
fn told(owner: &Value, condition: &str) -> String {
    let conditions = owner["conditions"].as_array().map_or(&[][..], |list| list);
    let found = conditions.iter().find(|one| one["type"] == condition).unwrap_or(&Value::Null);
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

/// Exceeds Envoy's limit on the size of a compiled regular expression, so that only Envoy rejects it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";

/// An HTTPRoute with these rules (YAML in flow style).
fn route(rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: shop, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], hostnames: [{HOST}], rules: {rules} }}\n"
    )
}

/// A backend: a version of the service.
fn to(version: &str, rest: &str) -> String {
    format!("{{ group: networking.istio.io, kind: Hostname, name: {version}.test, port: 80{rest} }}")
}

/// A rule with a match, filters and a backend.
fn rule(matched: &str, filters: &str, backend: &str) -> String {
    format!("{{ matches: [{matched}], filters: [{filters}], backendRefs: [{backend}] }}")
}

both_protocols! {
    async fn matches_and_filters_take_effect(protocol) {
        let respond = "{ type: ResponseHeaderModifier, responseHeaderModifier: { set: [{ name: x-rule, value: exact }] } }";
        let redirect = "{ type: RequestRedirect, requestRedirect: { statusCode: 301, \
                        path: { type: ReplacePrefixMatch, replacePrefixMatch: /new } } }";
        let rules = [
            rule("{ path: { value: / } }", "", &to("v1", "")),
            rule("{ path: { value: / }, headers: [{ name: x-canary, value: 'yes' }] }", "", &to("v2", "")),
            rule("{ path: { value: /new } }", "", &to("v2", "")),
            rule("{ path: { type: Exact, value: /new/exact } }", respond, &to("v1", "")),
            rule("{ path: { value: /gone } }", "", "{ name: gone, port: 80 }"),
            format!("{{ matches: [{{ path: {{ value: /old }} }}], filters: [{redirect}] }}"),
        ];
        let edge = Edge::start(protocol, &format!("[{}]", rules.join(", "))).await?;
        assert_eq!(edge.get("/", &[]).await?.header("x-version"), "v1");
        assert_eq!(edge.get("/", &[("x-canary", "yes")]).await?.header("x-version"), "v2");
        assert_eq!(edge.get("/new/any", &[]).await?.header("x-version"), "v2");
        assert_eq!(edge.get("/newer", &[]).await?.header("x-version"), "v1", "a prefix ends at a slash");
        let exact = edge.get("/new/exact", &[]).await?;
        assert_eq!((exact.header("x-version"), exact.header("x-rule")), ("v1", "exact"));
        assert_eq!(edge.get("/gone", &[]).await?.status.as_u16(), 500, "a backend that does not exist");
        let moved = edge.get("/old/a?b=c", &[]).await?;
        assert_eq!(moved.status.as_u16(), 301);
        assert!(moved.header("location").ends_with("/new/a?b=c"), "{}", moved.header("location"));
        let stranger = http::get(edge.address, "/", &[("host", "other.example.com")]).await?;
        assert_eq!(stranger.status.as_u16(), 404);
    }

    async fn a_changed_backend_loses_no_request(protocol) {
        let only = |version: &str| format!("[{{ backendRefs: [{}] }}]", to(version, ""));
        let edge = Edge::start(protocol, &only("v1")).await?;
        let traffic = Traffic::start(edge.address, "/", &[("host", HOST)], 500, 10);
        assert!(traffic.next(100).await?.by_version.contains_key("v1"));
        for version in ["v2", "v1", "v2"] {
            edge.mesh.reroute(&edge.envoy, "route.yaml", &route(&only(version))).await?;
            traffic.next(50).await?;
            assert_eq!(traffic.next(100).await?.by_version.keys().collect::<Vec<_>>(), [version]);
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn weights_divide_requests(protocol) {
        let rules = format!("[{{ backendRefs: [{}, {}] }}]", to("v1", ", weight: 3"), to("v2", ", weight: 1"));
        let edge = Edge::start(protocol, &rules).await?;
        let traffic = Traffic::start(edge.address, "/", &[("host", HOST)], 500, 10);
        let counts = traffic.next(800).await?;
        let share = counts.by_version.get("v2").copied().unwrap_or_default();
        assert!((100..320).contains(&share), "{counts:?}");
        traffic.stop().await;
    }

    async fn statuses_follow_acknowledgements(protocol) {
        let home = Home::start().await?;
        let backend = Backend::start("v1", "one").await?;
        let port = free_port();
        let gateway = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
             spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: {port}, protocol: HTTP }}] }}\n"
        );
        let class = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: istio }\n\
                     spec: { controllerName: istio.io/gateway-controller }\n";
        let entry = static_entry("v1", "v1.test", (80, "HTTP"), backend.address());
        let to_backend = route(&format!("[{{ backendRefs: [{}] }}]", to("v1", "")));
        home.apply(&[&gateway, class, &entry, &to_backend].join("---\n")).await?;

        // Accepted, but not programmed as long as no proxy serves it.
        let (edge, shop) = (("gtw", "edge"), ("httproute", "shop"));
        let status = home.wait_for(edge, "", ("Programmed", "False NoResources")).await?;
        assert!(told(&status, "Accepted").starts_with("True Accepted"), "{status}");
        let listener = home.wait_for(edge, "/listeners/0", ("Programmed", "False NoResources")).await?;
        assert_eq!(listener["listeners"][0]["attachedRoutes"], 1, "{listener}");
        let status = home.wait_for(shop, "/parents/0", ("Programmed", "False NoResources")).await?;
        assert!(told(&status["parents"][0], "Accepted").starts_with("True Accepted"), "{status}");
        assert!(told(&status["parents"][0], "ResolvedRefs").starts_with("True ResolvedRefs"), "{status}");
        assert_eq!(status["parents"][0]["controllerName"], "istio.io/gateway-controller");
        home.wait_for(("gatewayclass", "istio"), "", ("Accepted", "True Accepted")).await?;

        // A real Envoy acknowledges it.
        let labels = [("gateway.networking.k8s.io/gateway-name", "edge")];
        let node = Node::gateway("edge", "test", "127.0.0.3", &labels);
        let envoy = Envoy::start(envoy_binary(), &node, protocol, home.control.grpc()).await?;
        envoy.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
        home.wait_for(edge, "", ("Programmed", "True Programmed")).await?;
        home.wait_for(edge, "/listeners/0", ("Programmed", "True Programmed")).await?;
        home.wait_for(shop, "/parents/0", ("Programmed", "True Programmed")).await?;
        for object in ["gtw/edge", "httproute/shop", "gatewayclass/istio"] {
            let outcome = home.outcome(object, "--for=proxies=100%").await?;
            assert_eq!(outcome.0, Some(0), "{object}: {}", outcome.1);
        }
        let outcome = home.outcome("httproute/shop", "--for=condition=Accepted").await?;
        assert_eq!(outcome.0, Some(0), "{}", outcome.1);

        // A reference that does not resolve.
        home.apply(&route("[{ backendRefs: [{ name: gone, port: 80 }] }]")).await?;
        let status = home.wait_for(shop, "/parents/0", ("ResolvedRefs", "False BackendNotFound")).await?;
        assert!(told(&status["parents"][0], "Accepted").starts_with("True"), "{status}");
        let outcome = home.outcome("httproute/shop", "--for=condition=Programmed").await?;
        assert_eq!(outcome.0, Some(1), "{}", outcome.1);
        assert!(outcome.1.contains("backend(gone.test.svc.cluster.local) not found"), "{}", outcome.1);

        // Envoy rejects the route. The Gateway is served.
        let matched = format!("{{ path: {{ type: RegularExpression, value: '{REGEX}' }} }}");
        home.apply(&route(&format!("[{}]", rule(&matched, "", &to("v1", ""))))).await?;
        let status = home.wait_for(shop, "/parents/0", ("Programmed", "False Invalid")).await?;
        assert!(told(&status["parents"][0], "Programmed").contains("max program size"), "{status}");
        let status = home.status(edge.0, edge.1).await?;
        assert!(told(&status, "Programmed").starts_with("True"), "{status}");
        let outcome = home.outcome("httproute/shop", "--for=proxies=100%").await?;
        assert_eq!(outcome.0, Some(1), "{}", outcome.1);

        home.apply(&to_backend).await?;
        home.wait_for(shop, "/parents/0", ("Programmed", "True Programmed")).await?;
        let outcome = home.outcome("gtw/edge", "--for=condition=Programmed").await?;
        assert_eq!(outcome.0, Some(0), "{}", outcome.1);
        drop(envoy);
        home.wait_for(edge, "", ("Programmed", "False NoResources")).await?;
    }
}
