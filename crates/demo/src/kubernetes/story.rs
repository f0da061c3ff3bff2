//! The steps of the demo in a cluster.

use std::time::{Duration, Instant};

use serde_json::Value;
use test_harness::run::{Counts, Result, wait_for};

use super::Choice;
use super::bank;
use super::images::PROGRAM;
use super::manifests::{self, NAMESPACE, SYSTEM};
use super::stage::{PATIENCE, Stage};
use crate::promises::Promises;
use crate::screen::Screen;

/// The duration of each step.
const WATCHED: Duration = Duration::from_secs(6);
/// The number of requests that a step needs for its statistics.
const ENOUGH: u64 = 500;
/// The maximum number of requests that are pending at a change.
const UNDER_WAY: u64 = 20;
/// The maximum that a new control plane may send a reconnecting proxy, as one part in this many of the initial
/// configuration. (The addresses of the control plane's own Service have changed.)
const LITTLE: u64 = 5;

/// Runs all steps and records which promises held.
pub(super) async fn run(stage: &Stage, choice: &Choice, screen: &mut Screen, promises: &mut Promises) -> Result<()> {
    let watched = if choice.once { Duration::ZERO } else { WATCHED };
    let mut story = Story { stage, screen, promises, watched, step: 0 };
    story.captured().await?;
    story.split().await?;
    story.scaled().await?;
    story.deleted().await?;
    story.killed().await?;
    story.replaced().await?;
    story.status().await?;
    let step = story.step + 1;
    bank::run(stage, screen, promises, step).await?;
    let counts = stage.counts().await?;
    promises.traffic("sidecars", &counts);
    Ok(())
}

struct Story<'a> {
    stage: &'a Stage,
    screen: &'a mut Screen,
    promises: &'a mut Promises,
    watched: Duration,
    step: u32,
}

