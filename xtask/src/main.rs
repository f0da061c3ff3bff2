//! The project's task runner: `cargo xtask TASK`. CI runs the same tasks.

mod layers;
mod lint;
mod run;
mod size;
mod spelling;
mod tasks;
mod words;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  setup [--node]   get the real test parts (Envoy, etcd, Kubernetes) into target/tools, pinned by version and checksum;
                   --node: also install the packages that a node needs, with apt-get, as root
  test [FILTER…]   setup, layers, then all tests; with arguments: `cargo test` with them, after setup
  test --node …    the same, after installing the packages that tests with pods need, if it is root that asks
  lint             formatting, clippy without warnings, layers, sizes, words, licences if cargo-deny is there
  size             print the size table and check its limits
  words [--accept] check phrases and spelling of the documentation and of module comments; --accept adds new words
  layers           check that dependencies point down and that the middle does no I/O
  docs             write the generated pages of docs/
  cluster up [--node] | down | status   a real Kubernetes on this machine, for you to use
  conformance …    the conformance suite of the Gateway API, or of its Inference Extension, against Rutter in a real
                   Kubernetes, as root (--help)
  bench flow       the engine's benchmark
  bench xds        the cost of streams in the xDS state machine
  bench inject     the latency and processor time of sidecar injection
  bench load …     simulated proxies against the release build; arguments go to the load tool (--help)
  bench gateway …  a Gateway with many routes or ListenerSets, against the release build (--help)
  fuzz [TARGET [SECONDS]]   list the fuzz targets, or run one (needs cargo-fuzz and a nightly toolchain)
  ci               what CI runs: lint and test";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let result = match arguments.first().map(String::as_str) {
        Some("setup") => tasks::setup(rest),
        Some("test") => tasks::test(rest),
        Some("lint") => lint::lint(),
        Some("layers") => layers::check(),
        Some("size") => size::check(),
        Some("words") => words::check(rest),
        Some("docs") => tasks::docs(),
        Some("cluster") => return tasks::cluster(rest),
        Some("conformance") => tasks::conformance(rest),
        Some("bench") => tasks::bench(rest),
        Some("fuzz") => tasks::fuzz(rest),
        Some("ci") => lint::lint().and_then(|()| tasks::test(&[])),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
