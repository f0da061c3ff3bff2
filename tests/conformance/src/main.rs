//! Runs the conformance suite of the Gateway API, or that of its Inference Extension, unchanged, against Rutter: `cargo xtask
//! conformance`.
//!
//! It starts a Kubernetes with a node, installs Rutter as `rutter install` does, gives addresses to Services of type
//! `LoadBalancer`, and runs the suite. The suite is a Go module, pinned in `go/` or `go-inference/`. The programs that its pods run
//! are built from the same modules, and from those in `go-dns/` and `go-echo/`. The endpoint picker is in `go-inference/picker/`.
//! Rutter deploys the gateways and injects the sidecars.

mod balancer;
mod cluster;
mod dns;
mod images;
mod inference;
mod outcome;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use test_harness::run::Result;

use crate::balancer::Balancer;
use crate::cluster::Cluster;
use crate::suite::{GATEWAY_API, INFERENCE, PROFILES, Suite, is_of_mesh};

/// Runs the conformance suite of the Gateway API against Rutter in a real Kubernetes on this machine. It needs root, and what
/// `cargo xtask setup --node` installs.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask conformance")]
struct Choice {
    /// A conformance profile: GATEWAY-HTTP, GATEWAY-GRPC, GATEWAY-TLS, GATEWAY-TCP, GATEWAY-UDP, MESH-HTTP or MESH-GRPC. May be
    /// repeated. Profiles make the report; the features decide which tests run. With those of the mesh, its tests run, too, and all
    /// pods of the suite have sidecars.
    #[arg(long = "profile", value_name = "NAME", default_value = "GATEWAY-HTTP")]
    profiles: Vec<String>,
    /// All profiles, in one run with one report.
    #[arg(long, conflicts_with = "profiles")]
    all: bool,
    /// Run the conformance suite of the Gateway API Inference Extension instead. It has one profile, `Gateway`. Its report is
    /// `inference-report.yaml`.
    #[arg(long, conflicts_with_all = ["profiles", "all", "features", "all_features"])]
    inference: bool,
    /// Run only tests whose name matches this regular expression. May be repeated. There is no report then.
    #[arg(long, value_name = "PATTERN")]
    run: Vec<String>,
    /// Tests to leave out, separated by commas.
    #[arg(long, value_name = "NAMES")]
    skip: Option<String>,
    /// Test all extended features. Without it, those that the GatewayClass and the mesh name are tested.
    #[arg(long)]
    all_features: bool,
    /// The features to test, separated by commas, instead of those that the GatewayClass and the mesh name.
    #[arg(long, value_name = "NAMES", conflicts_with = "all_features")]
    features: Option<String>,
    /// The directory for the report, the log of the suite and that of Rutter.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/conformance")]
    output: PathBuf,
    /// Keep the cluster after the run until Enter is pressed.
    #[arg(long)]
    keep: bool,
}

impl Choice {
    /// The selected profiles.
    fn profiles(&self) -> Vec<&str> {
        match self.all {
            true => PROFILES.to_vec(),
            false => self.profiles.iter().map(String::as_str).collect(),
        }
    }

    /// Whether there are tests of sidecars.
    fn has_mesh(&self) -> bool {
        !self.inference && self.profiles().into_iter().any(is_of_mesh)
    }

    /// The selected tests, as a pattern of names of Go tests.
    fn pattern(&self) -> String {
        match self.run.is_empty() {
            true => "^TestConformance$".to_owned(),
            false => format!("^TestConformance$/({})", self.run.join("|")),
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run(&Choice::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the suite. Returns whether all of its tests passed.
async fn run(choice: &Choice) -> Result<bool> {
    std::fs::create_dir_all(&choice.output)?;
    let source = if choice.inference { &INFERENCE } else { &GATEWAY_API };
    let suite = Suite::build(source, choice.has_mesh())?;
    let cluster = Cluster::start(&suite).await?;
    let balancer = Balancer::start(&cluster).await?;
    if choice.has_mesh() && choice.features.is_none() {
        cluster.name_mesh().await?;
    }
    if choice.inference {
        inference::trust_pickers(&cluster.plane(), &suite).await?;
    }
    let outcome = suite.run(&cluster, balancer.usable, choice).await;
    if choice.keep {
        eprintln!("==> export KUBECONFIG={}; press Enter to end", cluster.kubeconfig().display());
        let mut line = String::new();
        tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line)).await??;
    }
    cluster.save_logs(&choice.output).await?;
    drop(balancer);
    let outcome = outcome?;
    eprintln!("{outcome}");
    eprintln!("==> the report and logs are in {}", choice.output.display());
    Ok(outcome.has_passed())
}
