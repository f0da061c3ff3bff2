//! Measures a Gateway of the Gateway API with very many routes or ListenerSets.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use load::gateways::{Scenario, gateways};
use load::mesh::Location;

/// Measures a Gateway with very many routes or ListenerSets, whose proxy is simulated.
#[derive(Parser)]
#[command(name = "gateway", version)]
struct Arguments {
    /// A scenario: SERVICESxROUTES, with `s` behind it if each service has a ListenerSet (again for more); by default those of
    /// gateway-api-bench
    #[arg(long = "scenario", value_name = "SCENARIO", value_parser = scenario)]
    scenarios: Vec<Scenario>,
    /// The place of the objects
    #[arg(long = "in", value_enum, default_value_t = Location::Embedded)]
    location: Location,
    /// The control plane to measure; by default the `rutter` beside this program
    #[arg(long, value_name = "PATH")]
    rutter: Option<PathBuf>,
    /// More flags for the control plane, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Attached routes, route scale, and ListenerSets; the latter also with a tenth of their number, so that growth shows.
const USUAL: [(usize, usize, bool); 5] =
    [(1000, 1, false), (5000, 1, false), (2500, 16, false), (250, 16, true), (2500, 16, true)];

fn scenario(text: &str) -> Result<Scenario> {
    let (numbers, sets) = text.strip_suffix('s').map_or((text, false), |numbers| (numbers, true));
    let (services, routes) = numbers.split_once('x').context("no `x` between two numbers")?;
    Ok(Scenario { services: services.parse()?, routes: routes.parse()?, sets })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut scenarios = arguments.scenarios;
    if scenarios.is_empty() {
        scenarios = USUAL.map(|(services, routes, sets)| Scenario { services, routes, sets }).to_vec();
    }
    let binary = match arguments.rutter {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("rutter"),
    };
    let flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    // One thread: the other processors are for the control plane.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let named = || binary.display().to_string();
    runtime.block_on(gateways(&binary, &flags, arguments.location, &scenarios)).with_context(named)
}
