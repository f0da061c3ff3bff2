//! `ISTIO_MUTUAL` between two Envoys, each beside an agent with a certificate.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use e2e::objects::{networking, to};
use e2e::tls::Authority;
use e2e::{Mesh, PATIENCE, certified};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

/// A gateway with an agent.
async fn gateway(mesh: &Mesh, name: &str, authority: &Authority) -> Result<Envoy> {
    let node = Node::gateway(name, "test", "127.0.0.3", &[("app", name)]);
    certified(mesh, node, Protocol::Delta, (authority, name)).await
}

fn service(name: &str, account: &str, address: SocketAddr) -> String {
    let spec = format!(
        "hosts: [{name}.test], resolution: STATIC, location: MESH_INTERNAL, \
         ports: [{{ number: 80, name: http, protocol: HTTP }}], \
         endpoints: [{{ address: {}, ports: {{ http: {} }}, serviceAccount: '{account}' }}]",
        address.ip(),
        address.port()
    );
    networking("ServiceEntry", name, &spec)
}

fn route(name: &str, gateway: &str, host: &str) -> String {
    let target = to(&format!("{host}.test"), 80);
    let spec = format!("hosts: [{name}.test], gateways: [{gateway}], http: [{{ {target} }}]");
    networking("VirtualService", &format!("{name}-{host}"), &spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_of_a_mesh_prove_who_they_are() {
    run().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn run() -> Result<()> {
    let authority = Authority::new("mesh")?;
    let backend = Backend::start("v1", "one").await?;
    let (inner, outer) = (free_port(), free_port());
    let gateway_object = |name: &str, port: u16, protocol: &str, tls: &str| {
        let server = format!("port: {{ number: {port}, name: p, protocol: {protocol} }}, hosts: ['*']{tls}");
        networking("Gateway", name, &format!("selector: {{ app: {name} }}, servers: [{{ {server} }}]"))
    };
    let rule = |name: &str| {
        let spec = format!("host: {name}.test, trafficPolicy: {{ tls: {{ mode: ISTIO_MUTUAL }} }}");
        networking("DestinationRule", name, &spec)
    };
    let at: SocketAddr = ([127, 0, 0, 1], inner).into();
    let mesh = Mesh::start(&[
        ("inner.yaml", &gateway_object("inner", inner, "HTTPS", ", tls: { mode: ISTIO_MUTUAL }")),
        ("outer.yaml", &gateway_object("outer", outer, "HTTP", "")),
        // An endpoint with a service account would get mutual TLS, and this one has no sidecar.
        ("web.yaml", &service("web", "", backend.address())),
        ("good.yaml", &service("good", "inner", at)),
        ("other.yaml", &service("other", "somebody", at)),
        ("good-rule.yaml", &rule("good")),
        ("other-rule.yaml", &rule("other")),
        ("a.yaml", &route("good", "inner", "web")),
        ("b.yaml", &route("other", "inner", "web")),
        ("c.yaml", &route("good", "outer", "good")),
        ("d.yaml", &route("other", "outer", "other")),
    ])
    .await?;
    let server = gateway(&mesh, "inner", &authority).await?;
    let client = gateway(&mesh, "outer", &authority).await?;
    server.wait_for_listener(([0, 0, 0, 0], inner).into()).await?;
    client.wait_for_listener(([0, 0, 0, 0], outer).into()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], outer).into();
    let answered = || async {
        let answer = http::get(address, "/", &[("host", "good.test")]).await.ok()?;
        Some(()).filter(|()| answer.header("x-version") == "v1")
    };
    if let Err(error) = wait_for("an answer over the mesh's TLS", PATIENCE, answered).await {
        return Err(format!("{error}\nclient: {}\nserver: {}", client.log()?, server.log()?).into());
    }
    // The certificate of the same server does not match the identities of the other service's endpoints.
    let before = backend.requests();
    assert_eq!(http::get(address, "/", &[("host", "other.test")]).await?.status.as_u16(), 503);
    assert_eq!(backend.requests(), before);
    // Clients without a certificate of the mesh are rejected, in plaintext, too.
    let plain = http::get(([127, 0, 0, 1], inner).into(), "/", &[("host", "good.test")]).await;
    assert!(plain.is_err() || plain.is_ok_and(|answer| answer.header("x-version").is_empty()));
    Ok(())
}
