//! The load tool's command line.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use load::many::{Kind, many};
use load::mesh::Location;
use load::objects::Size;
use load::report::Report;
use load::run::{Plan, run};
use load::soak::soak;
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
    /// In each namespace, a service and a DestinationRule for its own clients
    #[arg(long, conflicts_with = "location")]
    private: bool,
    /// Connect the proxies over TLS, each with a certificate of its own
    #[arg(long)]
    tls: bool,
    /// Where the mesh is
    #[arg(long = "in", value_enum, default_value_t = Location::Files)]
    location: Location,
    /// Change the mesh steadily for this many minutes instead, and fail if the memory grows
    #[arg(long, value_name = "MINUTES")]
    soak: Option<u64>,
    /// Measure many objects of this kind instead (again for more kinds), beside a small mesh, and a tenth of the number
    #[arg(long, value_enum, value_name = "KIND")]
    many: Vec<Kind>,
    /// The number of objects for --many; by default that of a large installation
    #[arg(long, value_name = "NUMBER", requires = "many")]
    count: Option<usize>,
    /// The protocol of the proxies
    #[arg(long, value_enum, default_value_t = Mode::Delta)]
    mode: Mode,
    /// The control plane to measure; by default the `rutter` beside this program
    #[arg(long, value_name = "PATH")]
    rutter: Option<PathBuf>,
    /// A page to put the table into, such as docs/performance.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["many", "soak"])]
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
        private: arguments.private,
        cluster_ips: true,
    };
    let protocol = match arguments.mode {
        Mode::Delta => Protocol::Delta,
        Mode::Sotw => Protocol::Sotw,
    };
    let plan =
        Plan { size, proxies: arguments.proxies.max(1), protocol, location: arguments.location, tls: arguments.tls };
    let binary = match arguments.rutter {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("rutter"),
    };
    let flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    // One thread: the other processors are for the control plane.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let named = || binary.display().to_string();
    if let Some(minutes) = arguments.soak {
        let time = Duration::from_secs(60 * minutes);
        return runtime.block_on(soak(&binary, &flags, plan, time)).with_context(named);
    }
    if !arguments.many.is_empty() {
        return runtime.block_on(many(&binary, &flags, &arguments.many, arguments.count)).with_context(named);
    }
    let mut report = Report::default_for(plan);
    let result = runtime.block_on(run(&binary, &flags, &mut report));
    // Also after an error: with what was measured until then.
    writeln!(std::io::stdout(), "{}", report.markdown())?;
    result.with_context(named)?;
    if let Some(page) = arguments.write {
        report.write_into(&page)?;
    }
    Ok(())
}
