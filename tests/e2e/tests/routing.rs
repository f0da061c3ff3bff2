//! Routing of requests: weights, headers, paths, and labels of the caller.

use e2e::{HOST, Shop, both_protocols, virtual_service};
use test_harness::run::{Counts, Node, http};

/// Four standard deviations of a random choice.
fn assert_share(counts: &Counts, version: &str, wanted: f64) {
    let allowed = 4.0 * (wanted * (1.0 - wanted) / counts.requests as f64).sqrt();
    let share = counts.share(version);
    assert!((share - wanted).abs() <= allowed, "{version} got {share:.3} instead of {wanted} in {counts:?}");
    assert_eq!(counts.errors, 0, "{counts:?}");
}

fn weights(v1: u32, v2: u32) -> String {
    format!(
        "[{{ route: [{{ destination: {{ host: {HOST}, subset: v1 }}, weight: {v1} }}, \
         {{ destination: {{ host: {HOST}, subset: v2 }}, weight: {v2} }}] }}]"
    )
}

/// A route to one version, with a match (YAML in flow style).
fn to(version: &str, rest: &str) -> String {
    format!("{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}")
}

both_protocols! {
    async fn the_split_follows_the_weights(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2", "v2"], &weights(80, 20)).await?;
        let traffic = shop.traffic(400);
        assert_share(&traffic.next(1000).await?, "v1", 0.8);
        shop.route(&weights(25, 75)).await?;
        traffic.next(20).await?; // under way during the change
        assert_share(&traffic.next(1000).await?, "v2", 0.75);
        shop.route(&weights(0, 100)).await?;
        traffic.next(20).await?;
        assert_share(&traffic.next(400).await?, "v2", 1.0);
        assert_eq!(traffic.stop().await.errors, 0);
    }

    async fn a_header_chooses_the_version(protocol) {
        let beta = to("v2", ", match: [{ headers: { x-user: { exact: beta } } }]");
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{beta}, {}]", to("v1", ""))).await?;
        assert_eq!(shop.get("/", &[("x-user", "beta")]).await?.header("x-version"), "v2");
        assert_eq!(shop.get("/", &[("x-user", "alpha")]).await?.header("x-version"), "v1");
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
    }

    async fn a_path_chooses_the_version_and_is_rewritten(protocol) {
        let new = to("v2", ", match: [{ uri: { prefix: /new/ } }], rewrite: { uri: /old/ }");
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{new}, {}]", to("v1", ""))).await?;
        let answer = shop.get("/new/cart?item=1", &[]).await?;
        assert_eq!((answer.header("x-version"), answer.json()?["path"].as_str()), ("v2", Some("/old/cart?item=1")));
        let answer = shop.get("/other", &[]).await?;
        assert_eq!((answer.header("x-version"), answer.json()?["path"].as_str()), ("v1", Some("/other")));
    }

    async fn the_callers_labels_choose_the_version(protocol) {
        let testers = to("v2", ", match: [{ sourceLabels: { team: testers } }]");
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{testers}, {}]", to("v1", ""))).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
        // A second client cannot listen on the same address of this machine, so the first one is stopped.
        let (mesh, instances, address) = (shop.mesh, shop.instances, ([127, 0, 0, 1], shop.port).into());
        drop(shop.client);
        let tester = Node::sidecar("tester", "test", "127.0.0.4", &[("app", "client"), ("team", "testers")]);
        let tester = mesh.envoy(&tester, protocol).await?;
        tester.wait_for_listener(address).await?;
        let answer = http::get(address, "/", &[("host", HOST)]).await?;
        assert_eq!((answer.status.as_u16(), answer.header("x-version")), (200, "v2"), "{}", answer.text());
        assert_eq!(instances.len(), 2);
    }

    async fn redirects_and_direct_answers_need_no_service(protocol) {
        let moved = "{ match: [{ uri: { exact: /gone } }], redirect: { uri: /here, redirectCode: 302 } }";
        let teapot = "{ match: [{ uri: { exact: /tea } }], directResponse: { status: 418, body: { string: short } } }";
        let shop = Shop::start(protocol, &["v1"], &format!("[{moved}, {teapot}, {}]", to("v1", ""))).await?;
        let answer = shop.get("/gone", &[]).await?;
        assert_eq!(answer.status, 302);
        assert!(answer.header("location").ends_with("/here"), "{}", answer.header("location"));
        let answer = shop.get("/tea", &[]).await?;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (418, "short"));
        assert_eq!(shop.get("/", &[]).await?.status, 200);
    }

    async fn a_subset_without_endpoints_answers_503_and_nothing_else_breaks(protocol) {
        let empty = to("empty", ", match: [{ uri: { prefix: /empty } }]");
        let shop = Shop::start(protocol, &["v1"], &format!("[{empty}, {}]", to("v1", ""))).await?;
        let traffic = shop.traffic(100);
        assert_eq!(shop.get("/empty", &[]).await?.status, 503);
        assert_eq!(shop.get("/", &[]).await?.status, 200);
        traffic.next(100).await?;
        assert_eq!(traffic.stop().await.errors, 0);
    }

    async fn an_unknown_host_is_passed_through_or_refused_but_never_answered_by_the_service(protocol) {
        let shop = Shop::start(protocol, &["v1"], &format!("[{}]", to("v1", ""))).await?;
        let answer = http::get(shop.address(), "/", &[("host", "nowhere.example")]).await?;
        assert_ne!(answer.header("x-version"), "v1", "{}", answer.text());
        assert_eq!(shop.get("/", &[]).await?.status, 200);
    }

    async fn a_route_of_another_gateway_does_not_touch_the_sidecar(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{}]", to("v1", ""))).await?;
        shop.mesh.reroute(&shop.client, "route.yaml", &virtual_service("[elsewhere]", &format!("[{}]", to("v2", "")))).await?;
        let mut versions = std::collections::BTreeSet::new();
        for _ in 0..40 {
            versions.insert(shop.get("/", &[]).await?.header("x-version").to_owned());
        }
        assert_eq!(versions.len(), 2, "both versions, as without a VirtualService: {versions:?}");
    }
}
