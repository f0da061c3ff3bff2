//! Configuration that Envoy rejects is reported with Envoy's message, and the next valid change clears the report.

use e2e::{HOST, Shop, both_protocols};
use test_harness::run::Protocol;

/// Exceeds Envoy's limit on the size of a compiled regular expression. The expression is valid, so only Envoy rejects
/// it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";
/// A part of Envoy's error message.
const WORDS: &str = "max program size";

fn to(version: &str, rest: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}]")
}

both_protocols! {
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
