//! The manifests of the demo's cluster: ordinary Kubernetes and Istio objects.

use std::net::IpAddr;

use serde_json::{Value, json};
use test_agent::over_tls;
use test_harness::run::Protocol;

use super::agent::SDS_PORT;
use super::images;
use crate::bank::objects::BANK;

pub(super) const NAMESPACE: &str = "shop";
pub(super) const SYSTEM: &str = "istio-system";
/// The name of the control plane in its certificate.
const ISTIOD: &str = "istiod.istio-system.svc";
pub(super) const SHOP_PORT: u16 = 8080;
/// The port on which the client publishes its counts. It is excluded from capture.
pub(super) const COUNTS_PORT: u16 = 15020;
/// The port on which a sidecar publishes its statistics.
pub(super) const FIGURES_PORT: u16 = 15090;

/// The shop's namespace and Service.
pub(super) const SERVICES: &str = include_str!("services.yaml");
/// The VirtualService that splits traffic between the shop's versions.
pub(super) const SPLIT: &str = include_str!("split.yaml");

/// The addresses that pods resolve by their hosts files.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) istiod: IpAddr,
    pub(super) shop: IpAddr,
}

/// The bank's namespace and Service.
pub(super) const BANK_SERVICE: &str = include_str!("bank-service.yaml");

/// The ConfigMap that every sidecar of the shop mounts. They connect to the plaintext port.
pub(super) fn sidecar(protocol: Protocol) -> Value {
    let raw = json!({
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer" },
    });
    config_map(NAMESPACE, protocol, ("15010", &raw, ""))
}

/// The bootstrap of the bank's sidecars: they have certificates, and connect to the TLS port with them.
pub(super) fn bank_sidecar(protocol: Protocol) -> Value {
    let secured = over_tls(json!({ "static_resources": { "clusters": [{}] } }), ISTIOD);
    let transport = &secured["static_resources"]["clusters"][0]["transport_socket"];
    config_map(BANK, protocol, ("15012", transport, include_str!("agent.yaml")))
}

fn config_map(namespace: &str, protocol: Protocol, (port, transport, clusters): (&str, &Value, &str)) -> Value {
    let api_type = match protocol {
        Protocol::Sotw => "GRPC",
        Protocol::Delta => "DELTA_GRPC",
    };
    let fills = [
        ("@API_TYPE@", api_type.to_owned()),
        ("@XDS_PORT@", port.to_owned()),
        ("@TRANSPORT@", transport.to_string()),
        ("@MORE_CLUSTERS@", clusters.replace("@SDS_PORT@", &SDS_PORT.to_string())),
    ];
    let bootstrap = filled(include_str!("envoy.yaml"), &fills);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "sidecar", "namespace": namespace },
        "data": {
            "envoy.yaml": bootstrap,
            "capture.nft": include_str!("capture.nft"),
            "drain.sh": include_str!("drain.sh"),
        },
    })
}

/// The Deployment of a version of the shop.
pub(super) fn shop(version: &str, replicas: u32, addresses: Addresses) -> String {
    let command = format!("/usr/local/bin/rutter, shop, {version}, $(POD_NAME)");
    let name = format!("shop-{version}");
    deployment(&name, "shop", version, replicas, &command, SHOP_PORT, addresses)
}

pub(super) fn client(addresses: Addresses) -> String {
    let command = "/usr/local/bin/rutter, client, shop";
    deployment("client", "client", "v1", 1, command, COUNTS_PORT, addresses)
}

fn deployment(
    name: &str,
    app: &str,
    version: &str,
    replicas: u32,
    command: &str,
    probed: u16,
    addresses: Addresses,
) -> String {
    let fills = [
        ("@NAME@", name.to_owned()),
        ("@APP@", app.to_owned()),
        ("@VERSION@", version.to_owned()),
        ("@REPLICAS@", replicas.to_string()),
        ("@COMMAND@", command.to_owned()),
        ("@PROBED@", probed.to_string()),
        ("@ISTIOD@", addresses.istiod.to_string()),
        ("@SHOP@", addresses.shop.to_string()),
        ("@PROXY_IMAGE@", images::PROXY.to_owned()),
        ("@RUTTER_IMAGE@", images::RUTTER.to_owned()),
    ];
    filled(include_str!("deployment.yaml"), &fills)
}

/// A workload of the bank with this name and service account.
pub(super) fn bank(account: &str, istiod: IpAddr, ledger: IpAddr) -> String {
    let fills = [
        ("@NAME@", account.to_owned()),
        ("@ISTIOD@", istiod.to_string()),
        ("@LEDGER@", ledger.to_string()),
        ("@PROXY_IMAGE@", images::PROXY.to_owned()),
        ("@RUTTER_IMAGE@", images::RUTTER.to_owned()),
    ];
    filled(include_str!("bank.yaml"), &fills)
}

fn filled(template: &str, fills: &[(&str, String)]) -> String {
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
        let addresses = Addresses { istiod: one, shop: one };
        let (sidecar, secured) = (sidecar(Protocol::Delta).to_string(), bank_sidecar(Protocol::Delta).to_string());
        for text in [shop("v1", 2, addresses), client(addresses), bank("ledger", one, one), sidecar, secured] {
            let place = text
                .split('@')
                .skip(1)
                .step_by(2)
                .find(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            assert_eq!(place, None, "{text}");
        }
    }
}
