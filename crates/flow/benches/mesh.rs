//! Costs of the engine for a mesh: memory per cell and edge, time to build, time of commits that change one row.
//!
//! `cargo bench -p flow` measures 10,000 services, 100,000 endpoints and 1,000 audiences, and a mesh of a tenth of that
//! size: costs that do not depend on the size are equal in both. Catalogues are measured whole, one for each audience, and in
//! layers, as one list for all audiences and the rows in which each differs. `-- --threads N` runs rules on N threads; the time
//! without rules is then not meaningful.
#![allow(clippy::print_stdout, missing_docs)]

#[path = "mesh/model.rs"]
mod model;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flow::{Batch, Delta, Engine};
use model::*;

const ENDPOINTS: u32 = 10;
const MIB: f64 = (1 << 20) as f64;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let threads = arguments.iter().position(|argument| argument == "--threads");
    let threads = threads.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(1);
    // The large mesh comes first. The small one reuses memory that it freed, so its memory use is not meaningful.
    for catalogues in [Catalogues::Whole, Catalogues::Layered] {
        mesh(10_000, 1_000, catalogues, threads);
        mesh(1_000, 100, catalogues, threads);
    }
}

/// The form of the lists of audiences.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Catalogues {
    Whole,
    Layered,
}

/// Builds a mesh and measures it.
fn mesh(services: u32, audiences: u32, catalogues: Catalogues, threads: usize) {
    println!(
        "\n{services} services, {} endpoints, {audiences} audiences, {catalogues:?} catalogues, {threads} thread(s)",
        services * ENDPOINTS
    );
    let mut engine = engine(threads);
    let start = resident();
    let mut steps = Steps { start, before: start, time: Instant::now(), cpu: cpu() };
    let batch = inputs(services, ENDPOINTS);
    steps.report("the batch itself", &engine);
    drop(engine.commit(batch));
    steps.report("inputs, index and world rules", &engine);

    let names: Vec<Name> = (0..services).map(name).collect();
    engine.subscribe_all::<Assignment>(&names);
    engine.subscribe_all::<Cluster>(&names);
    steps.report("views of each service", &engine);

    let before = (resident(), engine.stats().edges());
    let all: Vec<u32> = (0..audiences).collect();
    match catalogues {
        Catalogues::Whole => drop(engine.subscribe_all::<Catalogue>(&all)),
        Catalogues::Layered => drop(engine.subscribe_all::<OwnCatalogue>(&all)),
    }
    steps.report("views of each audience", &engine);
    if services >= 10_000 && catalogues == Catalogues::Whole {
        // A smaller mesh reuses the memory that the larger one freed, so nothing can be measured.
        edges(&engine, before, services as usize * audiences as usize);
    }
    footprint(&engine);

    commits(&mut engine, services);
    forks(&engine, services);
    println!("resident in the end: {:.0} MiB", resident() / MIB);
}

/// Prints the cost of each step.
struct Steps {
    start: f64,
    before: f64,
    time: Instant,
    cpu: f64,
}

impl Steps {
    fn report(&mut self, step: &str, engine: &Engine) {
        let (now, stats) = (resident(), engine.stats());
        println!(
            "  {step:<30} {:>6.2} s {:>6.2} CPU-s {:>+7.1} MiB, now {:>6.1} MiB, {} cells, {} edges",
            self.time.elapsed().as_secs_f64(),
            cpu() - self.cpu,
            (now - self.before) / MIB,
            (now - self.start) / MIB,
            stats.cells(),
            stats.edges()
        );
        (self.before, self.time, self.cpu) = (now, Instant::now(), cpu());
    }
}

/// The bytes of an edge by resident memory: the growth by the catalogues, without their rows.
fn edges(engine: &Engine, (before, edges): (f64, usize), references: usize) {
    let rows = references * size_of::<Encoded>();
    let added = engine.stats().edges() - edges;
    let bytes = resident() - before - rows as f64;
    println!(
        "  {added} edges: {:.1} bytes each, resident, both ends (without their rows, {:.0} MiB of references)",
        bytes / added as f64,
        rows as f64 / MIB
    );
}

