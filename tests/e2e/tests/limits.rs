//! Limits of retries, pending requests and concurrent requests. The service holds its requests, so that the result does
//! not depend on timing.

use e2e::{HOST, PATIENCE, Shop, both_protocols};
use futures::future::join_all;
use test_harness::run::{Backend, Error, Http2, Result, http, wait_for};
use tokio::task::JoinHandle;

fn plain(rest: &str) -> String {
    format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}]{rest} }}]")
}

/// Waits until the instance has received this many requests.
async fn arrived(instance: &Backend, count: u64) -> Result<()> {
    let come = || async { (instance.requests() == count).then_some(()) };
    wait_for(&format!("{count} requests"), PATIENCE, come).await
}

/// Waits until a statistic of the client's cluster has this value.
async fn counted(shop: &Shop, name: &str, value: u64) -> Result<()> {
    let filter = format!("^cluster.outbound.*{name}$");
    let reached = || async { shop.client.stat(&filter).await.ok().filter(|now| *now == value) };
    wait_for(&format!("{name} to be {value}"), PATIENCE, reached).await.map(drop)
}

/// Sends requests on one existing connection, so that one worker of the proxy handles all of them.
fn ask(client: &Http2) -> JoinHandle<Result<http::Response>> {
    let client = client.clone();
    tokio::spawn(async move { client.get(HOST, "/", &[]).await })
}

async fn refused(client: &Http2) -> Result<()> {
    let answer = client.get(HOST, "/", &[]).await?;
    assert_eq!(answer.status, 503);
    assert!(answer.text().ends_with("overflow"), "{}", answer.text());
    Ok(())
}

both_protocols! {
    async fn a_budget_bounds_how_many_requests_are_retried_at_once(protocol) {
        let policy = "{ tls: { mode: DISABLE }, retryBudget: { percent: 10, minRetryConcurrency: 1 } }";
        let route = plain(", retries: { attempts: 1, retryOn: 5xx }");
        let shop = Shop::with_policy(protocol, &["v1"], &route, policy).await?;
        let instance = &shop.instances[0];
        instance.hold();
        instance.fail_next(10);
        let requests = async {
            let answers = join_all((0..10).map(|_| shop.get("/", &[]))).await;
            answers.into_iter().collect::<Result<Vec<_>>>()
        };
        let service = async {
            arrived(instance, 10).await?;
            instance.release(10);
            // The retried request is held: the budget is used up until all others are answered.
            counted(&shop, "upstream_rq_retry_overflow", 9).await?;
            instance.open();
            Ok::<_, Error>(())
        };
        let (answers, ()) = tokio::try_join!(requests, service)?;
        let good = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((good, instance.requests()), (1, 11), "one of ten is retried");
    }

    async fn what_waits_for_a_connection_beyond_the_limit_is_refused(protocol) {
        let policy = "{ tls: { mode: DISABLE }, connectionPool: \
            { tcp: { maxConnections: 1 }, http: { http1MaxPendingRequests: 1 } } }";
        let shop = Shop::with_policy(protocol, &["v1"], &plain(", retries: { attempts: 0 }"), policy).await?;
        let (client, instance) = (Http2::connect(shop.address()).await?, &shop.instances[0]);
        instance.hold();
        let served = ask(&client);
        arrived(instance, 1).await?;
        let waiting = ask(&client);
        counted(&shop, "upstream_rq_pending_active", 1).await?;
        refused(&client).await?;
        counted(&shop, "upstream_rq_pending_overflow", 1).await?;
        instance.open();
        assert_eq!((served.await??.status.as_u16(), waiting.await??.status.as_u16()), (200, 200));
        assert_eq!((ask(&client).await??.status.as_u16(), instance.requests()), (200, 3));
    }

    async fn requests_under_way_beyond_the_limit_are_refused(protocol) {
        let policy = "{ tls: { mode: DISABLE }, connectionPool: \
            { http: { h2UpgradePolicy: UPGRADE, http2MaxRequests: 2 } } }";
        let shop = Shop::with_policy(protocol, &["v1"], &plain(", retries: { attempts: 0 }"), policy).await?;
        let (client, instance) = (Http2::connect(shop.address()).await?, &shop.instances[0]);
        instance.hold();
        let served = [ask(&client), ask(&client)];
        arrived(instance, 2).await?;
        refused(&client).await?;
        instance.open();
        for answer in served {
            assert_eq!(answer.await??.status, 200);
        }
        assert_eq!((ask(&client).await??.status.as_u16(), instance.requests()), (200, 3));
    }
}
