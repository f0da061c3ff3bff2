//! The manifests of the demo's cluster: ordinary Kubernetes and Istio objects. Sidecars are injected.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::images;
use crate::bank::objects::BANK;

pub(super) const NAMESPACE: &str = "shop";
pub(super) const SYSTEM: &str = "istio-system";
pub(super) const SHOP_PORT: u16 = 8080;
/// The port on which the client publishes its counts. It is excluded from capture.
pub(super) const COUNTS_PORT: u16 = 9000;
/// The port on which a sidecar publishes its statistics.
pub(super) const FIGURES_PORT: u16 = 15090;
/// The port on which Rutter publishes its metrics.
pub(super) const METRICS_PORT: u16 = 15014;

/// The VirtualService that splits traffic between the shop's versions.
pub(super) const SPLIT: &str = include_str!("split.yaml");

/// The addresses that pods resolve by their hosts files: those of the control plane, and of the Service that they call.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) istiod: IpAddr,
    pub(super) service: (&'static str, IpAddr),
}

/// A namespace whose pods get sidecars, and its Service.
pub(super) fn service(namespace: &str, service: &str) -> String {
    filled(include_str!("service.yaml"), &[("@NAMESPACE@", namespace), ("@SERVICE@", service)])
}

/// The Deployment of a version of the shop.
pub(super) fn shop(version: &str, replicas: u32, addresses: Addresses) -> String {
    let command = format!("shop, {version}, $(POD_NAME)");
    let workload = (NAMESPACE, &*format!("shop-{version}"), "shop", version);
    deployment(workload, replicas, &command, SHOP_PORT, addresses)
}

/// The Deployment of the shop's client.
pub(super) fn client(addresses: Addresses) -> String {
    deployment((NAMESPACE, "client", "client", "v1"), 1, "client, shop", COUNTS_PORT, addresses)
}

/// A workload of the bank with this name and service account.
pub(super) fn bank(account: &str, addresses: Addresses) -> String {
    deployment((BANK, account, account, "v1"), 1, &format!("shop, v1, {account}"), SHOP_PORT, addresses)
}

/// The Deployment of a workload (its namespace, name, application and version), with a service account of its name.
fn deployment(
    (namespace, name, app, version): (&str, &str, &str, &str),
    replicas: u32,
    command: &str,
    probed: u16,
    Addresses { istiod, service: (service, address) }: Addresses,
) -> String {
    let fills = [
        ("@NAMESPACE@", namespace),
        ("@NAME@", name),
        ("@APP@", app),
        ("@VERSION@", version),
        ("@REPLICAS@", &replicas.to_string()),
        ("@COMMAND@", &format!("{}, {command}", images::PROGRAM)),
        ("@PROBED@", &probed.to_string()),
        ("@COUNTS_PORT@", &COUNTS_PORT.to_string()),
        ("@ISTIOD@", &istiod.to_string()),
        ("@SERVICE@", service),
        ("@ADDRESS@", &address.to_string()),
        ("@IMAGE@", images::RUTTER),
    ];
    filled(include_str!("deployment.yaml"), &fills)
}

fn filled(template: &str, fills: &[(&str, &str)]) -> String {
    fills.iter().fold(template.to_owned(), |text, (place, value)| text.replace(place, value))
}

/// A merge patch that changes the split and the retry policy; without `retries` the mesh's default applies.
pub(super) fn split(v2: u32, retries: Option<&Value>) -> Value {
    let to = |subset: &str, weight: u32| json!({"destination": {"host": "shop", "subset": subset}, "weight": weight});
    let mut route = json!({"route": [to("v1", 100 - v2), to("v2", v2)]});
    if let Some(retries) = retries {
        route["retries"] = retries.clone();
    }
    json!({"spec": {"http": [route]}})
}

/// A retry policy for idempotent requests: connection failures and resets are retried on another instance.
pub(super) fn retries() -> Value {
    json!({"attempts": 10, "retryOn": "connect-failure,refused-stream,reset,503"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_placeholders_are_replaced() {
        let one = IpAddr::from([192, 0, 2, 1]);
        let addresses = Addresses { istiod: one, service: ("shop", one) };
        for text in [shop("v1", 2, addresses), client(addresses), bank("ledger", addresses), service("bank", "ledger")]
        {
            let place = text
                .split('@')
                .skip(1)
                .step_by(2)
                .find(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            assert_eq!(place, None, "{text}");
        }
    }
}
