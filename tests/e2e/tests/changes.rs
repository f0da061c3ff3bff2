//! Changes under load lose no request, and proxies keep working while the control plane is stopped.

use std::time::Duration;

use e2e::objects::{networking, static_entry};
use e2e::{HOST, Shop, both_protocols};
use test_harness::run::{Backend, Protocol, wait_for};

/// The maximum number of bytes that a proxy receives when it reconnects and nothing has changed: HTTP/2 settings and
/// headers, and empty responses.
const GREETING: u64 = 1_024;

fn to(version: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}] }}]")
}

both_protocols! {
    async fn route_changes_under_load_lose_no_request(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &to("v1")).await?;
        let traffic = shop.traffic(500);
        traffic.next(100).await?;
        for round in 0..10 {
            shop.route(&to(if round % 2 == 0 { "v2" } else { "v1" })).await?;
            traffic.next(50).await?;
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert!(counts.by_version.values().all(|n| *n > 100) && counts.by_version.len() == 2, "{counts:?}");
    }

    async fn replacing_twenty_endpoints_under_load_loses_no_request(protocol) {
        let mut shop = Shop::start(protocol, &["v1", "v1"], &to("v1")).await?;
        let traffic = shop.traffic(500);
        for number in 0..20 {
            let next = Backend::start("v1", &format!("next-{number}")).await?;
            shop.enlist("v1", &next)?;
            shop.delist(&shop.instances[0])?;
            shop.instances.push(next);
            let left: Vec<String> = shop.instances[1..].iter().map(|b| b.address().to_string()).collect();
            shop.mesh.wait_for_endpoints(&shop.client, &shop.cluster("v1"), &left).await?;
            // Requests in flight are answered before the instance stops.
            traffic.next(30).await?;
            shop.instances.remove(0);
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert!(counts.by_instance.len() >= 20, "{counts:?}");
    }

    async fn a_new_subset_and_the_route_to_it_in_one_file_lose_no_request(protocol) {
        // The route must not reach the proxy before the cluster that it references.
        let shop = Shop::start(protocol, &["v1", "v3"], &to("v1")).await?;
        let traffic = shop.traffic(500);
        for round in 0..5 {
            let subset = format!("v3-{round}");
            let text = format!(
                "{}\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
                 metadata: {{ name: extra, namespace: test }}\n\
                 spec: {{ host: {HOST}, subsets: [{{ name: {subset}, labels: {{ version: v3 }} }}] }}\n",
                e2e::virtual_service("[mesh]", &to(&subset))
            );
            shop.mesh.reroute(&shop.client, "route.yaml", &text).await?;
            let counts = traffic.next(100).await?;
            assert_eq!(counts.errors, 0, "{subset}: {counts:?}");
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert!(counts.by_version["v3"] > 300, "{counts:?}");
    }

    async fn a_service_that_becomes_private_and_public_again_loses_no_request(protocol) {
        // Its clusters move between the list that namespaces share and the proxy's own one.
        let shop = Shop::start(protocol, &["v1", "v2"], &to("v1")).await?;
        let traffic = shop.traffic(500);
        for round in 0..6 {
            let subset = format!("round-{round}");
            let before = format!("  - {{ name: round-{}, labels: {{ version: v2 }} }}\n", round - 1);
            let visibility = if round % 2 == 0 { "exportTo: [.]" } else { "exportTo: ['*']" };
            let text = e2e::shop_service(shop.port, "{ tls: { mode: DISABLE } }", &[])
                .replace("spec:\n", &format!("spec:\n  {visibility}\n"))
                .replace("subsets:\n", &format!("subsets:\n  - {{ name: {subset}, labels: {{ version: v2 }} }}\n{before}"));
            shop.mesh.config.put("service.yaml", &text)?;
            shop.mesh.reroute(&shop.client, "route.yaml", &e2e::virtual_service("[mesh]", &to(&subset))).await?;
            let counts = traffic.next(100).await?;
            assert_eq!(counts.errors, 0, "{subset}: {counts:?}");
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert!(counts.by_version["v2"] > 400, "{counts:?}");
        assert_eq!(shop.client.stat("update_rejected$").await?, 0, "nothing was rejected");
    }

    async fn a_killed_control_plane_disturbs_nobody_and_resends_nothing(protocol) {
        let mut shop = Shop::start(protocol, &["v1", "v2"], &to("v1")).await?;
        let traffic = shop.traffic(300);
        traffic.next(100).await?;
        let (first_sync, updates) = (shop.client.discovery_bytes().await?, updates(&shop).await?);
        shop.mesh.control.kill().await?;
        traffic.next(200).await?;
        shop.mesh.control.begin().await?;
        wait_for("Envoy to come back", Duration::from_secs(20), || async {
            shop.client.stat("^control_plane.connected_state$").await.ok().filter(|state| *state == 1).map(drop)
        })
        .await?;
        // The new control plane has answered all subscriptions when a change arrives through it.
        traffic.next(300).await?;
        let again = shop.client.discovery_bytes().await? - first_sync;
        assert!(again <= GREETING, "{again} bytes after the restart, {first_sync} before");
        assert_eq!(updates, self::updates(&shop).await?, "nothing was applied again");
        shop.route(&to("v2")).await?;
        traffic.next(20).await?;
        let counts = traffic.next(200).await?;
        assert!((counts.share("v2") - 1.0).abs() < f64::EPSILON, "changes of the new control plane arrive: {counts:?}");
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn a_connection_of_maximum_age_is_opened_again_and_resends_nothing(protocol) {
        let flags = ["--max-connection-age", "500ms"];
        let policy = "{ tls: { mode: DISABLE } }";
        let shop = Shop::with_flags(&flags, protocol, &["v1", "v2"], &to("v1"), policy).await?;
        let traffic = shop.traffic(300);
        traffic.next(100).await?;
        let updates = updates(&shop).await?;
        let connections = || shop.client.stat("^cluster.xds-grpc.upstream_cx_total$");
        let before = connections().await?;
        wait_for("three more connections", Duration::from_secs(60), || async {
            connections().await.ok().filter(|now| *now >= before + 3).map(drop)
        })
        .await?;
        assert_eq!(updates, self::updates(&shop).await?, "nothing was applied again");
        // The server ends connections with GOAWAY.
        assert!(shop.client.stat("^cluster.xds-grpc.upstream_cx_close_notify$").await? >= 2);
        shop.route(&to("v2")).await?;
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn what_changed_while_the_control_plane_was_away_arrives_when_it_is_back(protocol) {
        let mut shop = Shop::start(protocol, &["v1", "v2"], &to("v1")).await?;
        assert!(shop.mesh.control.stop().await?, "a graceful stop ends without an error");
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
        let next = Backend::start("v2", "shop-late").await?;
        shop.enlist("v2", &next)?;
        shop.delist(&shop.instances[1])?;
        shop.mesh.config.put("route.yaml", &e2e::virtual_service("[mesh]", &to("v2")))?;
        shop.mesh.control.begin().await?;
        shop.mesh.wait_for_endpoints(&shop.client, &shop.cluster("v2"), &[next.address().to_string()]).await?;
        wait_for("the new route", Duration::from_secs(20), || async {
            shop.get("/", &[]).await.ok().filter(|answer| answer.header("x-instance") == "shop-late").map(drop)
        })
        .await?;
    }

    async fn a_reconnect_applies_only_what_changed_in_shared_and_own_lists(protocol) {
        let mut shop = Shop::start(protocol, &["v1", "v2"], &to("v1")).await?;
        let (port, address) = (shop.port, shop.instances[0].address());
        // Only the proxy's namespace sees this service, so that its clusters are in the proxy's own list.
        let own = |subsets: &str| {
            let entry = static_entry("own", "own.test", (port, "HTTP"), address);
            let rule = networking("DestinationRule", "own", &format!("host: own.test, subsets: [{subsets}]"));
            format!("{entry}---\n{rule}").replace("spec: {", "spec: { exportTo: ['.'],")
        };
        shop.mesh.config.put("own.yaml", &own("{ name: one }"))?;
        let endpoints = [address.to_string()];
        shop.mesh.wait_for_endpoints(&shop.client, &format!("outbound|{port}|one|own.test"), &endpoints).await?;
        let (first_sync, before) = (shop.client.discovery_bytes().await?, clusters(&shop).await?);
        shop.mesh.control.kill().await?;
        shop.mesh.config.put("own.yaml", &own("{ name: one }, { name: two }"))?;
        shop.mesh.config.put("route.yaml", &e2e::virtual_service("[mesh]", &to("v2")))?;
        shop.mesh.control.begin().await?;
        shop.mesh.wait_for_endpoints(&shop.client, &format!("outbound|{port}|two|own.test"), &endpoints).await?;
        wait_for("the new route", Duration::from_secs(20), || async {
            shop.get("/", &[]).await.ok().filter(|answer| answer.header("x-version") == "v2").map(drop)
        })
        .await?;
        let [added, modified, removed] = before;
        assert_eq!(clusters(&shop).await?, [added + 1, modified, removed], "no other cluster was applied");
        assert_eq!(shop.client.stat("update_rejected$").await?, 0, "nothing was rejected");
        let again = shop.client.discovery_bytes().await? - first_sync;
        // Over state of the world, a changed list is sent whole.
        assert!(protocol == Protocol::Sotw || again * 2 < first_sync, "{again} bytes, {first_sync} before");
    }
}

/// The number of clusters that Envoy has added, modified and removed.
async fn clusters(shop: &Shop) -> test_harness::run::Result<[u64; 3]> {
    let count = async |what: &str| shop.client.stat(&format!("^cluster_manager.cluster_{what}$")).await;
    Ok([count("added").await?, count("modified").await?, count("removed").await?])
}

/// The number of configuration updates that Envoy has applied.
async fn updates(shop: &Shop) -> test_harness::run::Result<Vec<(String, u64)>> {
    let applied = "(cds|lds|rds|eds).*(config_reload|update_rejected)$";
    let stats = shop
        .client
        .stats(&format!(
            "{applied}|^cluster_manager.cluster_(added|modified|removed)$|^cluster.outbound.*assignment_stale$"
        ))
        .await?;
    assert!(stats.len() > 3, "Envoy counts applied updates: {stats:?}");
    Ok(stats.into_iter().collect())
}
