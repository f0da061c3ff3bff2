//! What is applied in the demo's cluster: ordinary objects of Kubernetes and Istio.

use std::net::IpAddr;

use serde_json::{Value, json};
use test_harness::run::Protocol;

use super::images;

/// The namespace of the shop.
pub(super) const NAMESPACE: &str = "shop";
/// The namespace of Rutter.
pub(super) const SYSTEM: &str = "istio-system";
/// Where the shop's program listens.
pub(super) const SHOP_PORT: u16 = 8080;
/// Where the client tells its counts. Nobody captures this port.
pub(super) const COUNTS_PORT: u16 = 15020;
/// Where a sidecar tells its figures.
pub(super) const FIGURES_PORT: u16 = 15090;

/// The shop's namespace and Service.
pub(super) const SERVICES: &str = include_str!("services.yaml");
/// The split between its versions.
pub(super) const SPLIT: &str = include_str!("split.yaml");

/// The addresses that pods know by name.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) istiod: IpAddr,
    pub(super) shop: IpAddr,
}

/// What every sidecar mounts.
pub(super) fn sidecar(protocol: Protocol) -> Value {
    let api_type = match protocol {
        Protocol::Sotw => "GRPC",
        Protocol::Delta => "DELTA_GRPC",
    };
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "sidecar", "namespace": NAMESPACE },
        "data": {
            "envoy.yaml": include_str!("envoy.yaml").replace("@API_TYPE@", api_type),
            "capture.nft": include_str!("capture.nft"),
            "drain.sh": include_str!("drain.sh"),
        },
    })
}

/// A version of the shop.
pub(super) fn shop(version: &str, replicas: u32, addresses: Addresses) -> String {
    let command = format!("/usr/local/bin/rutter, shop, {version}, $(POD_NAME)");
    let name = format!("shop-{version}");
    deployment(&name, "shop", version, replicas, &command, SHOP_PORT, addresses)
}

/// The client.
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
    let template = include_str!("deployment.yaml").to_owned();
    fills
        .iter()
        .fold(template, |text, (place, value)| text.replace(place, value))
}

/// The merge patch that makes another split, with what is tried again; without `retries` that is the mesh's default.
pub(super) fn split(v2: u32, retries: Option<&Value>) -> Value {
    let to = |subset: &str, weight: u32| json!({"destination": {"host": "shop", "subset": subset}, "weight": weight});
    let mut route = json!({"route": [to("v1", 100 - v2), to("v2", v2)]});
    if let Some(retries) = retries {
        route["retries"] = retries.clone();
    }
    json!({"spec": {"http": [route]}})
}

/// For requests that may be repeated: another instance is asked when one breaks off or its sidecar cannot reach it.
pub(super) fn retries() -> Value {
    json!({"attempts": 10, "retryOn": "connect-failure,refused-stream,reset,503"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled() {
        let one = IpAddr::from([192, 0, 2, 1]);
        let addresses = Addresses { istiod: one, shop: one };
        let sidecar = sidecar(Protocol::Delta).to_string();
        for text in [shop("v1", 2, addresses), client(addresses), sidecar] {
            let place = text
                .split('@')
                .skip(1)
                .step_by(2)
                .find(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            assert_eq!(place, None, "{text}");
        }
    }
}
