//! The steps of the demo.

use std::time::{Duration, Instant};

use test_harness::run::{Counts, Result};

use super::bank;
use super::promises::Promises;
use super::screen::Screen;
use super::stage::{Changed, Stage};

/// The duration of each step.
const WATCHED: Duration = Duration::from_secs(6);
/// The number of requests through each proxy that a step needs for its statistics.
const ENOUGH: u64 = 600;
/// The maximum number of bytes for a proxy that reconnects when nothing has changed: HTTP/2 settings and headers, and
/// empty responses.
const GREETING: u64 = 1_024;

/// Runs all steps and records which promises held.
pub(super) async fn run(mut stage: Stage, screen: &mut Screen, promises: &mut Promises, once: bool) -> Result<()> {
    let watched = if once { Duration::ZERO } else { WATCHED };
    let step = |screen: &mut Screen, number: u32, text: &str| screen.say(&format!("\n  {number}  {text}"));

    step(screen, 1, "v1 gets 90 %, v2 gets 10 %");
    measure_split(&stage, screen, promises, 0.1, watched).await?;
    for (number, v2, text) in [(2, 50, "half and half"), (3, 100, "v2 gets everything")] {
        step(screen, number, text);
        reached(screen, promises, stage.shift(v2).await?);
        measure_split(&stage, screen, promises, f64::from(v2) / 100.0, watched).await?;
    }

    step(screen, 4, "one more instance of v2");
    reached(screen, promises, stage.add("v2", "shop-v2-c").await?);
    watch(&stage, screen, watched).await?;
    let served = stage.backend("shop-v2-c")?.requests();
    promises.check(served > 0, format!("the new instance served {served} requests"));

    step(screen, 5, "an instance of v2 is taken out");
    reached(screen, promises, stage.remove("v2", "shop-v2-a").await?);
    // Requests that were pending at the removal may still reach the instance.
    stage.through_sidecar.next(20).await?;
    let before = stage.backend("shop-v2-a")?.requests();
    watch(&stage, screen, watched).await?;
    let late = stage.backend("shop-v2-a")?.requests() - before;
    promises.check(late == 0, format!("the removed instance got {late} requests"));

    step(screen, 6, "the control plane is killed, and started again");
    restart(&mut stage, screen, promises, watched).await?;

    step(screen, 7, "back to v1, from the new control plane");
    reached(screen, promises, stage.shift(0).await?);
    measure_split(&stage, screen, promises, 0.0, watched).await?;

    let (held, summary) = match stage.status().await {
        Ok(status) => (true, status),
        Err(error) => (false, error.to_string()),
    };
    screen.say(&format!("     the status of the VirtualService: {summary}"));
    promises.check(held, format!("the status of the VirtualService: {summary}"));

    bank::run(&stage, screen, promises, 8).await?;

    let (sidecar, gateway) = (stage.through_sidecar.stop().await, stage.through_gateway.stop().await);
    promises.traffic("sidecar", &sidecar);
    promises.traffic("gateway", &gateway);
    promises.check(stage.control.stop().await?, "the control plane stopped in order");
    Ok(())
}

fn reached(screen: &mut Screen, promises: &mut Promises, changed: Changed) {
    promises.change_took(changed.took);
    screen.say(&format!("     $ kubectl {}", changed.command));
    screen.say(&format!("     in both proxies {:.1} ms after it was sent", changed.took.as_secs_f64() * 1000.0));
}

async fn measure_split(
    stage: &Stage,
    screen: &mut Screen,
    promises: &mut Promises,
    v2: f64,
    watched: Duration,
) -> Result<()> {
    // Requests that were routed before the change may still be pending.
    tokio::try_join!(stage.through_sidecar.next(20), stage.through_gateway.next(20))?;
    let (sidecar, gateway) = watch(stage, screen, watched).await?;
    promises.split("sidecar", &sidecar, v2);
    promises.split("gateway", &gateway, v2);
    Ok(())
}

/// Shows the traffic until there was enough of it, for at least `watched`. Returns its counts.
async fn watch(stage: &Stage, screen: &mut Screen, watched: Duration) -> Result<(Counts, Counts)> {
    let before = (stage.through_sidecar.counts(), stage.through_gateway.counts());
    let begin = Instant::now();
    loop {
        // Refreshed as often as a person can perceive.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sidecar = stage.through_sidecar.counts().since(&before.0);
        let gateway = stage.through_gateway.counts().since(&before.1);
        let rows = [("sidecar", &sidecar), ("gateway", &gateway)];
        if begin.elapsed() >= watched && sidecar.requests.min(gateway.requests) >= ENOUGH {
            screen.result(&rows);
            return Ok((sidecar, gateway));
        }
        screen.live(&rows);
    }
}

async fn restart(stage: &mut Stage, screen: &mut Screen, promises: &mut Promises, watched: Duration) -> Result<()> {
    let received = async |stage: &Stage| -> Result<u64> {
        Ok(stage.sidecar.discovery_bytes().await? + stage.gateway.discovery_bytes().await?)
    };
    let (first_sync, begin) = (received(stage).await?, Instant::now());
    stage.restart().await?;
    for envoy in [&stage.sidecar, &stage.gateway] {
        test_harness::run::wait_for("the proxies to come back", Duration::from_secs(20), || async {
            envoy.stat("^control_plane.connected_state$").await.ok().filter(|state| *state == 1).map(drop)
        })
        .await?;
    }
    screen.say(&format!("     the proxies are connected again after {} ms", begin.elapsed().as_millis()));
    watch(stage, screen, watched).await?;
    let sent = received(stage).await? - first_sync;
    promises.check(
        sent <= 2 * GREETING,
        format!("the new control plane sent both proxies {sent} bytes together; the first one had sent {first_sync}"),
    );
    Ok(())
}
