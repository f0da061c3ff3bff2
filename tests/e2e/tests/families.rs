//! Other features of VirtualServices and DestinationRules: faults, mirrors, CORS, headers, hashing; and TCP traffic.
//! One mesh for all tests that change only routes.

use std::time::{Duration, Instant};

use e2e::objects::networking;
use e2e::{HOST, Mesh, Shop, both_protocols};
use test_harness::run::{Backend, Node, Result, free_port, http, wait_for};

fn route(version: &str, rest: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}]")
}

async fn faults(shop: &Shop) -> Result<()> {
    shop.route(&route("v1", ", fault: { abort: { httpStatus: 418, percentage: { value: 100 } } }")).await?;
    let before = shop.instances[0].requests();
    assert_eq!(shop.get("/", &[]).await?.status, 418);
    assert_eq!(shop.instances[0].requests(), before, "an aborted request reaches nobody");
    shop.route(&route("v1", ", fault: { delay: { fixedDelay: 0.4s, percentage: { value: 100 } } }")).await?;
    let begin = Instant::now();
    assert_eq!(shop.get("/", &[]).await?.status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(390), "{:?}", begin.elapsed());
    Ok(())
}

async fn mirrors(shop: &Shop) -> Result<()> {
    shop.route(&route("v1", &format!(", mirrors: [{{ destination: {{ host: {HOST}, subset: v2 }} }}]"))).await?;
    let before = shop.instances[1].requests();
    for _ in 0..5 {
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1", "the mirror's answer is thrown away");
    }
    let mirrored = || async { (shop.instances[1].requests() == before + 5).then_some(()) };
    wait_for("five mirrored requests", Duration::from_secs(20), mirrored).await
}

async fn cors(shop: &Shop) -> Result<()> {
    let policy = ", corsPolicy: { allowOrigins: [{ exact: 'https://a.example' }], allowMethods: [GET, PUT], \
        allowHeaders: [x-a], maxAge: 60s, allowCredentials: true }";
    shop.route(&route("v1", policy)).await?;
    let before = shop.instances[0].requests();
    let ask = [("host", HOST), ("origin", "https://a.example"), ("access-control-request-method", "PUT")];
    let answer = http::send(shop.address(), http::Method::OPTIONS, "/", &ask).await?;
    assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (200, "https://a.example"));
    assert_eq!(
        (answer.header("access-control-allow-methods"), answer.header("access-control-max-age")),
        ("GET,PUT", "60")
    );
    assert_eq!(shop.instances[0].requests(), before, "the proxy answers a preflight request");
    let stranger = shop.get("/", &[("origin", "https://b.example")]).await?;
    assert_eq!(stranger.header("access-control-allow-origin"), "");
    Ok(())
}

async fn headers(shop: &Shop) -> Result<()> {
    let changes = ", headers: { request: { set: { x-set: here }, remove: [x-gone] }, \
        response: { add: { x-added: \"100%%\" }, remove: [x-instance] } }";
    shop.route(&route("v1", changes)).await?;
    let answer = shop.get("/", &[("x-gone", "a"), ("x-set", "b")]).await?;
    let seen = &answer.json()?["headers"];
    assert_eq!((seen["x-set"].as_str(), seen["x-gone"].as_str()), (Some("here"), None), "{seen}");
    assert_eq!((answer.header("x-added"), answer.header("x-instance")), ("100%", ""));
    Ok(())
}

both_protocols! {
    async fn rules_do_to_requests_what_they_say(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &route("v1", "")).await?;
        faults(&shop).await?;
        mirrors(&shop).await?;
        cors(&shop).await?;
        headers(&shop).await?;
    }

    async fn a_header_keeps_its_requests_at_one_endpoint(protocol) {
        let policy = "{ tls: { mode: DISABLE }, loadBalancer: { consistentHash: { httpHeaderName: x-user } } }";
        let everyone = format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}] }}]");
        let shop = Shop::with_policy(protocol, &["v1", "v1", "v1", "v1"], &everyone, policy).await?;
        let mut seen = std::collections::BTreeSet::new();
        for user in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"] {
            let first = shop.get("/", &[("x-user", user)]).await?.header("x-instance").to_owned();
            for _ in 0..5 {
                assert_eq!(shop.get("/", &[("x-user", user)]).await?.header("x-instance"), first, "{user}");
            }
            seen.insert(first);
        }
        assert!(seen.len() > 1, "eight users are not all at one of four endpoints: {seen:?}");
    }

    async fn a_databases_instances_are_reached_by_their_addresses_and_elsewhere_by_locality(protocol) {
        let near = Backend::start("near", "near-0").await?;
        let far = Backend::start("far", "far-0").await?;
        let port = free_port();
        let entry = |instances: &str| networking("ServiceEntry", "db", &format!(
            "hosts: [db.test.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, \
             ports: [{{ number: {port}, name: tcp, protocol: TCP }}], endpoints: [{instances}]"
        ));
        let endpoint = |backend: &Backend, locality: &str| format!(
            "{{ address: {}, ports: {{ tcp: {} }}, locality: {locality} }}", backend.address().ip(), backend.address().port()
        );
        let (here, there) = (endpoint(&near, "r1/z1"), endpoint(&far, "r2/z1"));
        let rule = networking("DestinationRule", "db", "host: db.test.svc.cluster.local, trafficPolicy: { \
            tls: { mode: DISABLE }, outlierDetection: { consecutive5xxErrors: 1 }, \
            loadBalancer: { localityLbSetting: { failover: [{ from: r1, to: r2 }] } } }");
        let mesh = Mesh::start(&[("db.yaml", &entry(&format!("{here}, {there}"))), ("rule.yaml", &rule)]).await?;
        let mut node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
        node.locality = serde_json::json!({ "region": "r1", "zone": "z1" });
        let client = mesh.envoy(&node, protocol).await?;
        let address = ([127, 0, 0, 1], port).into();
        client.wait_for_listener(address).await?;
        let asked = async || Ok::<_, test_harness::run::Error>(http::get(address, "/", &[]).await?.header("x-version").to_owned());
        for _ in 0..10 {
            assert_eq!(asked().await?, "near", "the own region's endpoints are preferred, over plain TCP");
        }
        mesh.config.put("db.yaml", &entry(&there))?;
        let moved = || async { asked().await.ok().filter(|version| version == "far") };
        wait_for("the other region's endpoints after the own ones vanish", Duration::from_secs(20), moved).await?;
    }
}
