//! Runs the demo in a Kubernetes cluster with real pods: every check that it prints must succeed, and nothing may
//! remain.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use e2e::{agent_binary, demo_binary, envoy_binary};
use tokio::process::Command;

/// Texts that the checks of the demo must contain, without figures.
const PROMISES: [&str; 18] = [
    "3 changes; the slowest was in the client's sidecar",
    "5 pods are ready, 5 with a sidecar",
    "captured: ",
    "for 10 % of v2 through the client's sidecar",
    "100.0 % for 100 % of v2 through the client's sidecar",
    "5 of 5 pods of v2 serve",
    "0 requests were lost while pods came and went",
    "0 requests were lost while two pods were deleted",
    "requests that met a dead end were answered elsewhere",
    "0 requests were lost while a pod was deleted by force, an application, a sidecar and an Envoy killed",
    "0 requests were lost while Rutter was replaced",
    "kubectl describe tells that all of 5 proxies run the VirtualService",
    "mutual TLS between sidecars: the ledger was called by spiffe://cluster.local/ns/bank/sa/teller",
    "mutual TLS between sidecars: the ledger was called by spiffe://cluster.local/ns/bank/sa/visitor",
    "STRICT: plain text got 200 before, and was refused then; teller over mutual TLS got 200",
    "denied: spiffe://cluster.local/ns/bank/sa/visitor got 403; allowed: spiffe://cluster.local/ns/bank/sa/teller got 200",
    "tokens: no token 403, a good token 200, an expired token 401, a token of another issuer 401, a token with a forged signature 401",
    "requests through the sidecars, 0 not answered with 200",
];

#[tokio::test]
async fn the_kubernetes_demo_succeeds() {
    if let Some(missing) = test_harness::kubernetes::missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    // The demo takes the agent from its own directory.
    agent_binary();
    let output = Command::new(demo_binary())
        .args(["--kubernetes", "--once", "--envoy"])
        .arg(envoy_binary())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert!(output.status.success(), "{told}");
    assert!(said.contains("Every promise held."), "a promise is broken");
    for promise in PROMISES {
        let held = said.lines().any(|line| line.trim_start().starts_with("held") && line.contains(promise));
        assert!(held, "`{promise}` is not among what held");
    }
    // The directory of the cluster is removed last.
    let kubeconfig = said.lines().find_map(|line| line.split_once("KUBECONFIG=")).unwrap().1;
    assert!(!Path::new(kubeconfig).parent().unwrap().exists(), "{kubeconfig}");
}
