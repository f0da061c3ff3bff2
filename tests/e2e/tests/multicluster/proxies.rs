//! Resources of proxies in several clusters.

use std::net::UdpSocket;

use e2e::cluster::apply_crds;
use e2e::envoy_binary;
use e2e::home::{PATIENCE, Rutter};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

use super::mesh::{HOME, MESH, admin, apply, cluster, endpoint, has, is_as_new, secret};

/// The address at which other machines reach this one; `None` if it has loopback addresses only.
pub(super) fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: connecting a UDP socket only selects a route.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A real proxy uses the endpoints of two clusters, and of the remaining one after the other is removed.
async fn answered() -> Result<()> {
    let Some(ip) = own_address() else {
        eprintln!("skipped: this machine has no address that Kubernetes takes for an endpoint");
        return Ok(());
    };
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    let port = free_port();
    let near = Backend::start_on(ip, "near", "near").await?;
    let far = Backend::start_on(ip, "far", "far").await?;
    endpoint(&home, "cart", &ip.to_string(), port, near.address().port()).await?;
    endpoint(&east, "cart", &ip.to_string(), port, far.address().port()).await?;
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: { name: cart, namespace: shop }\nspec: { host: \
                cart.shop.svc.cluster.local, trafficPolicy: { tls: { mode: DISABLE } } }\n";
    apply_crds(&home).await?;
    apply(&home, rule).await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    let node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
    let address = ([127, 0, 0, 1], port).into();
    envoy.wait_for_listener(address).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let cluster = &cluster;
    let runs = |backends: Vec<String>| {
        let (envoy, mut wanted) = (&envoy, backends);
        wanted.sort();
        async move {
            let wanted = &wanted;
            let reached = move || async move {
                let found = envoy.endpoints(cluster).await.ok().flatten()?;
                (found == *wanted).then_some(())
            };
            wait_for(&format!("{wanted:?} in the proxy"), PATIENCE, reached).await
        }
    };
    runs(vec![near.address().to_string(), far.address().to_string()]).await?;
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let answer = http::get(address, "/", &[("host", "cart.shop.svc.cluster.local")]).await?;
        versions.insert(answer.header("x-version").to_owned());
    }
    assert_eq!(versions.len(), 2, "{versions:?}");
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    runs(vec![near.address().to_string()]).await?;
    for _ in 0..10 {
        let answer = http::get(address, "/", &[("host", "cart.shop.svc.cluster.local")]).await?;
        assert_eq!(answer.header("x-version"), "near");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_reach_endpoints_in_two_clusters() {
    answered().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A client sees the gateway of another network in place of its endpoints; a client in that network sees the endpoints.
async fn networks() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    let port = free_port();
    let label = |network: &str| format!("topology.istio.io/network={network}");
    home.kubectl(&["label", "namespace", MESH, &label("near")], "").await?;
    east.kubectl(&["label", "namespace", MESH, &label("far")], "").await?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: istio, namespace: mesh }\ndata: { mesh: \"rootNamespace: mesh\" }\n";
    apply(&home, map).await?;
    endpoint(&home, "cart", "10.1.0.1", port, 8080).await?;
    endpoint(&east, "cart", "10.2.0.1", port, 8080).await?;
    let gateway = "apiVersion: v1\nkind: Service\nmetadata: { name: eastwest, namespace: mesh, labels: { topology.istio.io/network: far \
                   } }\nspec: { externalIPs: [192.0.2.50], ports: [{ name: tls, port: 15443 }] }\n---\napiVersion: v1\nkind: \
                   Pod\nmetadata: { name: cart-1, namespace: shop, labels: { security.istio.io/tlsMode: istio } }\nspec: { nodeName: \
                   n1, containers: [{ name: a, image: a }], tolerations: [{ operator: Exists }] }\n";
    apply(&east, gateway).await?;
    let status = r#"{"status":{"phase":"Running","podIP":"10.2.0.1","podIPs":[{"ip":"10.2.0.1"}],"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let patch = ["patch", "pod", "cart-1", "-n", "shop", "--subresource=status", "--type=merge", "-p", status];
    east.kubectl(&patch, "").await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let sees = async |network: &str, id: &str, wanted: &[&str]| -> Result<()> {
        let mut node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
        node.metadata["NETWORK"] = network.into();
        node.metadata["CLUSTER_ID"] = id.into();
        let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
        let (envoy, cluster) = (&envoy, &cluster);
        let reached = || async move {
            let found = envoy.endpoints(cluster).await.ok().flatten()?;
            (found == wanted).then_some(())
        };
        let reached = wait_for(&format!("{wanted:?} for a client in {network}"), PATIENCE, reached).await;
        match reached {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; there are {:?}", envoy.endpoints(cluster).await?).into()),
        }
    };
    sees("near", "home", &["10.1.0.1:8080", "192.0.2.50:15443"]).await?;
    // The network of the home cluster has no gateway: it is reached directly.
    sees("far", "east", &["10.1.0.1:8080", "10.2.0.1:8080"]).await?;
    let away = r#"{"spec":{"externalIPs":["192.0.2.51"]}}"#;
    east.kubectl(&["patch", "service", "eastwest", "-n", MESH, "--type=merge", "-p", away], "").await?;
    sees("near", "home", &["10.1.0.1:8080", "192.0.2.51:15443"]).await?;
    is_as_new(&rutter, &home).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_in_another_network_are_reached_through_its_gateway() {
    networks().await.unwrap_or_else(|error| panic!("{error}"));
}

/// With `--mcs-service-discovery`, clients in other clusters get only endpoints of clusters that export the service.
async fn shared() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    apply_crds(&home).await?;
    apply_crds(&east).await?;
    let port = free_port();
    endpoint(&home, "cart", "10.1.0.1", port, 8080).await?;
    endpoint(&east, "cart", "10.2.0.1", port, 8080).await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, &[HOME, &["--mcs-service-discovery", "on"]].concat())?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let mut node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
    node.metadata["CLUSTER_ID"] = "home".into();
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let (envoy, cluster) = (&envoy, &cluster);
    let sees = async |wanted: &[&str]| {
        let reached = || async move {
            let found = envoy.endpoints(cluster).await.ok().flatten()?;
            (found == wanted).then_some(())
        };
        wait_for(&format!("{wanted:?}"), PATIENCE, reached).await
    };
    sees(&["10.1.0.1:8080"]).await?;
    let export =
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: { name: cart, namespace: shop }\n";
    apply(&east, export).await?;
    sees(&["10.1.0.1:8080", "10.2.0.1:8080"]).await?;
    east.kubectl(&["delete", "serviceexport", "cart", "-n", "shop"], "").await?;
    sees(&["10.1.0.1:8080"]).await?;
    is_as_new(&rutter, &home).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_unexported_services_stay_in_their_cluster() {
    shared().await.unwrap_or_else(|error| panic!("{error}"));
}
