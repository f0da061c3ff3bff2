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
        "ip" => or(status["podIPs"].get(0).map_or(&status["podIP"], |ip| &ip["ip"]), "<none>").into(),
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

/// The reason why a container is not running, or the phase. No kubelet uses this API, so init containers and exit codes are
/// not evaluated.
fn reason(pod: &Value) -> String {
    let status = &pod["status"];
    let ended = matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"));
    if !pod["metadata"]["deletionTimestamp"].is_null() && !ended {
        return "Terminating".into();
    }
    let stopped = items(&status["containerStatuses"]).find_map(|container| {
        let state = &container["state"];
        let reason = state["waiting"]["reason"].as_str();
        reason.or(state["terminated"]["reason"].as_str()).filter(|reason| !reason.is_empty())
    });
    let phase = or(&status["reason"], &or(&status["phase"], "Unknown"));
    stopped.map_or(phase, str::to_owned)
}

fn restarts(pod: &Value, now: i64) -> String {
    let all = items(&pod["status"]["containerStatuses"]);
    let count: i64 = all.clone().filter_map(|container| container["restartCount"].as_i64()).sum();
    let last = all.filter_map(|c| c["lastState"]["terminated"]["finishedAt"].as_str()).max();
    match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", since(&last.into(), now)),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::computed_cells as cells;
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
            (json!({ "metadata": { "deletionTimestamp": "x" }, "status": { "phase": "Running" } }), "Terminating"),
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
