//! The tasks that are a few commands each.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::layers;
use crate::run::{cargo, output, root, run, say, works};

/// Fetches the real parts.
pub(crate) fn setup() -> Result<()> {
    parts::envoy(&mut say).context("setup: Envoy")?;
    parts::etcd::program(&mut say).context("setup: etcd")?;
    parts::kubectl(&mut say).context("setup: kubectl")?;
    Ok(())
}

/// Runs every test; or, with arguments, `cargo test` with them.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    setup()?;
    if !arguments.is_empty() {
        return run(cargo(&["test"]).args(arguments));
    }
    layers::check()?;
    // Compile everything first, so that a mistake in the last crate is not found after minutes of tests. The selection is
    // the same both times: cargo would build the dependencies again for the features of another one.
    run(&mut cargo(&["test", "--workspace", "--no-run"]))?;
    run(cargo(&["test", "--workspace"]).env("RUTTER_BIN", rutter()?))?;
    say("all tests passed");
    Ok(())
}

/// The program that building the tests has built, too; named, so that the end-to-end tests need not see to it.
fn rutter() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?;
    let target = metadata["target_directory"].as_str();
    let program = Path::new(target.context("cargo metadata names no target directory")?).join("debug/rutter");
    ensure!(program.exists(), "{} was not built", program.display());
    Ok(program)
}

/// Writes the generated pages.
pub(crate) fn docs() -> Result<()> {
    for package in ["settings", "resources", "cli"] {
        run(cargo(&["test", "--quiet", "--package", package, "reference_page"]).env("RUTTER_UPDATE_DOCS", "1"))?;
    }
    Ok(())
}

/// Runs a benchmark.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("flow") => run(cargo(&["bench", "--package", "flow"]).args(&arguments[1..])),
        Some(program @ ("load" | "api")) => {
            // The load tools start the release build of `rutter` that stands beside them.
            run(&mut cargo(&[
                "build",
                "--release",
                "--package",
                "rutter",
                "--package",
                "load",
            ]))?;
            let mut bench = cargo(&[
                "run",
                "--release",
                "--quiet",
                "--package",
                "load",
                "--bin",
                program,
                "--",
            ]);
            run(bench.args(&arguments[1..]))
        }
        _ => bail!("which benchmark? `flow`, `load` or `api`"),
    }
}

/// Lists the fuzz targets, or runs one for a while.
pub(crate) fn fuzz(arguments: &[String]) -> Result<()> {
    if !works(&mut cargo(&["fuzz", "--version"])) {
        bail!("cargo-fuzz is missing: `cargo install cargo-fuzz`, and a nightly toolchain");
    }
    let fuzz = || {
        let mut command = std::process::Command::new("cargo");
        command.args(["+nightly", "fuzz"]).current_dir(root());
        command
    };
    match arguments {
        [] => run(fuzz().arg("list")),
        [target] => run(fuzz().args(["run", target])),
        [target, seconds, ..] => run(fuzz().args(["run", target, "--", &format!("-max_total_time={seconds}")])),
    }
}
