//! The endpoint pickers of the suite of the Inference Extension. They serve TLS with certificates of their own, which no object of
//! the suite says.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_harness::kubernetes::ControlPlane;
use test_harness::run::Result;

use crate::suite::Suite;

/// The namespace of the pickers. The suite creates it if it does not exist.
const NAMESPACE: &str = "inference-conformance-app-backend";

/// Creates a DestinationRule for each picker. It makes gateways use TLS, without verification.
pub(crate) async fn trust_pickers(plane: &ControlPlane, suite: &Suite) -> Result<()> {
    let mut names = BTreeSet::new();
    for manifest in suite.manifests()? {
        names.extend(pickers_in(&manifest).map(str::to_owned));
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let items: Vec<Value> = std::iter::once(namespace).chain(names.iter().map(|name| rule(name))).collect();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": items});
    plane.kubectl(&["apply", "--server-side", "-f", "-"], &objects.to_string()).await?;
    Ok(())
}

fn rule(service: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"namespace": NAMESPACE, "name": service},
        "spec": {"host": service, "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": true}}},
    })
}

/// The Services of the pickers that a manifest refers to.
fn pickers_in(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().map(str::trim);
    let references = lines.clone().zip(lines.skip(1)).filter(|(line, _)| *line == "endpointPickerRef:");
    references.filter_map(|(_, next)| next.strip_prefix("name: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pickers_are_found() {
        let found: Vec<&str> = pickers_in("spec:\n  endpointPickerRef:\n    name: a\n    port:\n  name: b\n").collect();
        assert_eq!(found, ["a"]);
    }
}
