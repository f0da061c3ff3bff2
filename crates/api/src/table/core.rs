//! Computed cells of core kinds, with the texts of Kubernetes.

use serde_json::Value;

use super::since;

/// The computed cell of a column (in lower case); none if the column has a JSON path.
pub(super) fn cell(kind: &str, column: &str, object: &Value, now: i64) -> Option<Value> {
    let text = match kind {
        "Service" => service(column, object)?,
        "Node" => node(column, object)?,
        "Namespace" if column == "status" => or(&object["status"]["phase"], "Active"),
        "ConfigMap" if column == "data" => return Some((count(&object["data"]) + count(&object["binaryData"])).into()),
        "Secret" => match column {
            "type" => or(&object["type"], "Opaque"),
            "data" => return Some(count(&object["data"]).into()),
            _ => return None,
        },
        "ServiceAccount" if column == "secrets" => return Some(count(&object["secrets"]).into()),
        "Lease" if column == "holder" => or(&object["spec"]["holderIdentity"], ""),
        "EndpointSlice" => endpoint_slice(column, object)?,
        "Deployment" => return deployment(column, object),
        "Event" => return event(column, object, now),
        _ => return None,
    };
    Some(text.into())
}

fn service(column: &str, object: &Value) -> Option<String> {
    let spec = &object["spec"];
    Some(match column {
        "type" => or(&spec["type"], "ClusterIP"),
        "cluster-ip" => or(first(&spec["clusterIPs"]).unwrap_or(&spec["clusterIP"]), NONE),
        "external-ip" => external_ip(object),
        "port(s)" | "ports" => {
            let ports = items(&spec["ports"]).map(|port| {
                let node = port["nodePort"].as_i64().filter(|port| *port > 0);
                let node = node.map_or(String::new(), |node| format!(":{node}"));
                format!("{}{node}/{}", port["port"], or(&port["protocol"], "TCP"))
            });
            or_none(join(ports))
        }
        "selector" => selector(&spec["selector"]),
        _ => return None,
    })
}

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let external = items(&spec["externalIPs"]).filter_map(Value::as_str).map(str::to_owned);
    match spec["type"].as_str().unwrap_or("ClusterIP") {
        "ExternalName" => or(&spec["externalName"], NONE),
        "LoadBalancer" => {
            let given = items(&object["status"]["loadBalancer"]["ingress"])
                .map(|ingress| or(&ingress["ip"], ingress["hostname"].as_str().unwrap_or_default()));
            let all = join(given.chain(external));
            if all.is_empty() { "<pending>".into() } else { all }
        }
        _ => or_none(join(external)),
    }
}

fn node(column: &str, object: &Value) -> Option<String> {
    let (status, info) = (&object["status"], &object["status"]["nodeInfo"]);
    let address = |kind: &str| {
        let found = items(&status["addresses"]).find(|address| address["type"] == kind);
        found.map_or(NONE.to_owned(), |address| or(&address["address"], NONE))
    };
    Some(match column {
        "status" => {
            let ready = items(&status["conditions"]).find(|condition| condition["type"] == "Ready");
            let mut text = match ready.map(|condition| &condition["status"]) {
                Some(status) if status == "True" => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            }
            .to_owned();
            if object["spec"]["unschedulable"] == true {
                text.push_str(",SchedulingDisabled");
            }
            text
        }
        "roles" => {
            let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
            let roles = labels.filter_map(|(label, value)| match label.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role.to_owned()),
                _ => value.as_str().filter(|_| label == "kubernetes.io/role").map(str::to_owned),
            });
            or_none(join(roles))
        }
        "version" => or(&info["kubeletVersion"], ""),
        "internal-ip" => address("InternalIP"),
        "external-ip" => address("ExternalIP"),
        "os-image" => or(&info["osImage"], "<unknown>"),
        "kernel-version" => or(&info["kernelVersion"], "<unknown>"),
        "container-runtime" => or(&info["containerRuntimeVersion"], "<unknown>"),
        _ => return None,
    })
}

fn endpoint_slice(column: &str, object: &Value) -> Option<String> {
    Some(match column {
        "ports" => {
            let ports = items(&object["ports"]).map(|port| match &port["port"] {
                Value::Null => or(&port["name"], "*"),
                number => number.to_string(),
            });
            let ports: Vec<String> = ports.collect();
            if ports.is_empty() { UNSET.into() } else { some(&ports) }
        }
        "endpoints" => {
            let addresses = items(&object["endpoints"]).flat_map(|endpoint| items(&endpoint["addresses"]));
            let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
            if addresses.is_empty() { UNSET.into() } else { some(&addresses) }
        }
        _ => return None,
    })
}

