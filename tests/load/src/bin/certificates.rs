//! Measures the TLS port: certificate requests, and the memory of streams.
//!
//! The client shares the machine with the server; only the server's usage is counted.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use load::certificates::{Plan, certificates};
use load::probe;

/// Measures certificate requests and streams over TLS.
#[derive(Parser)]
#[command(name = "certificates", version)]
struct Arguments {
    /// Certificate requests
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Workloads that request certificates at the same time
    #[arg(long, default_value_t = 50)]
    workloads: usize,
    /// Streams that are held open
    #[arg(long, default_value_t = 200)]
    streams: usize,
    /// An authority with an RSA key of 2,048 bits, as istiod's own, instead of a P-256 key
    #[arg(long)]
    rsa: bool,
    /// The control plane to measure; by default the `rutter` beside this program
    #[arg(long, value_name = "PATH")]
    rutter: Option<PathBuf>,
    /// More flags for the control plane, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    probe::raise_file_limit();
    let Arguments { requests, workloads, streams, rsa, .. } = arguments;
    let plan = Plan { requests, workloads: workloads.max(1), streams, rsa };
    let binary = match arguments.rutter {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("rutter"),
    };
    let flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    // One thread: the other processors are for the control plane.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let table = runtime.block_on(certificates(&binary, &flags, plan)).with_context(|| binary.display().to_string())?;
    write!(std::io::stdout(), "{table}")?;
    Ok(())
}
