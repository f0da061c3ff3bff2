//! Failing services: timeouts, retries, ejection.

use std::time::{Duration, Instant};

use e2e::{HOST, PATIENCE, Shop, both_protocols};
use test_harness::run::wait_for;

fn plain(rest: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}]{rest} }}]")
}

both_protocols! {
    async fn a_timeout_ends_a_slow_request(protocol) {
        let shop = Shop::start(protocol, &["v1"], &plain(", timeout: 0.3s")).await?;
        assert_eq!(shop.get("/", &[]).await?.status, 200);
        let begin = Instant::now();
        let answer = shop.get("/", &[("x-ask-delay-ms", "20000")]).await?;
        assert_eq!(answer.status, 504, "{}", answer.text());
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(290) && took < Duration::from_secs(5), "{took:?}");
    }

    async fn without_a_timeout_a_slow_request_is_waited_for(protocol) {
        let shop = Shop::start(protocol, &["v1"], &plain("")).await?;
        assert_eq!(shop.get("/", &[("x-ask-delay-ms", "700")]).await?.status, 200);
    }

    async fn failed_requests_are_retried_as_often_as_allowed(protocol) {
        let shop = Shop::start(protocol, &["v1"], &plain(", retries: { attempts: 3, retryOn: 5xx }")).await?;
        let instance = &shop.instances[0];
        instance.fail_next(3);
        assert_eq!(shop.get("/", &[]).await?.status, 200);
        assert_eq!(instance.requests(), 4, "three retries");
        instance.fail_next(4);
        assert_eq!(shop.get("/", &[]).await?.status, 503);
        assert_eq!(instance.requests(), 8, "no more than three retries");
    }

    async fn a_closed_connection_is_retried_when_asked_for(protocol) {
        let shop = Shop::start(protocol, &["v1", "v1"], &plain(", retries: { attempts: 2, retryOn: reset }")).await?;
        shop.instances[0].reset(true);
        for _ in 0..20 {
            let answer = shop.get("/", &[]).await?;
            assert_eq!((answer.status.as_u16(), answer.header("x-instance")), (200, "shop-1"), "{}", answer.text());
        }
        assert!(shop.instances[0].requests() > 0, "the broken instance was tried");
    }

    async fn retries_can_be_turned_off(protocol) {
        let shop = Shop::start(protocol, &["v1"], &plain(", retries: { attempts: 0 }")).await?;
        shop.instances[0].fail_next(1);
        assert_eq!(shop.get("/", &[]).await?.status, 503);
        assert_eq!(shop.instances[0].requests(), 1);
    }

    async fn an_instance_that_fails_is_ejected_and_comes_back(protocol) {
        let policy = "{ tls: { mode: DISABLE }, outlierDetection: \
            { consecutive5xxErrors: 3, interval: 0.1s, baseEjectionTime: 1s, maxEjectionPercent: 100 } }";
        let route = plain(", retries: { attempts: 0 }");
        let shop = Shop::with_policy(protocol, &["v1", "v1"], &route, policy).await?;
        let bad = &shop.instances[0];
        bad.answer_with(500);
        let mut failures = 0;
        while bad.requests() < 3 {
            failures += u32::from(shop.get("/", &[]).await?.status == 500);
        }
        assert_eq!(failures, 3, "each failure was seen, and nothing else failed");
        // Envoy's workers report failures to its main thread, which ejects the instance a moment later. On a slow machine
        // the ejection may end during the requests; the instance fails again then, and the next ejection is longer.
        let ejected = || async {
            for _ in 0..10 {
                (shop.get("/", &[]).await.ok()?.header("x-instance") == "shop-1").then_some(())?;
            }
            (shop.client.stat("outlier_detection.ejections_active$").await.ok()? == 1).then_some(())
        };
        wait_for("the failing instance to be ejected", PATIENCE, ejected).await?;
        bad.answer_with(200);
        let used = || async { (shop.get("/", &[]).await.ok()?.header("x-instance") == "shop-0").then_some(()) };
        wait_for("the instance to be used again after the ejection time", PATIENCE, used).await?;
    }
}