fn footprint(engine: &Engine) {
    let print = engine.footprint();
    let each = |bytes: usize, of: usize| bytes as f64 / of as f64;
    println!(
        "  own count: cell {:.1} + key map {:.1} + row header {:.1} bytes; edge {:.1} bytes; total {:.0} MiB",
        each(print.cell_bytes, print.cells),
        each(print.map_bytes, print.cells),
        each(print.row_bytes, print.cells),
        each(print.edge_bytes, print.edges),
        print.bytes() as f64 / MIB
    );
}

/// Commits that change one input row each.
fn commits(engine: &mut Engine, services: u32) {
    println!("  {:<44} {:>12} {:>12} {:>7}", "a commit of one row (medians)", "all", "but rules", "runs");
    measure(engine, "a row that nobody reads", 2_000, |at, batch| batch.put::<Note>(0, at + 1));
    measure(engine, "an equal row", 2_000, |_, batch| batch.put::<Note>(1, 1));
    measure(engine, "a new row that nobody reads", 2_000, |at, batch| batch.put::<Note>(at + 10, 1));
    measure(engine, "an endpoint's weight: no wide reader", 2_000, |at, batch| {
        let of = at.wrapping_mul(7_919) % services;
        batch.put::<Endpoint>((of, 3), endpoint(&name(of), of * ENDPOINTS + 3, at + 2));
    });
    measure(engine, "an endpoint is added: index, no wide reader", 2_000, |at, batch| {
        let of = at.wrapping_mul(7_919) % services;
        batch.put::<Endpoint>((of, 100 + at), endpoint(&name(of), at, 1));
    });
    measure(engine, "a service's port: every audience reads it", 7, |at, batch| {
        batch.put::<Service>(name(at), service(at as u16 + 1));
    });
    measure(engine, "a service comes: every audience reads it", 7, |at, batch| {
        batch.put::<Service>(name(services + at), service(1));
    });
}

fn measure(engine: &mut Engine, what: &str, times: u32, edit: impl Fn(u32, &mut Batch)) {
    let mut samples = Vec::new();
    let mut runs = 0;
    for at in 0..times {
        let mut batch = Batch::new();
        edit(at, &mut batch);
        IN_RULES.store(0, Ordering::Relaxed);
        let start = Instant::now();
        let delta = engine.commit(batch);
        let all = start.elapsed();
        samples.push((all, all.saturating_sub(Duration::from_nanos(IN_RULES.load(Ordering::Relaxed)))));
        runs = count(&delta);
    }
    let median = |mut values: Vec<Duration>| {
        values.sort_unstable();
        values[values.len() / 2].as_secs_f64() * 1e6
    };
    let all = median(samples.iter().map(|sample| sample.0).collect());
    let engine_only = median(samples.iter().map(|sample| sample.1).collect());
    println!("  {what:<44} {all:>9.1} µs {engine_only:>9.1} µs {runs:>7}");
}

fn count(delta: &Delta) -> usize {
    delta.runs().map(|(_, runs)| runs.runs).sum()
}

fn forks(engine: &Engine, services: u32) {
    let before = resident();
    let start = Instant::now();
    let mut fork = engine.fork();
    let forked = start.elapsed();
    let mut batch = Batch::new();
    batch.put::<Endpoint>((1, 3), endpoint(&name(1 % services), 7, 77));
    let start = Instant::now();
    drop(fork.commit(batch));
    let commit = start.elapsed();
    let memory = resident() - before;
    let start = Instant::now();
    drop(fork);
    println!(
        "  fork {:.0} µs, an endpoint's weight on it {:.0} µs, {:.2} MiB, dropped in {:.0} µs",
        forked.as_secs_f64() * 1e6,
        commit.as_secs_f64() * 1e6,
        memory / MIB,
        start.elapsed().as_secs_f64() * 1e6
    );
}

/// Resident memory in bytes, as reported by the kernel.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4_096.0
}

/// CPU seconds of this process so far, in hundredths.
fn cpu() -> f64 {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = line.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
