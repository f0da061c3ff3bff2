//! The tasks that are a few commands each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};

use crate::layers;
use crate::run::{cargo, output, root, run, say, works};

/// Gets the real parts; with `--node`, also what a node needs of this machine.
pub(crate) fn setup(arguments: &[String]) -> Result<()> {
    let node = match arguments {
        [] => false,
        [flag] if flag == "--node" => true,
        _ => bail!("`setup` takes nothing but --node"),
    };
    let kubernetes = Kubernetes::begin();
    fetched()?;
    if node {
        test_harness::kubernetes::install_packages(&mut say).context("setup: a node")?;
    }
    if let Some(missing) = test_harness::kubernetes::missing() {
        say(&format!("tests with pods will be skipped: {missing}"));
    }
    kubernetes.done()
}

/// Runs every test; or, with arguments, `cargo test` with them. With `--node` before them what a node needs is installed
/// first, if that can be.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    let node = arguments.first().is_some_and(|argument| argument == "--node");
    let arguments = &arguments[usize::from(node)..];
    if node && let Err(error) = test_harness::kubernetes::install_packages(&mut say) {
        say(&format!("tests with pods will be skipped: {error}"));
    }
    if !arguments.is_empty() {
        setup(&[])?;
        return run(cargo(&["test"]).args(arguments));
    }
    let kubernetes = Kubernetes::begin();
    fetched()?;
    layers::check()?;
    // Compile everything first, so that a mistake in the last crate is not found after minutes of tests. The selection is
    // the same both times: cargo would build the dependencies again for the features of another one.
    run(&mut cargo(&["test", "--workspace", "--no-run"]))?;
    kubernetes.done()?;
    // All of them, whatever fails: one failure must not hide those behind it.
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("RUTTER_BIN", built("rutter")?);
    run(tests.env("RUTTER_DEMO_BIN", built("rutter-demo")?))?;
    say("all tests passed");
    Ok(())
}

/// Starts, ends or shows the cluster for people.
pub(crate) fn cluster(arguments: &[String]) -> ExitCode {
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--package",
        "test-harness",
        "--features",
        "run",
        "--bin",
        "cluster",
        "--",
    ]);
    // It has said what is wrong; its status is this one's.
    match command.args(arguments).status().map(|status| status.code()) {
        Ok(Some(0)) => ExitCode::SUCCESS,
        Ok(Some(2)) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// The parts that are there in seconds.
fn fetched() -> Result<()> {
    test_harness::envoy(&mut say).context("setup: Envoy")?;
    test_harness::etcd::program(&mut say).context("setup: etcd")?;
    test_harness::grpc::python(&mut say).context("setup: gRPC for Python")?;
    Ok(())
}

/// The build of Kubernetes, which takes minutes the first time, beside everything else.
struct Kubernetes(JoinHandle<Result<()>>);

impl Kubernetes {
    fn begin() -> Kubernetes {
        Kubernetes(std::thread::spawn(|| {
            test_harness::grpc::go(&mut say).context("setup: gRPC for Go")?;
            test_harness::kubernetes::program(&mut say).context("setup: Kubernetes")?;
            Ok(())
        }))
    }

    fn done(self) -> Result<()> {
        let built = self.0.join();
        built.unwrap_or_else(|_| bail!("setup: the build of Kubernetes broke off"))?;
        test_harness::kubectl(&mut say).context("setup: kubectl")?;
        Ok(())
    }
}

/// A program that building the tests has built, too. Naming it saves the end-to-end tests from building it.
fn built(name: &str) -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?;
    let target = metadata["target_directory"].as_str();
    let program = Path::new(target.context("cargo metadata names no target directory")?)
        .join("debug")
        .join(name);
    ensure!(program.exists(), "{} was not built", program.display());
    Ok(program)
}

/// Writes the generated pages.
pub(crate) fn docs() -> Result<()> {
    for package in ["settings", "config", "server", "cli"] {
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
