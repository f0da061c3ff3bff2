//! Waits until all statuses are as they must be.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::{Scenario, objects};
use crate::api::Api;
use crate::objects::Size;
use crate::process::PATIENCE;

const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// The path of the Gateways in the namespace of the measured one.
pub(super) fn gateways() -> String {
    format!("{API}/namespaces/{}/gateways", objects::NAMESPACE)
}

/// Waits until the Gateway or its ListenerSets count all routes, and all routes are accepted.
pub(super) async fn wait(api: &Api, scenario: Scenario, routes: usize) -> Result<()> {
    let size = scenario.size();
    if scenario.sets {
        let count = scenario.routes as u64;
        let counts = |set: &Value| set["status"]["listeners"][0]["attachedRoutes"] == count;
        all(api, size, "listenersets", scenario.services, counts).await?;
    } else {
        attached(api, routes as u64).await?;
    }
    all(api, size, "httproutes", routes, is_accepted).await
}

fn is_accepted(route: &Value) -> bool {
    let conditions = route["status"]["parents"][0]["conditions"].as_array();
    let accepted = |one: &Value| one["type"] == "Accepted" && one["status"] == "True";
    conditions.is_some_and(|all| all.iter().any(accepted))
}

/// Waits until the Gateway counts so many attached routes.
pub(super) async fn attached(api: &Api, count: u64) -> Result<()> {
    let path = format!("{}/{}", gateways(), objects::GATEWAY);
    let begin = Instant::now();
    loop {
        let gateway = api.send("GET", &path, &Value::Null).await?;
        let now = &gateway["status"]["listeners"][0]["attachedRoutes"];
        if *now == count {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            bail!("the Gateway counts {now} of {count} routes after {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until so many objects of a kind are as wanted, one namespace after the other, so that few are read again.
async fn all(api: &Api, size: Size, plural: &str, count: usize, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    let (begin, mut known) = (Instant::now(), 0);
    for number in 0..size.namespaces {
        let path = format!("{API}/namespaces/{}/{plural}", size.namespace(number));
        loop {
            let list = api.send("GET", &path, &Value::Null).await?;
            let items = list["items"].as_array().map_or(&[][..], |items| items);
            let ready = items.iter().filter(|item| wanted(item)).count();
            if ready == items.len() {
                known += ready;
                break;
            }
            if begin.elapsed() > PATIENCE {
                bail!("{ready} of {} {plural} in {path} have their status after {PATIENCE:?}", items.len());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    ensure!(known == count, "there are {known} of {count} {plural}");
    Ok(())
}
