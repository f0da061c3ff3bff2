//! Configuration that Envoy rejects is reported with Envoy's message, and the next valid change clears the report.

use std::time::Duration;

use e2e::objects::{networking, static_entry};
use e2e::{HOST, Mesh, Shop, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

/// Exceeds Envoy's limit on the size of a compiled regular expression. The expression is valid, so only Envoy rejects
/// it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";
/// A part of Envoy's error message.
const WORDS: &str = "max program size";

fn to(version: &str, rest: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}]")
}

/// The number of hosts beside the one that Envoy rejects.
const HOSTS: usize = 50;

/// A host that answers with this text.
fn host(name: &str, port: u16, text: &str, rest: &str, backend: &Backend) -> String {
    let host = format!("{name}.test");
    let answer = format!("directResponse: {{ status: 200, body: {{ string: {text} }} }}{rest}");
    let route = networking("VirtualService", name, &format!("hosts: [{host}], http: [{{ {answer} }}]"));
    format!("{}---\n{route}", static_entry(name, &host, (port, "HTTP"), backend.address()))
}

fn bad(name: &str, port: u16, backend: &Backend) -> String {
    host(name, port, "bad", &format!(", match: [{{ uri: {{ regex: '{REGEX}' }} }}]"), backend)
}

fn name(number: usize) -> String {
    format!("h{number:02}")
}

/// The status and the text of the answer of a host.
async fn answer(port: u16, name: &str) -> Result<(u16, String)> {
    let host = format!("{name}.test");
    let answer = http::get(([127, 0, 0, 1], port).into(), "/", &[("host", &host)]).await?;
    Ok((answer.status.as_u16(), answer.text()))
}

/// Waits until a host answers with this text. Meanwhile, the others (from the third on) answer as always.
async fn wait_for_answer(port: u16, name: &str, text: &str) -> Result<()> {
    wait_for(&format!("{name} to answer {text}"), Duration::from_secs(20), || async move {
        check_others(port).await;
        answer(port, name).await.ok().filter(|(_, is)| is == text).map(drop)
    })
    .await?;
    check_others(port).await;
    Ok(())
}

async fn check_others(port: u16) {
    for number in 2..HOSTS {
        let answer = answer(port, &name(number)).await.map_err(|error| error.to_string());
        assert_eq!(answer, Ok((200, "one".to_owned())), "{}", name(number));
    }
}

/// An Envoy that starts, and all of whose hosts but the bad ones answer.
async fn started(mesh: &Mesh, port: u16, protocol: Protocol) -> Result<Envoy> {
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let envoy = mesh.envoy(&node, protocol).await?;
    envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
    let last = name(HOSTS - 1);
    let answers = || async { answer(port, &last).await.ok().filter(|(status, _)| *status == 200).map(drop) };
    wait_for("the hosts to answer", Duration::from_secs(20), answers).await?;
    check_others(port).await;
    Ok(envoy)
}

