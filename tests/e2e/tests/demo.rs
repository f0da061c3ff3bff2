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
    // The demo prints each change as a command.
    for command in ["patch virtualservice shop", "apply --server-side -f", "delete workloadentry shop-v2-a"] {
        assert!(
            said.contains(&format!("$ kubectl -n demo {command}")) || said.contains(&format!("$ kubectl {command}")),
            "{said}"
        );
    }
}