fn deployment(column: &str, object: &Value) -> Option<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let containers = || items(&spec["template"]["spec"]["containers"]);
    Some(match column {
        "ready" => format!("{}/{}", number("readyReplicas"), spec["replicas"].as_i64().unwrap_or(0)).into(),
        "up-to-date" => number("updatedReplicas").into(),
        "available" => number("availableReplicas").into(),
        "containers" => join(containers().map(|container| or(&container["name"], ""))).into(),
        "images" => join(containers().map(|container| or(&container["image"], ""))).into(),
        "selector" => selector(&spec["selector"]["matchLabels"]).into(),
        _ => return None,
    })
}

fn event(column: &str, object: &Value, now: i64) -> Option<Value> {
    let involved = &object["involvedObject"];
    let first = [&object["firstTimestamp"], &object["eventTime"]].into_iter().find(|time| time.is_string());
    let last =
        [&object["series"]["lastObservedTime"], &object["lastTimestamp"]].into_iter().find(|time| time.is_string());
    let ago = |time: Option<&Value>| since(time.unwrap_or(&Value::Null), now);
    Some(match column {
        "last seen" => ago(last.or(first)).into(),
        "first seen" => ago(first).into(),
        "object" => {
            let kind = involved["kind"].as_str().unwrap_or_default().to_ascii_lowercase();
            format!("{kind}/{}", involved["name"].as_str().unwrap_or_default()).into()
        }
        "subobject" => or(&involved["fieldPath"], "").into(),
        "source" => {
            let (component, host) = (or(&object["source"]["component"], ""), or(&object["source"]["host"], ""));
            let component = if component.is_empty() { or(&object["reportingComponent"], "") } else { component };
            if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
        }
        "message" => object["message"].as_str().unwrap_or_default().trim().into(),
        "count" => object["series"]["count"].as_i64().or(object["count"].as_i64()).unwrap_or(1).into(),
        _ => return None,
    })
}

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";

/// A string, or a default if it is missing or empty.
pub(super) fn or(value: &Value, other: &str) -> String {
    match value.as_str() {
        None | Some("") => other.to_owned(),
        Some(text) => text.to_owned(),
    }
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn first(value: &Value) -> Option<&Value> {
    value.get(0)
}

fn count(value: &Value) -> u64 {
    let count = value.as_object().map(serde_json::Map::len).or(value.as_array().map(Vec::len));
    count.unwrap_or(0) as u64
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.into() } else { text }
}

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
}

/// The first items, and the number of further ones.
fn some(texts: &[String]) -> String {
    const LIMIT: usize = 3;
    let shown = texts[..texts.len().min(LIMIT)].join(",");
    match texts.len().saturating_sub(LIMIT) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn selector(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    or_none(join(labels.map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default()))))
}

#[cfg(test)]
mod tests {
    use super::super::computed_cells as cells;
    use serde_json::json;

    #[test]
    fn services_have_addresses_and_ports() {
        let columns = ["Type", "Cluster-IP", "External-IP", "Port(s)", "Selector"];
        let service = json!({ "spec": {
            "type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": { "app": "a" },
            "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30080 }, { "port": 53, "protocol": "UDP" }],
        } });
        let wanted = json!(["LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/UDP", "app=a"]);
        assert_eq!(cells("Service", &columns, service), wanted);
        let wanted = json!(["ClusterIP", "<none>", "<none>", "<none>", "<none>"]);
        assert_eq!(cells("Service", &columns, json!({ "spec": {} })), wanted);
    }

    #[test]
    fn other_kinds_are_summed_up() {
        let slice = json!({
            "ports": [{ "port": 80 }, { "name": "all" }],
            "endpoints": [{ "addresses": ["1.1.1.1"] }, { "addresses": ["1.1.1.2"] }, { "addresses": ["1.1.1.3"] }, { "addresses": ["1.1.1.4"] }],
        });
        let wanted = json!(["80,all", "1.1.1.1,1.1.1.2,1.1.1.3 + 1 more..."]);
        assert_eq!(cells("EndpointSlice", &["Ports", "Endpoints"], slice), wanted);
        let deployment = json!({ "spec": { "replicas": 3 }, "status": { "readyReplicas": 2, "availableReplicas": 1 } });
        assert_eq!(cells("Deployment", &["Ready", "Up-to-date", "Available"], deployment), json!(["2/3", 0, 1]));
        let node = json!({
            "metadata": { "labels": { "node-role.kubernetes.io/worker": "" } },
            "spec": { "unschedulable": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let wanted = json!(["Ready,SchedulingDisabled", "worker", "<none>"]);
        assert_eq!(cells("Node", &["Status", "Roles", "Internal-IP"], node), wanted);
        let event = json!({
            "lastTimestamp": "1970-01-01T00:15:00Z", "involvedObject": { "kind": "Pod", "name": "a" }, "message": "m\n",
        });
        assert_eq!(
            cells("Event", &["Last Seen", "Object", "Message", "Count"], event),
            json!(["100s", "pod/a", "m", 1])
        );
        assert_eq!(cells("ConfigMap", &["Data"], json!({ "data": { "a": "", "b": "" } })), json!([2]));
    }
}
