//! EnvoyFilters with a real Envoy: a Lua filter, an extension over ECDS, and patches that are rejected or skipped.

use std::time::Duration;

use e2e::objects::static_entry;
use e2e::{HOST, Mesh, Shop, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port, http as requests, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// Clusters beside the shop's, and the bytes that a patch adds to each: more than a response has.
const CLUSTERS: usize = 200;
const PATCH: usize = 8 << 10;

fn route() -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}] }}]")
}

fn filter(name: &str, patches: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{ name: {name}, namespace: test }}\nspec: {{ configPatches: [{patches}] }}\n"
    )
}

/// A patch of the client's outbound HTTP filters.
fn http(operation: &str, value: &str) -> String {
    format!(
        "{{ applyTo: HTTP_FILTER, match: {{ context: SIDECAR_OUTBOUND, listener: {{ filterChain: {{ filter: {{ name: \
         envoy.filters.network.http_connection_manager, subFilter: {{ name: envoy.filters.http.router }} }} }} }} }}, \
         patch: {{ operation: {operation}, value: {value} }} }}"
    )
}

/// A Lua filter that adds a header to every response.
fn lua(header: &str) -> String {
    format!(
        "{{ name: mine, typedConfig: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, \
         defaultSourceCode: {{ inlineString: \"function envoy_on_response(handle) \
         handle:headers():add('x-lua', '{header}') end\" }} }} }}"
    )
}

/// A filter that the proxy requests by name.
const DISCOVERED: &str = "{ name: mine, configDiscovery: { configSource: { ads: {}, resourceApiVersion: V3 }, \
     typeUrls: [type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua] } }";

fn extension(header: &str) -> String {
    let patch = format!("{{ applyTo: EXTENSION_CONFIG, patch: {{ operation: ADD, value: {} }} }}", lua(header));
    filter("lua", &format!("{}, {patch}", http("INSERT_BEFORE", DISCOVERED)))
}

/// Waits until the client's responses have this header.
async fn wait_for_header(shop: &Shop, wanted: &str) -> Result<()> {
    let reached = || async {
        let answer = shop.get("/", &[]).await.ok()?;
        (answer.status == 200 && answer.header("x-lua") == wanted).then_some(())
    };
    wait_for(&format!("`x-lua: {wanted}` in responses"), PATIENCE, reached).await
}

/// Waits until all clusters have the long patch, or none.
async fn wait_for_long_clusters(shop: &Shop, wanted: bool) -> Result<()> {
    let reached = || async {
        let dump = shop.client.admin("/config_dump?resource=dynamic_active_clusters").await.ok()?.text();
        let count = dump.matches("\"longlong").count();
        if wanted { count > CLUSTERS } else { count == 0 }.then_some(())
    };
    wait_for(&format!("clusters with the patch: {wanted}"), PATIENCE, reached).await
}

/// Patches of the port's route table. Each sets a header of the shop's answers; some add a virtual host.
fn route_patches(port: u16) -> [String; 5] {
    let patch = |kind: &str, vhost: &str, operation: &str, value: &str| {
        format!(
            "{{ applyTo: {kind}, match: {{ context: SIDECAR_OUTBOUND, routeConfiguration: {{ name: '{port}'{vhost} }} }}, \
             patch: {{ operation: {operation}, value: {{ {value} }} }} }}"
        )
    };
    let host = format!(", vhost: {{ domainName: {HOST} }}");
    let header = "responseHeadersToAdd: [{ header: { key: x-patch, value: set } }]";
    let added =
        "name: added, domains: [added.test], routes: [{ match: { prefix: / }, directResponse: { status: 202 } }]";
    let all = "{ name: all, domains: ['*'], routes: [{ match: { prefix: / }, directResponse: { status: 200 } }] }";
    let added = patch("VIRTUAL_HOST", "", "ADD", added);
    [
        patch("HTTP_ROUTE", &host, "MERGE", header),
        format!("{}, {added}", patch("VIRTUAL_HOST", &host, "MERGE", header)),
        patch("HTTP_ROUTE", "", "MERGE", header),
        format!("{}, {added}", patch("ROUTE_CONFIGURATION", "", "MERGE", header)),
        // The domain `*` moves to another virtual host.
        patch("ROUTE_CONFIGURATION", "", "MERGE_AND_REPLACE_LIST", &format!("{header}, virtualHosts: [{all}]")),
    ]
}