impl Story<'_> {
    /// Checks that traffic between plain programs in pods flows through their sidecars.
    async fn captured(&mut self) -> Result<()> {
        self.begin("a client that knows nothing of proxies asks");
        let shop = self.stage.settled(NAMESPACE, "app=shop", 4).await?;
        let client = self.stage.settled(NAMESPACE, "app=client", 1).await?;
        let sidecars = shop.iter().chain(&client).filter(|pod| pod.containers.contains_key("istio-proxy"));
        let sidecars = sidecars.count();
        self.promises.check(sidecars == 5, format!("5 pods are ready, {sidecars} with a sidecar"));
        let command = format!("-n {NAMESPACE} exec deployment/client -c app -- {PROGRAM} ask shop");
        let output = self.stage.kubectl(self.screen, &command).await?;
        let response: Value = serde_json::from_str(&output)?;
        let (instance, server) = (response["instance"].as_str().unwrap_or_default(), &response["server"]);
        self.screen.say(&format!("     answered by {instance} through {server}"));
        let asked = response["asked"].as_object();
        let added = asked.is_some_and(|headers| headers.contains_key("x-request-id"));
        let sent = self.stage.figure("^cluster.outbound|80|v.|shop.*upstream_rq_total$").await?;
        let mut received = 0;
        for pod in &shop {
            let ip = pod.ip.ok_or("a pod has no address")?;
            received += self.stage.figure_of(ip, "^http.inbound_.*downstream_rq_2xx$").await?;
        }
        self.promises.check(
            server == "envoy" && added && sent > 0 && received > 0,
            format!(
                "captured: {sent} requests sent through the client's sidecar, {received} received through the shop's"
            ),
        );
        Ok(())
    }

    /// Checks the split before and after it shifts.
    async fn split(&mut self) -> Result<()> {
        self.begin("v1 gets 90 %, v2 gets 10 %");
        self.share(0.1).await?;
        self.begin("v2 gets everything");
        self.shift(100, None).await?;
        self.share(1.0).await
    }

    /// Scales pods under load.
    async fn scaled(&mut self) -> Result<()> {
        self.begin("v2 is scaled from 2 pods to 5, and to 1");
        self.scale(5).await?;
        let counts = self.watch(ENOUGH).await?;
        let (pods, lost) = (counts.by_instance.len(), self.lost_so_far().await?);
        self.promises.check(pods == 5, format!("{pods} of 5 pods of v2 serve"));
        self.scale(1).await?;
        let counts = self.watch(ENOUGH / 2).await?;
        let left = counts.by_instance.len();
        self.promises.check(left == 1, format!("after that {left} of 1"));
        self.no_loss("while pods came and went", lost).await
    }

    /// Deletes pods under load, one after another.
    async fn deleted(&mut self) -> Result<()> {
        self.begin("pods are deleted");
        self.scale(2).await?;
        let before = self.lost_so_far().await?;
        for _ in 0..2 {
            self.delete("--grace-period=10").await?;
        }
        self.watch(ENOUGH / 2).await?;
        self.no_loss("while two pods were deleted", before).await
    }

    /// Deletes a pod of v2 and waits for its replacement.
    async fn delete(&mut self, flags: &str) -> Result<()> {
        let v2 = "app=shop,version=v2";
        let pods = self.stage.settled(NAMESPACE, v2, 2).await?;
        let name = pods.first().map(|pod| pod.name.as_str()).unwrap_or_default();
        let command = format!("-n {NAMESPACE} delete pod {name} --wait=false {flags}");
        self.stage.kubectl(self.screen, &command).await?;
        let replaced = || async {
            let pods = self.stage.pods(NAMESPACE, v2).await.ok()?;
            let gone = !pods.iter().any(|pod| pod.name == name);
            (gone && pods.iter().filter(|pod| pod.is_ready()).count() == 2).then_some(())
        };
        wait_for(&format!("another pod in the place of {name}"), PATIENCE, replaced).await?;
        self.stage.known("v2", 2).await
    }

    /// Kills pods without warning under load: one pod is deleted by force, then an application, a sidecar, and an Envoy
    /// without its agent are killed.
    async fn killed(&mut self) -> Result<()> {
        self.begin("pods end without a warning; what breaks off is tried again elsewhere");
        self.shift(100, Some(&manifests::retries())).await?;
        let before = self.lost_so_far().await?;
        let retries = "^cluster.outbound|80|v2|shop.*upstream_rq_retry_success$";
        let earlier = self.stage.figure(retries).await?;
        self.delete("--grace-period=0 --force").await?;
        for victim in ["app", "istio-proxy", "Envoy"] {
            let pods = self.stage.settled(NAMESPACE, "app=shop,version=v2", 2).await?;
            let pod = pods.first().ok_or("there is no pod")?;
            match victim {
                "Envoy" => {
                    self.screen.say(&format!("     SIGKILL to Envoy, but not the agent, of {}", pod.name));
                    self.stage.crash_envoy(pod).await?;
                }
                name => {
                    self.screen.say(&format!("     SIGKILL to the container {name} of {}", pod.name));
                    self.stage.crash(pod, name).await?;
                }
            }
            self.stage.known("v2", 2).await?;
            self.watch(ENOUGH / 2).await?;
        }
        let again = self.stage.figure(retries).await? - earlier;
        self.promises.check(again > 0, format!("{again} requests that met a dead end were answered elsewhere"));
        self.no_loss("while a pod was deleted by force, an application, a sidecar and an Envoy killed", before).await
    }

    /// Replaces Rutter's own pod.
    async fn replaced(&mut self) -> Result<()> {
        self.begin("Rutter's own pod is deleted");
        let (lost, pods) = (self.lost_so_far().await?, self.stage.settled(SYSTEM, "app=istiod", 1).await?);
        let sidecars = self.stage.pods(NAMESPACE, "").await?.len();
        let old = pods.first().map(|pod| pod.name.clone()).unwrap_or_default();
        let bytes = "^cluster.xds-grpc.*upstream_cx_rx_bytes_total$";
        let received = self.stage.figure(bytes).await?;
        let begin = Instant::now();
        let command = format!("-n {SYSTEM} delete pod {old} --wait=false");
        self.stage.kubectl(self.screen, &command).await?;
        let back = || async {
            let pods = self.stage.pods(SYSTEM, "app=istiod").await.ok()?;
            let new = pods.iter().find(|pod| pod.name != old)?.ip?;
            self.stage.connected(new).await.ok().filter(|count| *count == sidecars as u64)
        };
        let count = wait_for("the sidecars to connect again", PATIENCE, back).await?;
        let away = begin.elapsed();
        self.screen.say(&format!("     {count} sidecars are connected to another one after {} ms", away.as_millis()));
        self.stage.settled(SYSTEM, "app=istiod", 1).await?;
        self.watch(ENOUGH / 2).await?;
        let sent = self.stage.figure(bytes).await? - received;
        self.promises.check(
            received > 0 && sent * LITTLE <= received,
            format!("the new control plane sent the client's sidecar {sent} bytes; the first one had sent {received}"),
        );
        self.no_loss("while Rutter was replaced", lost).await?;
        self.begin("back to v1, from the new control plane");
        self.shift(0, None).await?;
        self.share(0.0).await
    }

    /// Checks that the status of the VirtualService counts every sidecar.
    async fn status(&mut self) -> Result<()> {
        self.begin("what became of the VirtualService");
        let pods = self.stage.pods(NAMESPACE, "").await?.len();
        let command = format!("-n {NAMESPACE} describe virtualservice shop");
        self.screen.say(&format!("     $ kubectl {command}"));
        let wanted = [format!("Running: {pods}"), format!("Total: {pods}"), "Reason: Programmed".to_owned()];
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let described = || async {
            let output = self.stage.quietly(&command).await.ok()?;
            let lines: Vec<String> = output.lines().map(squeezed).collect();
            wanted.iter().all(|line| lines.contains(line)).then_some(output)
        };
        let described = wait_for("the status of the VirtualService", PATIENCE, described).await;
        let held = match &described {
            Ok(output) => {
                let status = output.lines().skip_while(|line| !line.starts_with("Status:"));
                let status = status.take_while(|line| !line.starts_with("Events:"));
                status.for_each(|line| self.screen.say(&format!("       {line}")));
                true
            }
            Err(error) => {
                self.screen.say(&format!("     {error}"));
                false
            }
        };
        self.promises.check(held, format!("kubectl describe tells that all of {pods} proxies run the VirtualService"));
        Ok(())
    }

    fn begin(&mut self, text: &str) {
        self.step += 1;
        self.screen.say(&format!("\n  {}  {text}", self.step));
    }

    async fn shift(&mut self, v2: u32, retries: Option<&Value>) -> Result<()> {
        let took = self.stage.route(self.screen, &manifests::split(v2, retries)).await?;
        self.promises.change_took(took);
        Ok(())
    }

    async fn share(&mut self, v2: f64) -> Result<()> {
        self.next(UNDER_WAY).await?;
        let counts = self.watch(ENOUGH).await?;
        self.promises.split("client's sidecar", &counts, v2);
        Ok(())
    }

    async fn scale(&mut self, replicas: usize) -> Result<()> {
        let command = format!("-n {NAMESPACE} scale deployment shop-v2 --replicas {replicas}");
        let begin = Instant::now();
        self.stage.kubectl(self.screen, &command).await?;
        self.stage.known("v2", replicas as u64).await?;
        self.screen.say(&format!(
            "     the client's sidecar has {replicas} of them after {:.1} s",
            begin.elapsed().as_secs_f64()
        ));
        self.stage.settled(NAMESPACE, "app=shop,version=v2", replicas).await?;
        self.next(UNDER_WAY).await.map(drop)
    }

    async fn lost_so_far(&self) -> Result<u64> {
        Ok(self.stage.counts().await?.errors)
    }

    async fn no_loss(&mut self, when: &str, before: u64) -> Result<()> {
        let lost = self.lost_so_far().await? - before;
        if lost > 0 {
            let evidence = self.stage.evidence().await;
            evidence.lines().for_each(|line| self.screen.say(&format!("     ! {line}")));
        }
        self.promises.check(lost == 0, format!("{lost} requests were lost {when}"));
        Ok(())
    }

    /// Waits for this many more requests.
    async fn next(&self, requests: u64) -> Result<Counts> {
        let before = self.stage.counts().await?;
        let more = || async {
            let counts = self.stage.counts().await.ok()?.since(&before);
            (counts.requests >= requests).then_some(counts)
        };
        wait_for("traffic", PATIENCE, more).await
    }

    /// Shows the traffic until there was enough of it, for at least the duration of a step. Returns its counts.
    async fn watch(&mut self, enough: u64) -> Result<Counts> {
        let before = self.stage.counts().await?;
        let begin = Instant::now();
        loop {
            // Refreshed as often as a person can perceive.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let counts = self.stage.counts().await?.since(&before);
            let rows = [("client", &counts)];
            if begin.elapsed() >= self.watched && counts.requests >= enough {
                self.screen.result(&rows);
                return Ok(counts);
            }
            self.screen.live(&rows);
        }
    }
}
