//! The cost of changes in a mesh of services with routes and policies, without encoding and sending.
//!
//! `cargo bench -p traffic -- SERVICES NAMESPACES`; 1,000 and 20 if not given.
#![allow(clippy::print_stdout)] // A benchmark's output.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use flow::Delta;
use model::audience::Section;
use model::proxy::ProxyKind;
use support::*;
use traffic::clusters::ClusterCatalogue;
use traffic::routes::RouteTables;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let services = numbers.next().unwrap_or(1_000);
    let namespaces = numbers.next().unwrap_or(20);
    let mut world = World::new("");
    let objects: Vec<String> = (0..services).map(|n| one(n, namespaces, 90)).collect();
    timed("objects", || world.apply(&objects.concat()));
    let tables = ["80", "9000"];
    timed(&format!("{namespaces} namespaces subscribe to {} tables and their clusters", tables.len()), || {
        for n in 0..namespaces {
            let scope = scope(&format!("ns{n}"), None);
            for table in tables {
                world.engine.subscribe::<RouteTables>((routes_of(&scope, &[]), table.into()));
            }
            world.engine.subscribe::<ClusterCatalogue>((Section::All, clusters_of(&scope, ProxyKind::Sidecar)));
        }
    });
    let changes: [(&str, String); 6] = [
        ("endpoint", text(0, namespaces).replace("resolution:", "endpoints: [{address: 10.1.1.1}], resolution:")),
        ("weight", routes(1, namespaces, 50)),
        ("policy", rule(1, namespaces, 7)),
        ("new service", one(services, namespaces, 90)),
        ("new virtual service", istio("VirtualService", "ns1", "new", &routed("new.com", 90))),
        ("new subset", rule(2, namespaces, 7).replace("{name: v2}", "{name: v2}, {name: v3}")),
    ];
    for (name, change) in changes {
        // On copies, so that each is measured against the same mesh. Parsing the change is in it.
        let best = (0..3).map(|_| {
            let mut fork = World { engine: world.engine.fork() };
            let (started, wall) = (cpu_time(), Instant::now());
            let delta = fork.apply(&change);
            let wall = wall.elapsed();
            let cpu = cpu_time().saturating_sub(started);
            // The system counts in ticks: what takes less than a few is told by the clock.
            (if cpu < Duration::from_millis(10) { wall } else { cpu }, ran(&delta))
        });
        if let Some((time, ran)) = best.min() {
            println!("{name}: {:.3} ms; {ran}", ms(time));
        }
    }
    let stats = world.engine.stats();
    println!("{} cells, {} edges", stats.cells(), stats.edges());
}

fn one(n: usize, namespaces: usize, weight: u32) -> String {
    [text(n, namespaces), routes(n, namespaces, weight), rule(n, namespaces, 5)].concat()
}

fn text(n: usize, namespaces: usize) -> String {
    entry(&format!("ns{}", n % namespaces), &format!("s{n}"), &host(n), &["http:80:HTTP", "alt:9000:HTTP"])
}

fn host(n: usize) -> String {
    format!("service-{n}.example.com")
}

fn routes(n: usize, namespaces: usize, weight: u32) -> String {
    istio("VirtualService", &format!("ns{}", n % namespaces), &format!("s{n}"), &routed(&host(n), weight))
}

fn routed(host: &str, weight: u32) -> String {
    let rest = 100 - weight;
    format!(
        "{{hosts: [{host}], http: [{{route: [{{destination: {{host: {host}, subset: v1}}, weight: {weight}}}, \
         {{destination: {{host: {host}, subset: v2}}, weight: {rest}}}]}}]}}"
    )
}

fn rule(n: usize, namespaces: usize, retries: u32) -> String {
    let spec = format!(
        "{{host: {}, subsets: [{{name: v1}}, {{name: v2}}], \
         trafficPolicy: {{connectionPool: {{http: {{maxRetries: {retries}}}}}}}}}",
        host(n)
    );
    istio("DestinationRule", &format!("ns{}", n % namespaces), &format!("s{n}"), &spec)
}

fn ran(delta: &Delta) -> String {
    let runs = delta.runs().filter(|(_, runs)| runs.runs > 0);
    runs.map(|(name, runs)| format!("{name} {}", runs.runs)).collect::<Vec<_>>().join(", ")
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = cpu_time();
    let out = work();
    println!("{what}: {:.1} ms", ms(cpu_time().saturating_sub(started)));
    out
}

/// Processor time of this thread where the system tells (Linux), which other programs do not disturb; else wall time.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