both_protocols! {
    async fn a_host_that_envoy_rejects_harms_no_other(protocol) {
        let (port, backend) = (free_port(), Backend::start("v1", "shop-0").await?);
        let hosts: Vec<String> = (0..HOSTS).map(|number| host(&name(number), port, "one", "", &backend)).collect();
        let files: Vec<(String, &str)> = hosts.iter().enumerate().map(|(n, text)| (name(n) + ".yaml", text.as_str())).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let mesh = Mesh::start(&files).await?;
        let envoy = started(&mesh, port, protocol).await?;

        // A new host and a changed one are bad; another one changes.
        mesh.config.put("bad.yaml", &bad("bad", port, &backend))?;
        mesh.wait_for_syncz(WORDS, true).await?;
        mesh.config.put("h01.yaml", &bad("h01", port, &backend))?;
        mesh.config.put("h00.yaml", &host("h00", port, "two", "", &backend))?;
        wait_for_answer(port, "h00", "two").await?;
        mesh.control.wait_for_log("quarantined what a proxy rejects").await?;
        assert_eq!(answer(port, "h01").await?, (200, "one".to_owned()), "its last good version");
        assert_ne!(answer(port, "bad").await?.0, 200);

        // A proxy that starts now.
        drop(envoy);
        let ended = || async { answer(port, "h00").await.err().map(drop) };
        wait_for("Envoy to end", Duration::from_secs(20), ended).await?;
        let envoy = started(&mesh, port, protocol).await?;
        wait_for_answer(port, "h00", "two").await?;
        assert_eq!(answer(port, "h01").await?, (200, "one".to_owned()), "the last version that was acknowledged");
        mesh.config.put("h00.yaml", &host("h00", port, "three", "", &backend))?;
        wait_for_answer(port, "h00", "three").await?;

        // Mended.
        mesh.config.put("h01.yaml", &host("h01", port, "four", "", &backend))?;
        wait_for_answer(port, "h01", "four").await?;
        mesh.config.put("bad.yaml", &host("bad", port, "good", "", &backend))?;
        wait_for_answer(port, "bad", "good").await?;
        mesh.wait_for_syncz(WORDS, false).await?;
        drop(envoy);
    }

    async fn a_private_route_that_envoy_rejects_leaves_the_shared_one(protocol) {
        let (port, backend) = (free_port(), Backend::start("v1", "shop-0").await?);
        let mut hosts: Vec<String> = (0..HOSTS).map(|number| host(&name(number), port, "one", "", &backend)).collect();
        hosts.push(static_entry("own", "own.test", (port, "HTTP"), backend.address()));
        let mesh = Mesh::start(&[("hosts.yaml", &hosts.join("---\n"))]).await?;
        let envoy = started(&mesh, port, protocol).await?;
        let is_shared = || async { answer(port, "own").await.is_ok_and(|(status, text)| status == 200 && text.contains("shop-0")) };
        assert!(is_shared().await);
        let private = |text: &str, condition: &str| {
            let answer = format!("directResponse: {{ status: 200, body: {{ string: {text} }} }}{condition}");
            networking("VirtualService", "own", &format!("hosts: [own.test], exportTo: ['.'], http: [{{ {answer} }}]"))
        };
        let bad = private("bad", &format!(", match: [{{ uri: {{ regex: '{REGEX}' }} }}]"));
        mesh.config.put("own.yaml", &bad)?;
        mesh.wait_for_syncz(WORDS, true).await?;
        mesh.config.put("other.yaml", &host("other", port, "two", "", &backend))?;
        wait_for_answer(port, "other", "two").await?;
        assert!(is_shared().await);

        // A proxy that starts now.
        drop(envoy);
        let ended = || async { answer(port, "other").await.err().map(drop) };
        wait_for("Envoy to end", Duration::from_secs(20), ended).await?;
        let _envoy = started(&mesh, port, protocol).await?;
        assert!(is_shared().await);

        mesh.config.put("own.yaml", &private("mine", ""))?;
        wait_for_answer(port, "own", "mine").await?;
        mesh.wait_for_syncz(WORDS, false).await?;
        mesh.config.put("own.yaml", &bad)?;
        mesh.wait_for_syncz(WORDS, true).await?;
        assert_eq!(answer(port, "own").await?.1, "mine", "its last good version");
        mesh.config.remove("own.yaml")?;
        let removed = || async { is_shared().await.then_some(()) };
        wait_for("the shared route", Duration::from_secs(20), removed).await?;
    }

    async fn an_envoy_filter_that_envoy_rejects_leaves_the_routes(protocol) {
        let (port, backend) = (free_port(), Backend::start("v1", "shop-0").await?);
        let hosts: Vec<String> = (0..HOSTS).map(|number| host(&name(number), port, "one", "", &backend)).collect();
        let mesh = Mesh::start(&[("hosts.yaml", &hosts.join("---\n"))]).await?;
        let _envoy = started(&mesh, port, protocol).await?;
        let header = format!("{{ name: ':path', string_match: {{ safe_regex: {{ regex: '{REGEX}' }} }} }}");
        for (name, vhost) in [("one", format!("vhost: {{ name: 'h01.test:{port}' }}")), ("all", String::new())] {
            let chosen = format!("context: SIDECAR_OUTBOUND, routeConfiguration: {{ {vhost} }}");
            let patch = format!("operation: MERGE, value: {{ virtual_clusters: [{{ name: v, headers: [{header}] }}] }}");
            let spec = format!(
                "configPatches: [{{ applyTo: VIRTUAL_HOST, match: {{ {chosen} }}, patch: {{ {patch} }} }}]"
            );
            let filter = networking("EnvoyFilter", name, &spec).replace("/v1\n", "/v1alpha3\n");
            mesh.config.put("filter.yaml", &filter)?;
            mesh.wait_for_syncz(WORDS, true).await?;
            for _ in 0..10 {
                check_others(port).await;
                assert_eq!(answer(port, "h01").await?, (200, "one".to_owned()), "{name}");
            }
            mesh.config.remove("filter.yaml")?;
            mesh.wait_for_syncz(WORDS, false).await?;
            check_others(port).await;
        }
    }

    async fn a_host_that_was_always_bad_keeps_no_other_from_a_starting_proxy(protocol) {
        // With hundreds of hosts, the proxy moves in steps to the lists without the bad ones.
        for more in [0, 400] {
            let (port, backend) = (free_port(), Backend::start("v1", "shop-0").await?);
            let names = (0..HOSTS).map(name).chain((0..more).map(|number| format!("more-{number}")));
            let mut hosts: Vec<String> = names.map(|name| host(&name, port, "one", "", &backend)).collect();
            hosts.extend([bad("h20a", port, &backend), bad("h30a", port, &backend)]);
            let mesh = Mesh::start(&[("hosts.yaml", &hosts.join("---\n"))]).await?;
            let _envoy = started(&mesh, port, protocol).await?;
            for bad in ["h20a", "h30a"] {
                assert_ne!(answer(port, bad).await?.0, 200);
            }
        }
    }

    async fn a_refused_route_is_shown_and_the_next_good_one_heals_it(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &to("v1", "")).await?;
        let traffic = shop.traffic(100);
        // With delta xDS, Envoy gets virtual hosts over VHDS.
        let (kind, gauge) = match protocol {
            Protocol::Delta => ("vhds", "pilot_xds_vhds_reject"),
            Protocol::Sotw => ("rds", "pilot_xds_rds_reject"),
        };
        let rejects = async || shop.mesh.control.metric("pilot_total_xds_rejects", kind).await;
        assert_eq!(rejects().await?, 0.0);

        let bad = to("v2", &format!(", match: [{{ uri: {{ regex: '{REGEX}' }} }}]"));
        shop.mesh.config.put("route.yaml", &e2e::virtual_service("[mesh]", &bad))?;
        shop.mesh.wait_for_syncz(WORDS, true).await?;
        assert_eq!(rejects().await?, 1.0, "rejected once, and not sent again");
        // The gauge has a line for each proxy that currently rejects configuration.
        let refusing = async || shop.mesh.control.metric(gauge, "client.test").await.unwrap_or(0.0);
        assert_eq!(refusing().await, 1.0);
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1", "the last valid route stays in effect");

        shop.route(&to("v2", "")).await?;
        shop.mesh.wait_for_syncz(WORDS, false).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v2");
        assert_eq!(refusing().await, 0.0);
        assert_eq!(rejects().await?, 1.0);
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
    }

    async fn a_broken_file_keeps_what_was_good(protocol) {
        let shop = Shop::start(protocol, &["v1", "v2"], &to("v1", "")).await?;
        shop.mesh.config.put("route.yaml", "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: [")?;
        shop.mesh.control.wait_for_log("route.yaml").await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v1");
        shop.route(&to("v2", "")).await?;
        assert_eq!(shop.get("/", &[]).await?.header("x-version"), "v2");
    }
}
