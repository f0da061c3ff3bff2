//! Endpoints that are sent singly (LEDS), with a real Envoy: they come, go and move under traffic, clusters change, and the
//! control plane dies.

use std::time::Duration;

use e2e::{HOST, Mesh, Shop};
use test_harness::run::{Backend, Node, Protocol, Result, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
/// All clusters are large.
const SINGLY: [&str; 2] = ["--leds-min-endpoints", "1"];

async fn shop(versions: &[&str], policy: &str) -> Result<Shop> {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}] }}]");
    let policy = format!("{{ tls: {{ mode: DISABLE }}{policy} }}");
    Shop::with_flags(&SINGLY, Protocol::Delta, versions, &route, &policy).await
}

/// How many responses with single endpoints, or without any, the cluster has taken.
async fn taken(shop: &Shop) -> Result<u64> {
    let stats = shop.client.stats(r"^cluster\..*\.leds\.update_success$").await?;
    Ok(stats.values().sum())
}

fn addresses<'a>(backends: impl IntoIterator<Item = &'a Backend>) -> Vec<String> {
    backends
        .into_iter()
        .map(|backend| backend.address().to_string())
        .collect()
}

/// The entry of an instance in this locality.
fn instance(backend: &Backend, locality: &str) -> String {
    let address = backend.address();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{ name: {}, namespace: test }}\n\
         spec: {{ address: {}, ports: {{ main: {} }}, locality: {locality}, labels: {{ app: shop, version: v1 }} }}\n",
        backend.instance(),
        address.ip(),
        address.port()
    )
}

/// Gives an instance an entry in this locality.
fn enlist(shop: &Shop, backend: &Backend, locality: &str) -> Result<()> {
    let file = format!("{}.yaml", backend.instance());
    shop.mesh.config.put(&file, &instance(backend, locality))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_replaced_one_by_one_under_load() -> Result<()> {
    let mut shop = shop(&["v1", "v1"], "").await?;
    let cluster = shop.cluster("");
    let traffic = shop.traffic(300);
    for number in 0..20 {
        let next = Backend::start("v1", &format!("next-{number}")).await?;
        shop.enlist("v1", &next)?;
        shop.delist(&shop.instances[0])?;
        shop.instances.push(next);
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances[1..]))
            .await?;
        traffic.next(30).await?;
        shop.instances.remove(0);
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    assert!(counts.by_instance.len() >= 20, "{counts:?}");
    assert!(taken(&shop).await? >= 20, "they came singly");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn localities_come_and_go_and_those_after_them_take_over() -> Result<()> {
    // Weights of localities and priorities are in the assignment, which changes before and after endpoints do.
    let policy = ", outlierDetection: { consecutive5xxErrors: 100 }, \
        loadBalancer: { simple: ROUND_ROBIN, localityLbSetting: { failoverPriority: [topology.kubernetes.io/region] } }";
    let mut shop = shop(&[], policy).await?;
    let cluster = shop.cluster("");
    for (name, locality) in [("near", "\"\""), ("far", "there/a"), ("farther", "there/b")] {
        let next = Backend::start("v1", name).await?;
        enlist(&shop, &next, locality)?;
        shop.instances.push(next);
    }
    shop.mesh
        .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances))
        .await?;
    let traffic = shop.traffic(300);
    for round in 0..5 {
        let counts = traffic.next(50).await?;
        assert!(counts.by_instance.contains_key("near"), "{round}: {counts:?}");
        let more = Backend::start("v1", &format!("more-{round}")).await?;
        enlist(&shop, &more, "there/b")?;
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(shop.instances.iter().chain([&more])))
            .await?;
        // The near locality goes, and others have its priority.
        shop.delist(&shop.instances[0])?;
        let left = addresses(shop.instances[1..].iter().chain([&more]));
        shop.mesh.wait_for_endpoints(&shop.client, &cluster, &left).await?;
        traffic.next(5).await?;
        let counts = traffic.next(100).await?;
        assert!(!counts.by_instance.contains_key("near"), "{round}: {counts:?}");
        assert!(counts.by_instance.len() > 1, "{round}: {counts:?}");
        enlist(&shop, &shop.instances[0], "\"\"")?;
        shop.delist(&more)?;
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances))
            .await?;
        traffic.next(20).await?;
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_changes_keeps_its_endpoints() -> Result<()> {
    let shop = shop(&["v1", "v1"], "").await?;
    let cluster = shop.cluster("");
    let traffic = shop.traffic(300);
    traffic.next(30).await?;
    for round in 1..=5u32 {
        let before = shop.client.stat("^cluster_manager.cluster_modified$").await?;
        let policy = format!(
            "{{ tls: {{ mode: DISABLE }}, connectionPool: {{ tcp: {{ maxConnections: {} }} }} }}",
            100 + round
        );
        shop.mesh
            .config
            .put("service.yaml", &e2e::shop_service(shop.port, &policy, &[]))?;
        wait_for("the cluster to change", PATIENCE, || async {
            let modified = shop.client.stat("^cluster_manager.cluster_modified$").await.ok()?;
            let warming = shop.client.stat("^cluster_manager.warming_clusters$").await.ok()?;
            (modified > before && warming == 0).then_some(())
        })
        .await?;
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances))
            .await?;
        let counts = traffic.next(50).await?;
        assert_eq!(counts.errors, 0, "{round}: {counts:?}");
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_while_the_control_plane_was_away_is_forgotten() -> Result<()> {
    let mut shop = shop(&["v1", "v1"], "").await?;
    let cluster = shop.cluster("");
    let traffic = shop.traffic(200);
    traffic.next(30).await?;
    for round in 0..3 {
        shop.mesh.control.kill().await?;
        traffic.next(30).await?;
        let next = Backend::start("v1", &format!("next-{round}")).await?;
        shop.enlist("v1", &next)?;
        shop.delist(&shop.instances[0])?;
        shop.instances.push(next);
        shop.mesh.control.begin().await?;
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances[1..]))
            .await?;
        traffic.next(30).await?;
        shop.instances.remove(0);
        // And from then on they come singly again.
        let (before, next) = (
            taken(&shop).await?,
            Backend::start("v1", &format!("more-{round}")).await?,
        );
        shop.enlist("v1", &next)?;
        shop.instances.push(next);
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances))
            .await?;
        assert!(taken(&shop).await? > before, "{round}");
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_grows_and_shrinks_changes_the_way_it_is_sent() -> Result<()> {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}] }}]");
    let flags = ["--leds-min-endpoints", "3"];
    let policy = "{ tls: { mode: DISABLE } }";
    let mut shop = Shop::with_flags(&flags, Protocol::Delta, &["v1", "v1"], &route, policy).await?;
    let cluster = shop.cluster("");
    let traffic = shop.traffic(300);
    for round in 0..5 {
        let next = Backend::start("v1", &format!("next-{round}")).await?;
        shop.enlist("v1", &next)?;
        shop.instances.push(next);
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances))
            .await?;
        traffic.next(30).await?;
        assert!(taken(&shop).await? > 0, "{round}: three come singly");
        shop.delist(&shop.instances[0])?;
        shop.mesh
            .wait_for_endpoints(&shop.client, &cluster, &addresses(&shop.instances[1..]))
            .await?;
        traffic.next(30).await?;
        shop.instances.remove(0);
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}

