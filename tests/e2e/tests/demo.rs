//! Runs the demo on one machine: every check that it prints must succeed.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use e2e::{demo_binary, envoy_binary};
use tokio::process::Command;

#[tokio::test]
async fn the_demo_succeeds() {
    let output = Command::new(demo_binary())
        .args(["--once", "--envoy"])
        .arg(envoy_binary())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("Every promise held."), "{said}");
    for promise in [
        "mutual TLS between sidecars: the ledger was called by spiffe://cluster.local/ns/bank/sa/teller",
        "mutual TLS between sidecars: the ledger was called by spiffe://cluster.local/ns/bank/sa/visitor",
        "STRICT: plain text got 200 before, and was refused then; teller over mutual TLS got 200",
        "denied: spiffe://cluster.local/ns/bank/sa/visitor got 403; allowed: spiffe://cluster.local/ns/bank/sa/teller got 200",
        "tokens: no token 403, a good token 200, an expired token 401, a token of another issuer 401, a token with a forged signature 401",
    ] {
        let held = said.lines().any(|line| line.trim_start().starts_with("held") && line.contains(promise));
        assert!(held, "`{promise}` is not among what held: {said}");
    }
    // The demo prints each change as a command.
    for command in ["patch virtualservice shop", "apply --server-side -f", "delete workloadentry shop-v2-a"] {
        assert!(
            said.contains(&format!("$ kubectl -n demo {command}")) || said.contains(&format!("$ kubectl {command}")),
            "{said}"
        );
    }
}
