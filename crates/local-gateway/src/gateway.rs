//! Gateways and their classes, as far as the proxies depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use model::standing::{CONTROLLERS, PROXY_ADDRESSES, condition};
use serde_json::Value;

use crate::ports::listeners;

/// The class that is served without an object.
const BUILT_IN: &str = "istio";
/// The prefix of labels and annotations that `spec.infrastructure` must not set.
const RESERVED: &str = "gateway.networking.k8s.io/";
/// Labels of the proxies of a Gateway.
const NAME: &str = "gateway.networking.k8s.io/gateway-name";
const CLASS: &str = "gateway.networking.k8s.io/gateway-class-name";
const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";
/// Annotations of a Gateway, as in Kubernetes.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
const ACCOUNT: &str = "gateway.istio.io/service-account";

/// The namespace and name of a Gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Id {
    pub(crate) fn of(object: &Value) -> Id {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Id { namespace: text("namespace"), name: text("name") }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The controllers of GatewayClasses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Classes(BTreeMap<String, String>);

impl Classes {
    pub(crate) fn see(&mut self, object: &Value, there: bool) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let controller = object["spec"]["controllerName"].as_str().unwrap_or_default();
        match there {
            true => drop(self.0.insert(name, controller.to_owned())),
            false => drop(self.0.remove(&name)),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn serves(&self, class: &str) -> bool {
        self.0.get(class).map_or(class == BUILT_IN, |controller| CONTROLLERS.contains(&&**controller))
    }
}

/// Labels or annotations.
pub(crate) type Texts = BTreeMap<String, String>;

/// The facts of a Gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gateway {
    pub(crate) id: Id,
    class: String,
    /// The name of its proxies, which is that of the Deployment in Kubernetes.
    pub(crate) workload: String,
    pub(crate) account: String,
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
    addresses: Vec<Address>,
    /// The ports of its listeners.
    pub(crate) ports: BTreeSet<u16>,
    /// The ConfigMap of `parametersRef`; else a kind that is not supported.
    pub(crate) parameters: Option<Result<String, String>>,
    /// The addresses that its annotation has.
    pub(crate) published: Option<String>,
}

/// An address of the specification: its type and value, which may be empty.
type Address = (String, String);

/// A reason for which a Gateway has no proxy on this machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("its GatewayClass {0:?} is not served by Rutter")]
    Class(String),
    #[error("its address {0:?} is a service, which has proxies of its own")]
    Service(String),
    #[error("{0:?} in spec.addresses is not an IP address")]
    NoIp(String),
    #[error("no address of spec.addresses is an address of this machine: {0}")]
    Foreign(String),
}

impl Gateway {
    pub(crate) fn of(object: &Value) -> Gateway {
        let id = Id::of(object);
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let annotation = |name: &str| meta["annotations"][name].as_str().filter(|text| !text.is_empty());
        let class = spec["gatewayClassName"].as_str().unwrap_or_default().to_owned();
        let default = format!("{}-{class}", id.name);
        let workload = annotation(NAME_OVERRIDE).unwrap_or(&default).to_owned();
        let mut labels = free(&spec["infrastructure"]["labels"]);
        for (name, value) in
            [(NAME, &id.name), (CLASS, &class), (CANONICAL_NAME, &workload), (CANONICAL_REVISION, &"latest".to_owned())]
        {
            labels.insert(name.to_owned(), value.clone());
        }
        let addresses = spec["addresses"].as_array().into_iter().flatten().map(|address| {
            let text = |field: &str, default| address[field].as_str().unwrap_or(default).to_owned();
            (text("type", "IPAddress"), text("value", ""))
        });
        Gateway {
            account: annotation(ACCOUNT).unwrap_or(&default).to_owned(),
            annotations: free(&spec["infrastructure"]["annotations"]),
            addresses: addresses.collect(),
            ports: listeners(object).map(|(_, port)| port).collect(),
            parameters: parameters(&spec["infrastructure"]["parametersRef"]),
            published: annotation(PROXY_ADDRESSES).map(str::to_owned),
            id,
            class,
            workload,
            labels,
        }
    }