/// A slice of a service, whose endpoints are ready or not.
fn slice(ready: [bool; 3]) -> String {
    let endpoint = |(number, ready): (usize, bool)| {
        format!("- {{ addresses: [10.0.0.{number}], conditions: {{ ready: {ready}, terminating: false }} }}\n")
    };
    let endpoints: String = (1..).zip(ready).map(endpoint).collect();
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: big-1, namespace: test, labels: {{ kubernetes.io/service-name: big }} }}\n\
         addressType: IPv4\nports: [{{ name: http, port: 8080, protocol: TCP }}]\nendpoints:\n{endpoints}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_are_not_ready_are_unhealthy() -> Result<()> {
    let service = "apiVersion: v1\nkind: Service\nmetadata: { name: big, namespace: test }\n\
        spec: { clusterIP: 10.96.0.1, ports: [{ name: http, port: 80, targetPort: 8080 }] }\n";
    let all = slice([true; 3]);
    let mesh = Mesh::start_with(&[("service.yaml", service), ("slice.yaml", &all)], &SINGLY).await?;
    let node = Node::sidecar("client", "test", "127.0.0.2", &[]);
    let envoy = mesh.envoy(&node, Protocol::Delta).await?;
    for ready in [[true; 3], [true, false, true], [false, true, false], [true; 3]] {
        mesh.config.put("slice.yaml", &slice(ready))?;
        let flags = (1..).zip(ready).map(|(number, ready): (usize, bool)| {
            let flags = if ready { "healthy" } else { "/failed_eds_health" };
            format!("outbound|80||big.test.svc.cluster.local::10.0.0.{number}:8080::health_flags::{flags}\n")
        });
        let flags: Vec<String> = flags.collect();
        wait_for(&format!("{flags:?}"), PATIENCE, || async {
            let clusters = envoy.admin("/clusters").await.ok()?.text();
            flags.iter().all(|flags| clusters.contains(flags)).then_some(())
        })
        .await?;
    }
    Ok(())
}
