//! Runs the command line of `rutter` as a user does.

use std::path::Path;
use std::process::{Output, Stdio};

use test_harness::run::Result;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::rutter_binary;

/// Runs `rutter` with these arguments and this standard input.
pub async fn rutter(kubeconfig: &Path, arguments: &[&str], input: &str) -> Result<Output> {
    let mut child = Command::new(rutter_binary())
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await?;
    }
    Ok(child.wait_with_output().await?)
}

/// As above; returns the output, or an error if the command fails.
pub async fn done(kubeconfig: &Path, arguments: &[&str], input: &str) -> Result<String> {
    let output = rutter(kubeconfig, arguments, input).await?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("rutter {arguments:?}: {printed}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
