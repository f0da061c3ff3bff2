//! The bank in the cluster: a ledger and two callers in pods. The agent in each pod gets a certificate with the token of the
//! pod's service account.

use std::net::IpAddr;
use std::time::Instant;

use serde_json::Value;
use test_harness::run::{Result, http};

use super::images::PROGRAM;
use super::manifests::{self, SHOP_PORT};
use super::stage::Stage;
use crate::bank::objects::BANK;
use crate::bank::{Answer, Bank, Caller, Place};
use crate::config::Manifest;
use crate::promises::Promises;
use crate::screen::Screen;

struct InCluster<'a> {
    stage: &'a Stage,
    ledger: IpAddr,
}

/// Runs the steps, the first of which has the number `step`.
pub(super) async fn run(stage: &Stage, screen: &mut Screen, promises: &mut Promises, step: u32) -> Result<()> {
    let begin = Instant::now();
    stage.apply(&manifests::service(BANK, "ledger")).await?;
    let addresses = stage.addresses(BANK, "ledger").await?;
    let accounts = ["ledger", "teller", "visitor"];
    for account in accounts {
        stage.apply(&manifests::bank(account, addresses)).await?;
    }
    for account in accounts {
        stage.rolled_out(BANK, account).await?;
    }
    let pods = stage.settled(BANK, "app=ledger", 1).await?;
    let ledger = pods.first().and_then(|pod| pod.ip).ok_or("the ledger has no address")?;
    let place = InCluster { stage, ledger };
    let mut bank = Bank { place: &place, screen, promises, step };
    bank.begin("three workloads join, each with a certificate for the token of its service account");
    bank.screen.say(&format!("     pods of {} run after {:.1} s", accounts.join(", "), begin.elapsed().as_secs_f64()));
    bank.run().await
}

impl Place for InCluster<'_> {
    async fn apply(&self, manifest: &Manifest) -> Result<String> {
        self.stage.apply(&manifest.text).await?;
        Ok(format!("apply --server-side -f -   # {} {}", manifest.singular, manifest.name))
    }

    async fn ask(&self, caller: Caller, token: Option<&str>) -> Answer {
        let name = match caller {
            Caller::Teller => "teller",
            Caller::Visitor => "visitor",
            // From the node, to the pod's own address: the ledger's sidecar captures it.
            Caller::Stranger => return Answer::read(http::get((self.ledger, SHOP_PORT).into(), "/", &[]).await),
        };
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        let command = format!("-n {BANK} exec deployment/{name} -c app -- {PROGRAM} ask ledger{token}");
        let answer = async {
            let output = self.stage.quietly(&command).await?;
            let seen: Value = serde_json::from_str(&output)?;
            let status = seen["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or_default();
            Result::Ok(Answer::new(status, &seen["asked"], seen["text"].as_str().unwrap_or_default()))
        };
        answer.await.unwrap_or_else(|error| Answer::new(0, &Value::Null, &error.to_string()))
    }
}
