//! Routes with services as parents, with real Envoys as sidecars of clients.

use std::net::SocketAddr;

use e2e::objects::static_entry;
use e2e::tls::{self, Authority};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{
    Backend, Envoy, Http2, Node, Preamble, Protocol, Relay, Result, Traffic, free_port, http, wait_for,
};

/// The service that clients call. It is in the namespace `test`.
const HOST: &str = "shop.test";

/// A route of the service; `spec` has its rules.
fn route(kind: &str, namespace: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: shop, namespace: {namespace} }}\n\
         spec: {{ parentRefs: [{{ group: networking.istio.io, kind: ServiceEntry, name: shop, namespace: test }}], \
         rules: {rules} }}\n"
    )
}

/// A rule with a match, filters and a backend: the service of a version.
fn rule(matched: &str, filters: &str, version: &str) -> String {
    format!(
        "{{ matches: [{matched}], filters: [{filters}], \
         backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {version}.test, port: 80 }}] }}"
    )
}

/// A service whose port the sidecars of clients listen on, and two services with its versions.
struct Shop {
    mesh: Mesh,
    address: SocketAddr,
    _versions: [Backend; 2],
}

impl Shop {
    /// Starts the mesh with these routes.
    async fn start(speaks: &str, routes: &[(&str, &str)]) -> Result<Shop> {
        let versions = [Backend::start("v1", "one").await?, Backend::start("v2", "two").await?];
        let port = free_port();
        let shop = static_entry("shop", HOST, (port, speaks), versions[0].address());
        let entries: Vec<String> = versions
            .iter()
            .map(|one| static_entry(one.version(), &format!("{}.test", one.version()), (80, speaks), one.address()))
            .collect();
        let mut files = vec![("shop.yaml", shop.as_str()), ("v1.yaml", &entries[0]), ("v2.yaml", &entries[1])];
        files.extend(routes);
        let mesh = Mesh::start(&files).await?;
        Ok(Shop { mesh, address: ([127, 0, 0, 1], port).into(), _versions: versions })
    }