both_protocols! {
    async fn a_lua_filter_comes_changes_and_goes(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-lua"), "");
        shop.mesh.config.put("filter.yaml", &filter("lua", &http("INSERT_BEFORE", &lua("one"))))?;
        wait_for_header(&shop, "one").await?;
        shop.mesh.config.put("filter.yaml", &filter("lua", &http("INSERT_BEFORE", &lua("two"))))?;
        wait_for_header(&shop, "two").await?;
        shop.mesh.config.remove("filter.yaml")?;
        wait_for_header(&shop, "").await?;
        assert_eq!(shop.mesh.control.metric("pilot_total_xds_rejects", "lds").await?, 0.0);
    }

    async fn an_extension_changes_and_its_listener_does_not(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        shop.mesh.config.put("filter.yaml", &extension("one"))?;
        wait_for_header(&shop, "one").await?;
        let listeners = async || shop.client.stats("listener_manager.listener_(modified|added|removed|create_success)").await;
        let before = listeners().await?;
        let traffic = shop.traffic(200);
        for header in ["two", "three"] {
            shop.mesh.config.put("filter.yaml", &extension(header))?;
            wait_for_header(&shop, header).await?;
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert_eq!(listeners().await?, before, "no listener was touched");
    }

    async fn filters_that_are_of_no_use_harm_nobody(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        let traffic = shop.traffic(100);
        // Rejected: the message does not exist. The other files stay in effect.
        let unknown = "{ name: a, typedConfig: { \"@type\": type.googleapis.com/no.such.Message } }";
        shop.mesh.config.put("unknown.yaml", &filter("unknown", &http("INSERT_FIRST", unknown)))?;
        shop.mesh.control.wait_for_log("configPatches[0].patch.value.typedConfig").await?;
        // Skipped: a filter after the router, and a cluster whose name exists.
        let cluster = format!(
            "{{ applyTo: CLUSTER, patch: {{ operation: ADD, value: {{ name: '{}', type: STATIC, connectTimeout: 1s }} }} }}",
            shop.cluster("")
        );
        let late = format!("{}, {cluster}", http("INSERT_AFTER", &lua("late")));
        shop.mesh.config.put("late.yaml", &filter("late", &late))?;
        shop.mesh.config.put("filter.yaml", &filter("lua", &http("INSERT_BEFORE", &lua("one"))))?;
        wait_for_header(&shop, "one").await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
        for kind in ["lds", "cds", "rds"] {
            assert_eq!(shop.mesh.control.metric("pilot_total_xds_rejects", kind).await?, 0.0, "{kind}");
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn patches_of_routes_come_and_go_without_an_error(protocol) {
        let (port, backend) = (free_port(), Backend::start("v1", "shop-0").await?);
        let entry = static_entry("shop", HOST, (port, "HTTP"), backend.address());
        let mesh = Mesh::start(&[("shop.yaml", &entry)]).await?;
        for patches in route_patches(port) {
            // An Envoy that starts with the patches has never had the virtual hosts without them.
            mesh.config.put("filter.yaml", &filter("routes", &patches))?;
            let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
            let envoy = mesh.envoy(&node, protocol).await?;
            let address = ([127, 0, 0, 1], port).into();
            let reached = async |is_there: bool| {
                let reached = || async {
                    let answer = requests::get(address, "/", &[("host", HOST)]).await.ok()?;
                    let added = requests::get(address, "/", &[("host", "added.test")]).await.ok()?.status == 202;
                    let complete = added == (is_there && patches.contains("added.test"));
                    (complete && answer.header("x-patch") == if is_there { "set" } else { "" }).then_some(())
                };
                wait_for(&format!("patches: {is_there}, {patches}"), PATIENCE, reached).await
            };
            reached(true).await?;
            let traffic = Traffic::start(address, "/", &[("host", HOST)], 500, 10);
            for is_there in [false, true, false] {
                match is_there {
                    true => mesh.config.put("filter.yaml", &filter("routes", &patches))?,
                    false => mesh.config.remove("filter.yaml")?,
                }
                reached(is_there).await?;
            }
            let counts = traffic.stop().await;
            assert_eq!(counts.errors, 0, "{patches}: {counts:?}");
            drop(envoy);
            let ended = || async { requests::get(address, "/", &[]).await.err().map(drop) };
            wait_for("Envoy to end", PATIENCE, ended).await?;
        }
        for kind in ["rds", "vhds"] {
            assert_eq!(mesh.control.metric("pilot_total_xds_rejects", kind).await?, 0.0, "{kind}");
        }
    }

    async fn a_long_change_of_all_clusters_loses_no_request(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        let elsewhere = ([127, 0, 0, 9], 80).into();
        let other = |number| static_entry(&format!("other-{number}"), &format!("o{number}.test"), (80, "HTTP"), elsewhere);
        shop.mesh.config.put("others.yaml", &(0..CLUSTERS).map(other).collect::<Vec<_>>().join("---\n"))?;
        let stat = |name: &'static str| shop.client.stat(name);
        let active = || async { stat("^cluster_manager.active_clusters$").await.ok().filter(|n| *n > CLUSTERS as u64).map(drop) };
        wait_for("all clusters", PATIENCE, active).await?;
        let (traffic, before) = (shop.traffic(300), stat("^cluster_manager.cds.update_success$").await?);
        let value = format!("{{ metadata: {{ filterMetadata: {{ test: {{ key: \"{}\" }} }} }} }}", "long".repeat(PATCH / 4));
        let patch = format!("{{ applyTo: CLUSTER, patch: {{ operation: MERGE, value: {value} }} }}");
        shop.mesh.config.put("filter.yaml", &filter("long", &patch))?;
        wait_for_long_clusters(&shop, true).await?;
        let updates = stat("^cluster_manager.cds.update_success$").await? - before;
        assert_eq!(updates > 2, protocol == Protocol::Delta, "the change came in {updates} responses");
        shop.mesh.config.remove("filter.yaml")?;
        wait_for_long_clusters(&shop, false).await?;
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert_eq!(shop.mesh.control.metric("pilot_total_xds_rejects", "cds").await?, 0.0);
    }

    async fn a_filter_for_one_cluster_changes_no_other(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        let elsewhere = shop.mesh.envoy(&Node::sidecar("client", "elsewhere", "127.0.0.3", &[]), protocol).await?;
        let other = static_entry("other", "other.test", (80, "HTTP"), ([127, 0, 0, 9], 80).into());
        shop.mesh.config.put("other.yaml", &other)?;
        let traffic = shop.traffic(300);
        let patch = format!(
            "{{ applyTo: CLUSTER, match: {{ context: SIDECAR_OUTBOUND, cluster: {{ service: {HOST} }} }}, patch: {{ operation: MERGE, \
             value: {{ perConnectionBufferLimitBytes: 12345 }} }} }}"
        );
        let is = async |client: &Envoy, with: &str, changed: bool| {
            let reached = || async {
                let dump = client.admin("/config_dump?resource=dynamic_active_clusters").await.ok()?.text();
                (dump.contains(with) && dump.contains("12345") == changed).then_some(())
            };
            wait_for(&format!("a cluster with the patch: {changed}"), PATIENCE, reached).await
        };
        shop.mesh.config.put("filter.yaml", &filter("one", &patch))?;
        is(&shop.client, "other.test", true).await?;
        is(&elsewhere, "other.test", false).await?;
        // A cluster that is added reaches both.
        shop.mesh.config.put("other.yaml", &(other.clone() + "---\n" + &other.replace("other", "added")))?;
        for (client, changed) in [(&shop.client, true), (&elsewhere, false)] {
            is(client, "added.test", changed).await?;
        }
        shop.mesh.config.remove("filter.yaml")?;
        is(&shop.client, "added.test", false).await?;
        // One of the root namespace is for all proxies.
        let for_all = filter("one", &patch).replace("namespace: test", "namespace: istio-system");
        for changed in [true, false] {
            match changed {
                true => shop.mesh.config.put("filter.yaml", &for_all)?,
                false => shop.mesh.config.remove("filter.yaml")?,
            }
            for client in [&shop.client, &elsewhere] {
                is(client, "added.test", changed).await?;
            }
        }
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        assert_eq!(shop.mesh.control.metric("pilot_total_xds_rejects", "cds").await?, 0.0);
    }

    async fn clusters_and_routes_of_a_filter_are_used(protocol) {
        let shop = Shop::start(protocol, &["v1"], &route()).await?;
        let backend = shop.instances[0].address();
        let endpoint = format!(
            "{{ endpoint: {{ address: {{ socketAddress: {{ address: {}, portValue: {} }} }} }} }}",
            backend.ip(),
            backend.port()
        );
        let cluster = format!(
            "{{ applyTo: CLUSTER, patch: {{ operation: ADD, value: {{ name: mine, type: STATIC, connectTimeout: 1s, \
             loadAssignment: {{ clusterName: mine, endpoints: [{{ lbEndpoints: [{endpoint}] }}] }} }} }} }}"
        );
        let own = "{ applyTo: HTTP_ROUTE, match: { context: SIDECAR_OUTBOUND, routeConfiguration: { vhost: { domainName: \
             shop.test.svc.cluster.local } } }, patch: { operation: INSERT_FIRST, value: { match: { prefix: /mine }, \
             route: { cluster: mine, prefixRewrite: /yours } } } }";
        shop.mesh.config.put("filter.yaml", &filter("own", &format!("{cluster}, {own}")))?;
        let reached = || async {
            let answer = shop.get("/mine", &[]).await.ok()?;
            (answer.json().ok()?["path"] == "/yours").then_some(())
        };
        wait_for("the route of the filter", PATIENCE, reached).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
    }
}

/// The most memory that a process had, in KiB.
fn peak(pid: Option<u32>) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.ok_or("it does not run")?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// ISTIO-SECURITY-2026-006: everyone who may write an EnvoyFilter in one namespace exhausted the control plane with a
/// `proxyVersion` expression without a limit.
async fn expressions() -> Result<()> {
    let shop = Shop::start(Protocol::Delta, &["v1"], &route()).await?;
    let before = peak(shop.mesh.control.pid())?;
    let hostile = [
        "a".repeat(4 << 20),
        "((a{1,1000}){1,1000}){1,1000}".to_owned(),
        "(x+x+)+y".repeat(120),
        format!("{}a{}", "(".repeat(500), ")".repeat(500)),
        "(".repeat(1_000_000),
        "a{1000}".repeat(140),
        "\\\\p{L}{1,500}".repeat(70),
        "[^a]".repeat(200_000),
    ];
    let patch = |expression: &str| {
        format!(
            "{{ applyTo: CLUSTER, match: {{ proxy: {{ proxyVersion: \"{expression}\" }} }}, \
             patch: {{ operation: MERGE, value: {{ alt_stat_name: x }} }} }}"
        )
    };
    let started = std::time::Instant::now();
    for (index, expression) in hostile.iter().enumerate() {
        shop.mesh.config.put(&format!("hostile-{index}.yaml"), &filter(&format!("h{index}"), &patch(expression)))?;
    }
    // Many expressions, of which each alone is small.
    let many: Vec<String> = (0..20_000).map(|number| patch(&format!("^1\\\\.{number}{{1,900}}.*"))).collect();
    shop.mesh.config.put("many.yaml", &filter("many", &many.join(", ")))?;
    // Other objects work as before.
    shop.mesh.config.put("lua.yaml", &extension("works"))?;
    wait_for_header(&shop, "works").await?;
    shop.mesh.config.remove("lua.yaml")?;
    wait_for_header(&shop, "").await?;
    let (took, grown) = (started.elapsed(), peak(shop.mesh.control.pid())?.saturating_sub(before));
    eprintln!("{took:?}, {} MiB", grown / 1024);
    assert!(grown < 512 * 1024, "{grown} KiB for the expressions");
    // A patch whose expression cannot be used is for no proxy.
    let dump = shop.client.admin("/config_dump?resource=dynamic_active_clusters").await?.text();
    assert!(!dump.contains("\"alt_stat_name\": \"x\""), "{dump}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istio_security_2026_006_expressions_of_envoy_filters_do_not_exhaust_the_control_plane() {
    expressions().await.unwrap_or_else(|error| panic!("{error}"));
}
