//! A gateway: hosts, paths, and the response to requests that match nothing.

use std::net::SocketAddr;

use e2e::{HOST, Shop, both_protocols, virtual_service};
use test_harness::run::{Envoy, Node, Protocol, Result, free_port, http};

fn to(version: &str, rest: &str) -> String {
    format!("{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}")
}

/// Adds a Gateway with these hosts, and an Envoy for it.
async fn gateway(shop: &Shop, protocol: Protocol, hosts: &str) -> Result<(Envoy, SocketAddr)> {
    let port = free_port();
    let text = format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{ name: front, namespace: test }}\n\
         spec: {{ selector: {{ app: front }}, servers: [{{ port: {{ number: {port}, name: http, protocol: HTTP }}, \
         hosts: {hosts} }}] }}\n"
    );
    shop.mesh.config.put("gateway.yaml", &text)?;
    let node = Node::gateway("front", "test", "127.0.0.3", &[("app", "front")]);
    let envoy = shop.mesh.envoy(&node, protocol).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
    Ok((envoy, ([127, 0, 0, 1], port).into()))
}

both_protocols! {
    async fn a_gateway_routes_by_host_and_path(protocol) {
        let routes = format!("[{}, {}]", to("v2", ", match: [{ uri: { prefix: /new } }]"), to("v1", ""));
        let shop = Shop::start(protocol, &["v1", "v2"], &routes).await?;
        shop.mesh.config.put("route.yaml", &virtual_service("[front]", &routes))?;
        let (_envoy, address) = gateway(&shop, protocol, &format!("[{HOST}]")).await?;
        let get = async |host: &str, path: &str| http::get(address, path, &[("host", host)]).await;
        assert_eq!(get(HOST, "/new").await?.header("x-version"), "v2");
        assert_eq!(get(HOST, "/").await?.header("x-version"), "v1");
        let stranger = get("other.example", "/").await?;
        assert_eq!((stranger.status.as_u16(), stranger.header("x-version")), (404, ""));
    }

    async fn a_route_that_is_bound_later_reaches_the_gateway_without_a_lost_request(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{}]", to("v1", ""))).await?;
        let bound = |version: &str| virtual_service("[mesh, front]", &format!("[{}]", to(version, "")));
        shop.mesh.config.put("route.yaml", &bound("v1"))?;
        let (envoy, address) = gateway(&shop, protocol, "['*']").await?;
        let traffic = test_harness::run::Traffic::start(address, "/", &[("host", HOST)], 300, 6);
        assert!(traffic.next(100).await?.by_version.contains_key("v1"));
        shop.mesh.reroute(&envoy, "route.yaml", &bound("v2")).await?;
        traffic.next(20).await?;
        assert_eq!(traffic.next(100).await?.by_version.keys().collect::<Vec<_>>(), ["v2"]);
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }
}