    /// The sidecar of a client in a namespace. Only one can listen at a time.
    async fn client(&self, namespace: &str, protocol: Protocol) -> Result<Envoy> {
        let node = Node::sidecar("client", namespace, "127.0.0.2", &[("app", "client")]);
        let envoy = self.mesh.envoy(&node, protocol).await?;
        envoy.wait_for_listener(self.address).await?;
        Ok(envoy)
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Response> {
        let headers: Vec<_> = headers.iter().copied().chain([("host", HOST)]).collect();
        http::get(self.address, path, &headers).await
    }
}

both_protocols! {
    async fn producer_routes_apply_to_all_and_consumer_routes_to_their_namespace(protocol) {
        let rewrite = "{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /new } } }";
        let producer = format!("[{}, {}]",
            rule("{ path: { value: /old } }", rewrite, "v2"),
            rule("{ path: { value: /cart } }, { path: { value: /old }, method: POST }", "", "v1"));
        let consumer = format!("[{}]", rule("{ path: { value: /cart } }", "", "v2"));
        let (producer, consumer) = (route("HTTPRoute", "test", &producer), route("HTTPRoute", "buyers", &consumer));
        let shop = Shop::start("HTTP", &[("producer.yaml", &producer), ("consumer.yaml", &consumer)]).await?;

        let client = shop.client("other", protocol).await?;
        assert_eq!(shop.get("/cart", &[]).await?.header("x-version"), "v1");
        let old = shop.get("/old/a", &[]).await?;
        assert_eq!((old.header("x-version"), old.json()?["path"].as_str()), ("v2", Some("/new/a")));
        assert_eq!(shop.get("/else", &[]).await?.status.as_u16(), 404, "the routes replace the default one");
        drop(client);

        let client = shop.client("buyers", protocol).await?;
        assert_eq!(shop.get("/cart", &[]).await?.header("x-version"), "v2");
        assert_eq!(shop.get("/old/a", &[]).await?.status.as_u16(), 404, "producer routes do not apply here");
        shop.mesh.config.remove("producer.yaml")?;
        shop.mesh.reroute(&client, "consumer.yaml", "").await?;
        assert_eq!(shop.get("/else", &[]).await?.header("x-version"), "v1", "the service itself");
    }

    async fn a_changed_backend_loses_no_request(protocol) {
        let only = |version: &str| route("HTTPRoute", "test", &format!("[{}]", rule("{ path: { value: / } }", "", version)));
        // A client that imports only the service: clusters of backends come and go with the routes.
        let scope = format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{ name: default, namespace: test }}\n\
             spec: {{ egress: [{{ hosts: [./{HOST}] }}] }}\n"
        );
        let shop = Shop::start("HTTP", &[("route.yaml", &only("v1")), ("sidecar.yaml", &scope)]).await?;
        let client = shop.client("test", protocol).await?;
        let traffic = Traffic::start(shop.address, "/", &[("host", HOST)], 500, 10);
        assert!(traffic.next(100).await?.by_version.contains_key("v1"));
        for version in ["v2", "v1", "v2"] {
            shop.mesh.reroute(&client, "route.yaml", &only(version)).await?;
            traffic.next(50).await?;
            assert_eq!(traffic.next(100).await?.by_version.keys().collect::<Vec<_>>(), [version]);
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn calls_are_routed_by_method(protocol) {
        let rules = format!("[{}, {}]",
            rule("{ method: { service: shop.Cart, method: Add } }", "", "v2"),
            rule("{ method: { service: shop.Stock } }", "", "v1"));
        let shop = Shop::start("GRPC", &[("route.yaml", &route("GRPCRoute", "test", &rules))]).await?;
        let _client = shop.client("other", protocol).await?;
        let calls = Http2::connect(shop.address).await?;
        let answer = calls.call(HOST, "/shop.Cart/Add", &[], b"").await?;
        assert_eq!((answer.header("x-version"), answer.grpc_status()), ("v2", Some(0)));
        assert_eq!(calls.call(HOST, "/shop.Stock/Get", &[], b"").await?.header("x-version"), "v1");
        let unknown = calls.call(HOST, "/shop.Cart/Remove", &[], b"").await?;
        assert_eq!(unknown.grpc_status(), Some(12), "404 is UNIMPLEMENTED");
    }

    async fn connections_are_routed(protocol) {
        let to = |version: &str| format!(
            "[{{ backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {version}.test, port: 80 }}] }}]"
        );
        let producer = |version: &str| route("TCPRoute", "test", &to(version));
        let consumer = route("TCPRoute", "buyers", &to("gone"));
        let shop = Shop::start("TCP", &[("producer.yaml", &producer("v2")), ("consumer.yaml", &consumer)]).await?;

        let client = shop.client("other", protocol).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v2");
        for version in ["v1", "v2"] {
            shop.mesh.config.put("producer.yaml", &producer(version))?;
            let moved = || async {
                let answer = shop.get("/", &[]).await.ok()?;
                (answer.header("x-version") == version).then_some(())
            };
            wait_for(version, PATIENCE, moved).await?;
        }
        drop(client);

        let _client = shop.client("buyers", protocol).await?;
        assert!(shop.get("/", &[]).await.is_err(), "the backend of the consumer route does not exist");
        shop.mesh.config.remove("consumer.yaml")?;
        let back = || async { shop.get("/", &[]).await.ok().map(drop) };
        wait_for("the producer route to apply", PATIENCE, back).await?;
    }

    async fn tls_connections_are_routed_by_server_name(protocol) {
        let authority = Authority::new("ours")?;
        let hosts = ["a.example.com", "b.example.com", "c.example.com"];
        let versions = [Backend::start("v1", "one").await?, Backend::start("v2", "two").await?];
        let secured = [
            Relay::start(Preamble::Tls(authority.server(&hosts)?), versions[0].address()).await?,
            Relay::start(Preamble::Tls(authority.server(&hosts)?), versions[1].address()).await?,
        ];
        let port = free_port();
        let spec = |names: &str, version: &str| format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {{ name: {version}, namespace: test }}\n\
             spec: {{ parentRefs: [{{ group: networking.istio.io, kind: ServiceEntry, name: shop }}], hostnames: [{names}], \
             rules: [{{ backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {version}.test, port: 443 }}] }}] }}\n"
        );
        let mesh = Mesh::start(&[
            ("shop.yaml", &static_entry("shop", HOST, (port, "TLS"), secured[0].address())),
            ("v1.yaml", &static_entry("v1", "v1.test", (443, "TLS"), secured[0].address())),
            ("v2.yaml", &static_entry("v2", "v2.test", (443, "TLS"), secured[1].address())),
            ("one.yaml", &spec(hosts[0], "v1")),
            ("two.yaml", &spec(hosts[1], "v2")),
        ]).await?;
        let node = Node::sidecar("client", "other", "127.0.0.2", &[("app", "client")]);
        let client = mesh.envoy(&node, protocol).await?;
        client.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
        let answered = async |host: &str, by: &str| {
            let answer = tls::get(port, host, &authority.pem, None).await;
            answer.is_ok_and(|answer| answer.contains(&format!("x-version: {by}")))
        };
        assert!(answered(hosts[0], "v1").await && answered(hosts[1], "v2").await);
        assert!(tls::get(port, hosts[2], &authority.pem, None).await.is_err(), "no route has the name");
        mesh.config.put("two.yaml", &spec("'*.example.com'", "v2"))?;
        let wide = || async { answered(hosts[2], "v2").await.then_some(()) };
        wait_for("a name of the wildcard", PATIENCE, wide).await?;
        assert!(answered(hosts[0], "v1").await, "the more specific name");
    }
}
