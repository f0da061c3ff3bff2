//! Tasks that consist of a few commands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};

use crate::layers;
use crate::run::{cargo, output, root, run, say, works};

/// Installs the real test parts; with `--node`, also the packages that a node needs.
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

/// Runs all tests or, with arguments, `cargo test` with them. A leading `--node` installs the packages that a node
/// needs first, if possible.
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
    // Compiles everything first, so that a compile error in the last crate is not found after minutes of tests. The
    // selection is the same both times, because another set of features would rebuild the dependencies.
    run(&mut cargo(&["test", "--workspace", "--no-run"]))?;
    kubernetes.done()?;
    // A failing test must not hide later failures.
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("RUTTER_BIN", built("rutter")?);
    run(tests.env("RUTTER_DEMO_BIN", built("rutter-demo")?))?;
    say("all tests passed");
    Ok(())
}

/// Starts, stops or shows the interactive cluster.
pub(crate) fn cluster(arguments: &[String]) -> ExitCode {
    let mut command =
        cargo(&["run", "--quiet", "--package", "test-harness", "--features", "run", "--bin", "cluster", "--"]);
    // The command has reported its error; its exit status is passed on.
    match command.args(arguments).status().map(|status| status.code()) {
        Ok(Some(0)) => ExitCode::SUCCESS,
        Ok(Some(2)) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Installs the parts that take seconds.
fn fetched() -> Result<()> {
    test_harness::envoy(&mut say).context("setup: Envoy")?;
    test_harness::etcd::program(&mut say).context("setup: etcd")?;
    test_harness::grpc::python(&mut say).context("setup: gRPC for Python")?;
    Ok(())
}

/// The build of Kubernetes on another thread, since it takes minutes the first time.
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

/// The path of a program that the test build produced. Passing it to the end-to-end tests saves them from building it.
fn built(name: &str) -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?;
    let target = metadata["target_directory"].as_str();
    let program = Path::new(target.context("cargo metadata names no target directory")?).join("debug").join(name);
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

/// Runs the conformance suite of the Gateway API, or that of its Inference Extension.
pub(crate) fn conformance(arguments: &[String]) -> Result<()> {
    run(&mut cargo(&["build", "--package", "rutter", "--package", "rutter-agent", "--package", "conformance"]))?;
    run(cargo(&["run", "--quiet", "--package", "conformance", "--"]).args(arguments))
}

pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some(package @ ("flow" | "inject" | "xds")) => {
            run(cargo(&["bench", "--package", package]).args(&arguments[1..]))
        }
        Some(program @ ("load" | "api" | "certificates" | "gateway")) => {
            // The load tools start the release build of `rutter` in their own directory.
            run(&mut cargo(&["build", "--release", "--package", "rutter", "--package", "load"]))?;
            let mut bench = cargo(&["run", "--release", "--quiet", "--package", "load", "--bin", program, "--"]);
            run(bench.args(&arguments[1..]))
        }
        _ => bail!("which benchmark? `flow`, `inject`, `xds`, `load`, `api`, `certificates` or `gateway`"),
    }
}

/// Lists the fuzz targets, or runs one for a limited time.
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
