//! The computed status of pods.

use serde_json::Value;

use super::core::{items, or};
use super::since;

/// The computed cell of a column (in lower case); none if the column has a JSON path.
pub(super) fn cell(column: &str, pod: &Value, now: i64) -> Option<Value> {
    let status = &pod["status"];
    Some(match column {
        "ready" => {
            let containers = items(&pod["spec"]["containers"]).count();
            let ready =
                items(&status["containerStatuses"]).filter(|c| c["ready"] == true && !c["state"]["running"].is_null());
            format!("{}/{containers}", ready.count()).into()
        }
        "status" => reason(pod).into(),
        "restarts" => restarts(pod, now).into(),
        "ip" => or(
            status["podIPs"].get(0).map_or(&status["podIP"], |ip| &ip["ip"]),
            "<none>",
        )
        .into(),
        "node" => or(&pod["spec"]["nodeName"], "<none>").into(),
        "nominated node" => or(&status["nominatedNodeName"], "<none>").into(),
        "readiness gates" => {
            let gates: Vec<&Value> = items(&pod["spec"]["readinessGates"]).collect();
            let holds = |gate: &&&Value| {
                let condition = items(&status["conditions"]).find(|c| c["type"] == gate["conditionType"]);
                condition.is_some_and(|condition| condition["status"] == "True")
            };
            match gates.len() {
                0 => "<none>".into(),
                all => format!("{}/{all}", gates.iter().filter(holds).count()).into(),
            }
        }
        _ => return None,
    })
}

/// The reason why a pod is not running normally, or its phase.
fn reason(pod: &Value) -> String {
    let status = &pod["status"];
    let mut reason = or(&status["reason"], &or(&status["phase"], "Unknown"));
    let gated = items(&status["conditions"])
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if gated {
        reason = "SchedulingGated".into();
    }
    match initializing(pod) {
        Some(why) => reason = why,
        None => {
            let mut running = false;
            let all: Vec<&Value> = items(&status["containerStatuses"]).collect();
            for container in all.iter().rev() {
                match stopped(container) {
                    Some(why) => reason = why,
                    None => running |= container["ready"] == true && !container["state"]["running"].is_null(),
                }
            }
            if reason == "Completed" && running {
                let ready = items(&status["conditions"]).any(|c| c["type"] == "Ready" && c["status"] == "True");
                reason = if ready { "Running" } else { "NotReady" }.into();
            }
        }
    }
    let deleted = !pod["metadata"]["deletionTimestamp"].is_null();
    match (deleted, status["reason"].as_str()) {
        (true, Some("NodeLost")) => "Unknown".into(),
        (true, _) if !matches!(status["phase"].as_str(), Some("Failed" | "Succeeded")) => "Terminating".into(),
        _ => reason,
    }
}

/// The init container that has not finished.
fn initializing(pod: &Value) -> Option<String> {
    let statuses = items(&pod["status"]["initContainerStatuses"]);
    let all = items(&pod["spec"]["initContainers"]).count();
    for (n, container) in statuses.enumerate() {
        let state = &container["state"];
        let sidecar = items(&pod["spec"]["initContainers"])
            .any(|c| c["name"] == container["name"] && c["restartPolicy"] == "Always");
        let done = state["terminated"]["exitCode"] == 0 || sidecar && container["started"] == true;
        if done {
            continue;
        }
        if state["terminated"].is_object() {
            return stopped(container).map(|why| format!("Init:{why}"));
        }
        return Some(match state["waiting"]["reason"].as_str() {
            Some(why) if !why.is_empty() && why != "PodInitializing" => format!("Init:{why}"),
            _ => format!("Init:{n}/{all}"),
        });
    }
    None
}

/// The reason why a container is not running.
fn stopped(container: &Value) -> Option<String> {
    let state = &container["state"];
    if let Some(why) = state["waiting"]["reason"].as_str().filter(|why| !why.is_empty()) {
        return Some(why.to_owned());
    }
    let terminated = state["terminated"].as_object()?;
    match terminated
        .get("reason")
        .and_then(Value::as_str)
        .filter(|why| !why.is_empty())
    {
        Some(why) => Some(why.to_owned()),
        None => Some(
            match terminated
                .get("signal")
                .and_then(Value::as_i64)
                .filter(|signal| *signal != 0)
            {
                Some(signal) => format!("Signal:{signal}"),
                None => format!(
                    "ExitCode:{}",
                    terminated.get("exitCode").and_then(Value::as_i64).unwrap_or(0)
                ),
            },
        ),
    }
}

fn restarts(pod: &Value, now: i64) -> String {
    let all = items(&pod["status"]["containerStatuses"]);
    let count: i64 = all
        .clone()
        .filter_map(|container| container["restartCount"].as_i64())
        .sum();
    let last = all
        .filter_map(|c| c["lastState"]["terminated"]["finishedAt"].as_str())
        .max();
    match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", since(&last.into(), now)),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::cells;
    use serde_json::json;

    #[test]
    fn the_word_says_what_is_wrong() {
        for (pod, status) in [
            (json!({ "status": { "phase": "Running" } }), "Running"),
            (
                json!({ "status": { "phase": "Pending", "containerStatuses": [
                { "state": { "waiting": { "reason": "ImagePullBackOff" } } }] } }),
                "ImagePullBackOff",
            ),
            (
                json!({ "metadata": { "deletionTimestamp": "x" }, "status": { "phase": "Running" } }),
                "Terminating",
            ),
            (
                json!({ "spec": { "initContainers": [{ "name": "a" }] }, "status": { "phase": "Pending",
                "initContainerStatuses": [{ "name": "a", "state": { "running": {} } }] } }),
                "Init:0/1",
            ),
            (
                json!({ "status": { "phase": "Failed", "containerStatuses": [
                { "state": { "terminated": { "exitCode": 3 } } }] } }),
                "ExitCode:3",
            ),
            (
                json!({ "status": { "phase": "Succeeded", "containerStatuses": [
                { "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }] } }),
                "Completed",
            ),
            (json!({}), "Unknown"),
        ] {
            assert_eq!(cells("Pod", &["Status"], pod.clone()), json!([status]), "{pod}");
        }
    }

    #[test]
    fn ready_and_restarts_are_counted() {
        let pod = json!({
            "spec": { "containers": [{}, {}] },
            "status": { "podIPs": [{ "ip": "10.0.0.9" }], "containerStatuses": [
                { "ready": true, "restartCount": 2, "state": { "running": {} },
                  "lastState": { "terminated": { "finishedAt": "1970-01-01T00:15:00Z" } } },
                { "ready": false, "restartCount": 0 },
            ] },
        });
        let columns = ["Ready", "Restarts", "IP", "Node", "Readiness Gates"];
        let wanted = json!(["1/2", "2 (100s ago)", "10.0.0.9", "<none>", "<none>"]);
        assert_eq!(cells("Pod", &columns, pod), wanted);
    }
}