    /// The IP addresses that its proxy must have; empty for any.
    pub(crate) fn requested(&self, classes: &Classes, is_own: impl Fn(IpAddr) -> bool) -> Result<Vec<IpAddr>, Refusal> {
        if !classes.serves(&self.class) {
            return Err(Refusal::Class(self.class.clone()));
        }
        let given = self.addresses.iter().filter(|(_, value)| !value.is_empty());
        let mut requested = Vec::new();
        for (kind, value) in given {
            match (&**kind, value.parse::<IpAddr>()) {
                ("IPAddress", Ok(ip)) => requested.push(ip),
                ("IPAddress", Err(_)) => return Err(Refusal::NoIp(value.clone())),
                ("Hostname", _) => return Err(Refusal::Service(value.clone())),
                _ => {}
            }
        }
        let own: Vec<IpAddr> = requested.iter().copied().filter(|ip| is_own(*ip)).collect();
        if own.is_empty() && !requested.is_empty() {
            let all: Vec<String> = requested.iter().map(ToString::to_string).collect();
            return Err(Refusal::Foreign(all.join(", ")));
        }
        Ok(own)
    }
}

fn parameters(reference: &Value) -> Option<Result<String, String>> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    reference.is_object().then(|| match (&*text("group"), &*text("kind")) {
        ("", "ConfigMap") => Ok(text("name")),
        (_, kind) => Err(kind.to_owned()),
    })
}

/// Labels or annotations, without reserved ones.
pub(crate) fn free(texts: &Value) -> Texts {
    let texts = texts.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with(RESERVED));
    texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// The condition `Programmed` of a Gateway: its status, and its reason and message.
pub(crate) fn programmed(object: &Value) -> Option<(bool, String)> {
    let found = condition_of(&object["status"])?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    Some((text("status") == "True", format!("{}: {}", text("reason"), text("message"))))
}

pub(crate) fn condition_of(status: &Value) -> Option<&Value> {
    status["conditions"].as_array()?.iter().find(|one| one["type"] == condition::PROGRAMMED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requested(class: &str, addresses: &Value) -> String {
        let mut classes = Classes::default();
        classes.see(&json!({"metadata": {"name": "ours"}, "spec": {"controllerName": CONTROLLERS[1]}}), true);
        classes.see(&json!({"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/other"}}), true);
        let object = json!({"spec": {"gatewayClassName": class, "addresses": addresses}});
        match Gateway::of(&object).requested(&classes, |ip| ip.is_loopback()) {
            Ok(ips) => ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn a_proxy_runs_for_served_classes_at_addresses_of_the_machine() {
        let none = json!([]);
        assert_eq!(requested("istio", &none), "");
        assert_eq!(requested("ours", &none), "");
        assert_eq!(requested("other", &none), "its GatewayClass \"other\" is not served by Rutter");
        assert_eq!(requested("gone", &none), "its GatewayClass \"gone\" is not served by Rutter");
        assert_eq!(requested("istio", &json!([{"value": "127.0.0.2"}, {"value": "192.0.2.1"}])), "127.0.0.2");
        assert_eq!(requested("istio", &json!([{"type": "IPAddress"}, {"type": "Hostname", "value": ""}])), "");
        assert_eq!(
            requested("istio", &json!([{"value": "192.0.2.1"}])),
            "no address of spec.addresses is an address of this machine: 192.0.2.1"
        );
        assert_eq!(
            requested("istio", &json!([{"type": "Hostname", "value": "front"}])),
            "its address \"front\" is a service, which has proxies of its own"
        );
        assert_eq!(requested("istio", &json!([{"value": "x"}])), "\"x\" in spec.addresses is not an IP address");
    }

    #[test]
    fn infrastructure_adds_to_the_labels_of_the_proxy() {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "edge", "annotations": {ACCOUNT: "front", PROXY_ADDRESSES: "127.0.0.1"}},
            "spec": {"gatewayClassName": "istio", "infrastructure": {
                "labels": {"team": "a", NAME: "other", "gateway.networking.k8s.io/x": "y"}, "annotations": {"note": "b"},
            }},
        });
        let gateway = Gateway::of(&object);
        let labels: Vec<String> = gateway.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            labels,
            [
                "gateway.networking.k8s.io/gateway-class-name=istio",
                "gateway.networking.k8s.io/gateway-name=edge",
                "service.istio.io/canonical-name=edge-istio",
                "service.istio.io/canonical-revision=latest",
                "team=a",
            ]
        );
        assert_eq!(gateway.annotations, Texts::from([("note".to_owned(), "b".to_owned())]));
        assert_eq!((&*gateway.account, gateway.published.as_deref()), ("front", Some("127.0.0.1")));
    }
}
