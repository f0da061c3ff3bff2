//! Ingresses beside a Gateway of the Gateway API on one gateway proxy, with a real Envoy in a network namespace: Ingresses are served
//! on port 80.

use std::net::SocketAddr;

use e2e::objects::service;
use e2e::{Mesh, Namespace, PATIENCE, both_protocols, envoy_binary};
use test_harness::run::{Backend, Envoy, Node, Result, http, wait_for};

/// An Ingress with this host, whose paths lead to a service.
fn ingress(host: &str, path: &str, to: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: {to}, namespace: test, \
         annotations: {{ kubernetes.io/ingress.class: istio }} }}\nspec: {{ rules: [{{ host: {host}, http: {{ paths: \
         [{{ path: {path}, pathType: Prefix, backend: {{ service: {{ name: {to}, port: {{ number: 80 }} }} }} }}] }} }}] }}\n"
    )
}

/// An HTTPRoute of the Gateway `edge` with these hosts, which leads to a service.
fn route(hosts: &str, to: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: {to}, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], hostnames: [{hosts}], rules: [{{ backendRefs: [{{ name: {to}, port: 80 }}] }}] }}\n"
    )
}

/// The version that answers a request; the status without one.
async fn answer(address: SocketAddr, host: &str, path: &str) -> Result<String> {
    let answer = http::get(address, path, &[("host", host)]).await?;
    Ok(match answer.header("x-version") {
        "" => answer.status.as_u16().to_string(),
        version => version.to_owned(),
    })
}

both_protocols! {
    async fn both_are_served_on_one_port(protocol) {
        let what = "Ingresses beside a Gateway were not tested";
        let namespace = match Namespace::uncaptured()? {
            Ok(namespace) => namespace,
            Err(missing) => {
                eprintln!("{what}: {missing}");
                return Ok(());
            }
        };
        let (old, new) = (
            Backend::start_on(namespace.host.into(), "old", "one").await?,
            Backend::start_on(namespace.host.into(), "new", "two").await?,
        );
        let of = |name: &str, address: &str, backend: &Backend| {
            service(name, address, ("http", 80, backend.address().port()), &[namespace.host.into()])
        };
        let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: edge, namespace: test }\n\
                       spec: { gatewayClassName: istio, listeners: [{ name: http, port: 80, protocol: HTTP }] }\n";
        let mesh = Mesh::start_on(namespace.host.into(), &[
            ("old.yaml", &of("old", "10.96.0.1", &old)),
            ("new.yaml", &of("new", "10.96.0.2", &new)),
            ("ingress.yaml", &ingress("old.example.com", "/", "old")),
            ("gateway.yaml", gateway),
            ("route.yaml", &route("new.example.com", "new")),
        ]).await?;
        let ip = namespace.ip.to_string();
        let labels = [("istio", "ingressgateway"), ("gateway.networking.k8s.io/gateway-name", "edge")];
        let mut node = Node::gateway("edge", "test", &ip, &labels);
        node.metadata["UNPRIVILEGED_POD"] = "false".into();
        let grpc = mesh.control.grpc();
        let envoy = Envoy::start_in_namespace(envoy_binary(), &node, protocol, grpc, (&namespace.name, &ip)).await?;
        envoy.wait_for_listener(([0, 0, 0, 0], 80).into()).await?;
        let at: SocketAddr = (namespace.ip, 80).into();
        for (host, wanted) in [("old.example.com", "old"), ("new.example.com", "new"), ("other.example.com", "404")] {
            let reached = || async { (answer(at, host, "/").await.ok()? == wanted).then_some(()) };
            wait_for(&format!("{wanted} for {host}"), PATIENCE, reached).await?;
        }

        // A host of both: the paths of the Ingress come first, and the HTTPRoute has the others.
        mesh.config.put("ingress.yaml", &ingress("new.example.com", "/cart", "old"))?;
        let moved = || async { (answer(at, "new.example.com", "/cart").await.ok()? == "old").then_some(()) };
        wait_for("the Ingress to have the path", PATIENCE, moved).await?;
        let gone = || async { (answer(at, "old.example.com", "/").await.ok()? == "404").then_some(()) };
        wait_for("the host that the Ingress had", PATIENCE, gone).await?;
        assert_eq!(answer(at, "new.example.com", "/else").await?, "new");
        mesh.config.remove("ingress.yaml")?;
        let back = || async { (answer(at, "new.example.com", "/cart").await.ok()? == "new").then_some(()) };
        wait_for("the HTTPRoute to have all paths", PATIENCE, back).await?;
    }
}
