//! InferencePools behind a Gateway: an endpoint picker selects the endpoint of each request, with a real Envoy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use e2e::objects::service;
use e2e::{Mesh, PATIENCE, Picker, both_protocols};
use test_harness::run::http::Response;
use test_harness::run::{Backend, Envoy, Http2, Protocol, Result, free_port, http, wait_for};

const LOOPBACK: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
const HOST: &str = "models.example.com";
/// The cluster of the picker.
const PICKER: &str = "outbound|9002||picker.test.svc.cluster.local";

/// A pool with one pod and two target ports, a Service, and a proxy of the Gateway.
struct Models {
    mesh: Mesh,
    envoy: Envoy,
    address: SocketAddr,
    servers: [Backend; 2],
    _web: Backend,
    picker: Picker,
}

impl Models {
    async fn start(protocol: Protocol) -> Result<Models> {
        let servers = [Backend::start("model", "one").await?, Backend::start("model", "two").await?];
        let (web, picker) = (Backend::start("web", "web").await?, Picker::start().await?);
        let port = free_port();
        let gateway = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
             spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: {port}, protocol: HTTP }}] }}\n"
        );
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: { name: llama, namespace: test, labels: { app: llama } }\n\
                   status: { phase: Running, podIP: 127.0.0.1, conditions: [{ type: Ready, status: 'True' }] }\n";
        let files = [
            ("gateway.yaml", &*gateway),
            ("pod.yaml", pod),
            ("web.yaml", &service("web", "240.0.0.1", ("http", 80, web.address().port()), &LOOPBACK)),
            ("picker.yaml", &service("picker", "240.0.0.2", ("grpc", 9002, picker.address().port()), &LOOPBACK)),
            ("pool.yaml", &pool(&servers, "FailClose")),
            ("route.yaml", &route(&format!("[{POOL}]"))),
        ];
        let mesh = Mesh::start(&files).await?;
        let envoy = mesh.edge(protocol, &[port]).await?;
        let address = ([127, 0, 0, 1], port).into();
        Ok(Models { mesh, envoy, address, servers, _web: web, picker })
    }

    async fn get(&self, headers: &[(&str, &str)]) -> Result<Response> {
        let headers: Vec<_> = headers.iter().copied().chain([("host", HOST)]).collect();
        http::get(self.address, "/", &headers).await
    }

    /// Waits until requests are answered with this status.
    async fn answers(&self, status: u16) -> Result<()> {
        let answered = || async { self.get(&[]).await.ok().filter(|response| response.status == status).map(drop) };
        wait_for(&format!("the status {status}"), PATIENCE, answered).await
    }

    async fn fails(&self, mode: &str) -> Result<()> {
        self.mesh.reroute(&self.envoy, "pool.yaml", &pool(&self.servers, mode)).await
    }
}

/// A reference to the pool.
const POOL: &str = "{ group: inference.networking.k8s.io, kind: InferencePool, name: llama, weight: 1 }";

fn pool(servers: &[Backend; 2], mode: &str) -> String {
    let [one, two] = servers.each_ref().map(|server| server.address().port());
    format!(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{ name: llama, namespace: test }}\n\
         spec: {{ selector: {{ matchLabels: {{ app: llama }} }}, targetPorts: [{{ number: {one} }}, {{ number: {two} }}], \
         endpointPickerRef: {{ name: picker, port: {{ number: 9002 }}, failureMode: {mode} }} }}\n"
    )
}

fn route(backends: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: models, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], hostnames: [{HOST}], rules: [{{ backendRefs: {backends} }}] }}\n"
    )
}

both_protocols! {
    async fn the_picker_selects_the_endpoint(protocol) {
        let models = Models::start(protocol).await?;
        for turn in 0..4 {
            let server = &models.servers[turn % 2];
            let endpoint = server.address().to_string();
            models.picker.select(&endpoint);
            let other = models.servers[(turn + 1) % 2].address().to_string();
            for _ in 0..3 {
                let response = models.get(&[("x-gateway-destination-endpoint", &other)]).await?;
                assert_eq!(response.status.as_u16(), 200, "{}", response.text());
                assert_eq!(response.header("x-instance"), ["one", "two"][turn % 2], "the client does not choose");
                assert_eq!(models.picker.served(), endpoint, "the picker learns who served");
            }
        }
        assert_eq!(models.picker.asked(), 12);
        // Bodies pass through the picker.
        let connection = Http2::connect(models.address).await?;
        let body = vec![b'x'; 300_000].into();
        let response = connection.send(http::Method::POST, HOST, "/", &[], body).await?;
        assert_eq!(response.status.as_u16(), 200, "{}", response.text());
        assert_eq!(models.picker.received(), 300_000);
        // Endpoints that the pool does not have are skipped.
        models.picker.select(&format!("127.0.0.1:1,{}", models.servers[0].address()));
        assert_eq!(models.get(&[]).await?.header("x-instance"), "one");
        models.picker.select("127.0.0.1:1");
        assert_eq!(models.get(&[]).await?.status.as_u16(), 200);
    }

    async fn the_failure_mode_decides_without_a_picker(protocol) {
        let models = Models::start(protocol).await?;
        models.picker.select(&models.servers[0].address().to_string());
        models.answers(200).await?;
        // Nobody listens there.
        let nobody = service("picker", "240.0.0.2", ("grpc", 9002, free_port()), &LOOPBACK);
        models.mesh.config.put("picker.yaml", &nobody)?;
        models.answers(500).await?;
        models.fails("FailOpen").await?;
        models.answers(200).await?;
        // The Service has no endpoints, and then it does not exist.
        models.mesh.config.put("picker.yaml", &service("picker", "240.0.0.2", ("grpc", 9002, 9), &[]))?;
        models.mesh.wait_for_endpoints(&models.envoy, PICKER, &[]).await?;
        models.answers(200).await?;
        models.mesh.config.remove("picker.yaml")?;
        let gone = || async { models.envoy.endpoints(PICKER).await.ok().filter(Option::is_none).map(drop) };
        wait_for("no cluster of the picker", PATIENCE, gone).await?;
        for _ in 0..10 {
            assert_eq!(models.get(&[]).await?.status.as_u16(), 200);
        }
        models.fails("FailClose").await?;
        models.answers(500).await?;
        assert_eq!(models.get(&[]).await?.status.as_u16(), 500);
    }

    async fn a_service_beside_a_pool_is_not_shown_to_the_picker(protocol) {
        let models = Models::start(protocol).await?;
        models.picker.select(&models.servers[1].address().to_string());
        models.answers(200).await?;
        let both = route(&format!("[{{ name: web, port: 80, weight: 1 }}, {POOL}]"));
        models.mesh.reroute(&models.envoy, "route.yaml", &both).await?;
        let before = models.picker.asked();
        let (mut web, mut two) = (0, 0);
        for _ in 0..100 {
            match models.get(&[]).await?.header("x-instance") {
                "web" => web += 1,
                "two" => two += 1,
                other => return Err(format!("answered by {other:?}").into()),
            }
        }
        assert!(web > 20 && two > 20, "{web} and {two}");
        assert_eq!(models.picker.asked() - before, two);
    }
}
