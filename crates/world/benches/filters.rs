//! The cost of one change in a mesh with and without EnvoyFilters: `cargo bench -p world -- SERVICES FILTERS PROXIES`,
//! by default 1,000, 50 and 20.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // Benchmarks print.

#[path = "../tests/support/mod.rs"]
mod support;

use envoy::types;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{ParseOptions, parse_documents};
use model::proxy::ProxyKind;
use registry::inputs::Sharing;
use world::{Batch, World};

/// The number of repetitions of each change.
const ROUNDS: usize = 20;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let services = numbers.next().unwrap_or(1_000);
    let filters = numbers.next().unwrap_or(50);
    let proxies = numbers.next().unwrap_or(20);
    for filters in [0, filters] {
        println!("{services} services, {proxies} proxies in as many namespaces, {filters} EnvoyFilters");
        let mut world = World::new(support::settings(Sharing::All), 1);
        let objects: String = (0..services).map(|n| service(n) + &route(n, 90) + &policy(n, 5)).collect();
        apply(&mut world, &objects);
        apply(&mut world, &(0..filters).map(|n| filter(n, proxies, 1)).collect::<String>());
        let started = Instant::now();
        let open = (0..proxies).map(|n| subscribe(&mut world, n)).sum::<usize>();
        println!("  first configuration of {open} resources: {:?}", started.elapsed());
        timed("a route changes", |n| route(7, n as u32 + 1), &mut world);
        timed("a cluster's policy changes", |n| policy(7, n + 10), &mut world);
        if filters > 0 {
            timed("a filter of a namespace changes", |n| filter(1, proxies, n + 2), &mut world);
        }
    }
    large_patch(services);
}

/// A patch of 116 KiB that is merged into all clusters of two sidecars.
fn large_patch(services: usize) {
    println!("{services} services, 2 sidecars, a CLUSTER merge of 116 KiB");
    let mut world = World::new(support::settings(Sharing::All), 1);
    apply(&mut world, &(0..services).map(|n| service(n) + &policy(n, 5)).collect::<String>());
    apply(&mut world, &large(1));
    let started = Instant::now();
    let open = (0..2).map(|_| subscribe(&mut world, 0)).sum::<usize>();
    println!("  first configuration of {open} resources: {:?}", started.elapsed());
    timed("a cluster's policy changes", |n| policy(7, n + 10), &mut world);
    timed("the patch changes", |n| large(n + 2), &mut world);
}

/// A filter with a large value.
fn large(value: usize) -> String {
    let entries: Vec<String> = (0..1_000).map(|n| format!("key-{n}: {{text: '{value}{}'}}", "x".repeat(95))).collect();
    format!(
        "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: large, namespace: ns0}}\n\
         spec: {{configPatches: [{{applyTo: CLUSTER, patch: {{operation: MERGE, value: \
         {{metadata: {{filterMetadata: {{large: {{{}}}}}}}}}}}}}]}}\n",
        entries.join(", ")
    )
}

/// Repeats a change, and prints the median time and the number of changed resources.
fn timed(what: &str, text: impl Fn(usize) -> String, world: &mut World) {
    let mut times: Vec<(Duration, usize)> = (0..ROUNDS)
        .map(|n| {
            let batch = batch(&text(n));
            let started = Instant::now();
            let changes = world.commit(batch);
            (started.elapsed(), changes.resources.len())
        })
        .collect();
    times.sort_unstable();
    let (median, changed) = times[times.len() / 2];
    println!("  {what}: {median:?}, {changed} resources");
}

fn apply(world: &mut World, text: &str) {
    world.commit(batch(text));
}

fn batch(text: &str) -> Batch {
    let parsed = parse_documents(text.as_bytes(), "bench", &ParseOptions::default());
    assert!(parsed.diagnostics.iter().all(|d| !d.is_error()), "{:?}", parsed.diagnostics);
    let mut batch = Batch::new();
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    batch
}

fn subscribe(world: &mut World, number: usize) -> usize {
    let (token, _) = world.connect(Arc::new(support::proxy("p", &format!("ns{number}"), ProxyKind::Sidecar)));
    let mut open = 0;
    for kind in [types::CLUSTER, types::LISTENER] {
        let audience = world.audience(token, kind).unwrap();
        let (_, catalogue) = world.open_catalogue(&audience, &Arc::default()).unwrap();
        for (_, key) in &catalogue.entries {
            world.open(key);
            open += 1;
        }
    }
    let audience = world.audience(token, types::ROUTE).unwrap();
    let key = world.resolve(&audience, &"80".into()).unwrap();
    world.open(&key);
    open + 1
}

fn service(n: usize) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}, namespace: ns0}}\n\
         spec: {{clusterIP: 10.{}.{}.{}, ports: [{{name: http, port: 80}}]}}\n",
        n / 65536,
        n / 256 % 256,
        n % 256
    )
}

fn route(n: usize, weight: u32) -> String {
    let host = format!("s{n}.ns0.svc.cluster.local");
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: s{n}, namespace: ns0}}\n\
         spec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: {host}}}}}], timeout: {weight}s}}]}}\n"
    )
}

fn policy(n: usize, connections: usize) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: s{n}, namespace: ns0}}\n\
         spec: {{host: s{n}.ns0.svc.cluster.local, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {connections}}}}}}}}}\n"
    )
}

/// Typical filters, for HTTP filters, clusters and routes, each for one namespace.
fn filter(n: usize, namespaces: usize, value: usize) -> String {
    let patch = match n % 3 {
        0 => format!(
            "{{applyTo: HTTP_FILTER, match: {{context: SIDECAR_OUTBOUND, listener: {{filterChain: {{filter: {{name: \
             envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}}}, patch: \
             {{operation: INSERT_BEFORE, value: {{name: f{n}, typedConfig: {{\"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, defaultSourceCode: {{inlineString: '-- {value}'}}}}}}}}}}"
        ),
        1 => format!(
            "{{applyTo: CLUSTER, match: {{context: SIDECAR_OUTBOUND}}, patch: {{operation: MERGE, value: \
             {{perConnectionBufferLimitBytes: {}}}}}}}",
            value * 1024
        ),
        _ => format!(
            "{{applyTo: HTTP_ROUTE, match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{name: \"80\"}}}}, patch: \
             {{operation: MERGE, value: {{requestHeadersToRemove: [x-{value}]}}}}}}"
        ),
    };
    format!(
        "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f{n}, namespace: ns{}}}\n\
         spec: {{configPatches: [{patch}]}}\n",
        n % namespaces
    )
}
