//! The load tool's command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use load::mesh::Size;
use load::run::{Plan, run};
use test_harness::run::Protocol;

/// Measures a control plane: a mesh in files or in a real Kubernetes, and simulated proxies over real streams.
#[derive(Parser)]
#[command(name = "load", version)]
struct Arguments {
    /// Services
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// Ports of each service
    #[arg(long, default_value_t = 2)]
    ports: usize,
    /// Endpoints of each service
    #[arg(long, default_value_t = 10)]
    endpoints: usize,
    /// Proxies
    #[arg(long, default_value_t = 200)]
    proxies: usize,
    /// Namespaces, among which services and proxies are spread
    #[arg(long, default_value_t = 20)]
    namespaces: usize,
    /// A VirtualService and a DestinationRule for each service, 100 Sidecars and 50 EnvoyFilters
    #[arg(long)]
    rules: bool,
    /// Put the mesh into a real Kubernetes, with a pod for every endpoint, and not into files
    #[arg(long)]
    kubernetes: bool,
    /// The protocol of the proxies
    #[arg(long, value_enum, default_value_t = Mode::Delta)]
    mode: Mode,
    /// The control plane to measure; by default the `rutter` beside this program
    #[arg(long, value_name = "PATH")]
    rutter: Option<PathBuf>,
    /// A page to put the table into, such as docs/performance.md
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// More flags for the control plane, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Delta,
    Sotw,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let size = Size {
        services: arguments.services.max(2),
        ports: arguments.ports.max(1),
        endpoints: arguments.endpoints.max(1),
        namespaces: arguments.namespaces.max(1),
        rules: arguments.rules,
    };
    let protocol = match arguments.mode {
        Mode::Delta => Protocol::Delta,
        Mode::Sotw => Protocol::Sotw,
    };
    let plan = Plan { size, proxies: arguments.proxies.max(1), protocol, kubernetes: arguments.kubernetes };
    let binary = match arguments.rutter {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("rutter"),
    };
    let flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    // One thread: the other processors are for the control plane.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(run(&binary, &flags, plan)).with_context(|| binary.display().to_string())?;
    writeln!(std::io::stdout(), "{}", report.markdown())?;
    if let Some(page) = arguments.write {
        report.write_into(&page)?;
    }
    Ok(())
}
