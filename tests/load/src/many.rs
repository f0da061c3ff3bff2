//! Meshes with very many objects of one kind: what they cost, and how long they hold up an unrelated change.
//!
//! Each row is measured at a tenth of the number, too, so that cost that grows faster than the number shows.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use test_harness::run::{Control, Protocol};

use crate::fleet::{Fleet, Whom};
use crate::mesh::{Location, Mesh};
use crate::objects::Size;
use crate::probe::{self, Usage};
use crate::process::{PAGES, idle, pid_of, read_pages, stalls, started, with_log};
use crate::report::{Stall, shown, size};

/// The mesh beside the objects.
const MESH: Size =
    Size { services: 100, ports: 2, endpoints: 2, namespaces: 20, rules: false, private: false, cluster_ips: true };
/// The number of proxies: sidecars, and one gateway.
const PROXIES: usize = 20;
/// The number of measurements of a change; the median is reported, and the maximum of times.
const ROUNDS: usize = 3;
/// The number of objects in one file.
const TOGETHER: usize = 500;
/// The service of the mesh whose endpoints change.
const UNRELATED: usize = 50;

/// A kind of which there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Services with two ports: a cluster for each
    Clusters,
    /// Endpoints of one service
    Endpoints,
    /// Namespaces, with a service each
    Namespaces,
    /// Gateways of one workload, with a VirtualService each
    Gateways,
    /// VirtualServices of different hosts
    VirtualServices,
    /// VirtualServices of one host
    Conflicts,
    /// ServiceEntries that share a port
    ServiceEntries,
    /// Sidecars, each of the workloads of one service of the mesh
    Sidecars,
    /// PeerAuthentications, each of the workloads of one service of the mesh
    PeerAuthentications,
    /// AuthorizationPolicies, each of the workloads of one service of the mesh
    AuthorizationPolicies,
    /// Bytes of one EnvoyFilter that changes all clusters
    PatchBytes,
}

impl Kind {
    /// The number that a large installation has.
    pub fn usual(self) -> usize {
        match self {
            Kind::Clusters => 30_000,
            Kind::Endpoints => 100_000,
            Kind::Namespaces => 10_000,
            Kind::Gateways => 2_000,
            Kind::VirtualServices | Kind::Conflicts => 20_000,
            Kind::ServiceEntries => 50_000,
            Kind::Sidecars | Kind::PeerAuthentications | Kind::AuthorizationPolicies => 10_000,
            Kind::PatchBytes => 116 << 10,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Clusters => "clusters",
            Kind::Endpoints => "endpoints of one service",
            Kind::Namespaces => "namespaces with a service",
            Kind::Gateways => "Gateways of one workload",
            Kind::VirtualServices => "VirtualServices",
            Kind::Conflicts => "VirtualServices of one host",
            Kind::ServiceEntries => "ServiceEntries on one port",
            Kind::Sidecars => "Sidecars",
            Kind::PeerAuthentications => "PeerAuthentications",
            Kind::AuthorizationPolicies => "AuthorizationPolicies",
            Kind::PatchBytes => "bytes of one EnvoyFilter",
        }
    }

    /// The number of objects for this number of what is counted.
    fn objects(self, count: usize) -> usize {
        match self {
            Kind::Clusters => count / 2,
            Kind::Endpoints => count.div_ceil(PER_SLICE),
            Kind::PatchBytes => 0,
            _ => count,
        }
    }

    /// The text of the object with this number, of so many; a later generation differs in what a user would change.
    fn text(self, number: usize, generation: usize, count: usize) -> String {
        let metadata = format!("metadata: {{ name: many-{number}, namespace: ns-{} }}", number % MESH.namespaces);
        let of_group = |group: &str, kind: &str| format!("apiVersion: {group}/v1\nkind: {kind}\n{metadata}\nspec:\n");
        let istio = |kind: &str| of_group("networking.istio.io", kind);
        let secured = |kind: &str| of_group("security.istio.io", kind);
        let route = format!(
            "  http:\n  - timeout: {}s\n    route: [{{ destination: {{ host: {}, port: {{ number: 80 }} }} }}]\n",
            generation + 1,
            MESH.host(1)
        );
        match self {
            Kind::Clusters => service(number, &format!("ns-{}", number % MESH.namespaces), 2, generation),
            Kind::Namespaces => service(number, &format!("many-{number}"), 1, generation),
            Kind::Endpoints => slice(number, generation),
            Kind::Gateways => format!(
                "{}  selector: {{ istio: ingressgateway }}\n  servers:\n\
                 \x20 - {{ hosts: [many-{number}-{generation}.example.com], port: {{ number: 80, name: http, protocol: HTTP }} }}\n\
                 ---\n{}  hosts: [\"many-{number}-{generation}.example.com\"]\n  gateways: [many-{number}]\n{route}",
                istio("Gateway"),
                istio("VirtualService")
            ),
            Kind::VirtualServices => {
                format!("{}  hosts: [many-{number}.example.com]\n{route}", istio("VirtualService"))
            }
            Kind::Conflicts => format!("{}  hosts: [many.example.com]\n{route}", istio("VirtualService")),
            Kind::ServiceEntries => {
                let export = if generation % 2 == 1 { "  exportTo: [.]\n" } else { "" };
                format!(
                    "{}{export}  hosts: [many-{number}.example.com]\n  resolution: STATIC\n\
                     \x20 ports: [{{ number: 443, name: tls, protocol: TLS }}]\n\
                     \x20 endpoints: [{{ address: {} }}]\n",
                    istio("ServiceEntry"),
                    address(number)
                )
            }
            Kind::Sidecars => format!(
                "{}{}  egress: [{{ hosts: [./*, ns-{}/*, \"*/{}\"] }}]\n",
                istio("Sidecar"),
                selects("workloadSelector: { labels", number),
                generation % MESH.namespaces,
                // Its endpoint must reach all proxies.
                MESH.host(UNRELATED)
            ),
            Kind::PeerAuthentications => format!(
                "{}{}  mtls: {{ mode: {} }}\n",
                secured("PeerAuthentication"),
                selects("selector: { matchLabels", number),
                if generation % 2 == 1 { "PERMISSIVE" } else { "STRICT" }
            ),
            Kind::AuthorizationPolicies => format!(
                "{}{}  action: DENY\n  rules: [{{ to: [{{ operation: {{ paths: [/denied-{number}-{generation}] }} }}] }}]\n",
                secured("AuthorizationPolicy"),
                selects("selector: { matchLabels", number)
            ),
            Kind::PatchBytes => patch(count, generation),
        }
    }

    /// What the objects need beside themselves.
    fn more(self) -> String {
        match self {
            Kind::Endpoints => service(0, "ns-0", 1, 0),
            _ => String::new(),
        }
    }
}

/// The number of endpoints in a slice: the most that Kubernetes allows.
const PER_SLICE: usize = 1000;

fn address(number: usize) -> String {
    format!("172.{}.{}.{}", 16 + number / 62_500, number / 250 % 250, number % 250 + 1)
}

fn service(number: usize, namespace: &str, ports: usize, generation: usize) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: many-{number}, namespace: {namespace} }}\nspec:\n  \
         clusterIP: {}\n  ports:\n",
        address(number)
    );
    for port in 0..ports {
        // A port that changes its number is another cluster.
        let number = if generation == 0 { 80 + port } else { 8000 + 10 * generation + port };
        let _ = writeln!(text, "  - {{ name: http-{port}, port: {number}, targetPort: 8080 }}");
    }
    text
}

fn slice(number: usize, generation: usize) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  name: many-{number}\n  \
         namespace: ns-0\n  labels: {{ kubernetes.io/service-name: many-0 }}\n\
         ports: [{{ name: http-0, port: 8080, protocol: TCP }}]\nendpoints:\n"
    );
    for endpoint in 0..PER_SLICE {
        let moved = if endpoint == 0 { 250_000 + generation } else { 0 };
        let _ = writeln!(
            text,
            "- {{ addresses: [{}], conditions: {{ ready: true }} }}",
            address(number * PER_SLICE + endpoint + moved)
        );
    }
    text
}

/// A selector of the workloads of one service of the mesh, in the namespace of the object with this number.
fn selects(field: &str, number: usize) -> String {
    format!("  {field}: {{ app: svc-{} }} }}\n", number % MESH.services)
}

/// An EnvoyFilter that adds so many bytes of metadata to all clusters of sidecars.
fn patch(bytes: usize, generation: usize) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{ name: many-0, namespace: istio-system }}\nspec:\n  configPatches:\n  - applyTo: CLUSTER\n\
         \x20   match: {{ context: SIDECAR_OUTBOUND }}\n    patch:\n      operation: MERGE\n      value:\n\
         \x20       connect_timeout: {}s\n        metadata:\n          filter_metadata:\n            load:\n",
        generation % 10 + 1
    );
    for line in 0..bytes.div_ceil(PATCH_LINE) {
        let _ = writeln!(text, "              key-{line:06}: value-{line:06}");
    }
    text
}

/// The bytes of a line in [`patch`].
const PATCH_LINE: usize = 39;

/// The cost of one number of objects.
struct Row {
    start: Duration,
    resident_idle: u64,
    first: Duration,
    resident: u64,
    change: Duration,
    unrelated: Duration,
    held_up: Duration,
    stalls: Vec<Stall>,
}

/// Measures these kinds with this `rutter`, and prints a table. `count` overrides the number of objects.
///
/// # Errors
/// The control plane does not start, ends, or a change does not arrive.
pub async fn many(binary: &Path, flags: &[&str], kinds: &[Kind], count: Option<usize>) -> Result<()> {
    probe::raise_file_limit();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| objects | start | resident | first configuration of {PROXIES} | resident | one changes | an endpoint elsewhere changes | \
         held up by the former | longest steps |\n|---|---:|---:|---:|---:|---:|---:|---:|---|"
    )?;
    for kind in kinds {
        let count = count.unwrap_or(kind.usual());
        for count in [count / 10, count] {
            let row = measure(binary, flags, *kind, count).await;
            match row {
                Ok(row) => writeln!(out, "| {count} {} {}", kind.name(), row.shown())?,
                // The other rows are measured all the same.
                Err(error) => writeln!(out, "| {count} {} | failed: {error:#} |", kind.name())?,
            }
        }
    }
    Ok(())
}

async fn measure(binary: &Path, flags: &[&str], kind: Kind, count: usize) -> Result<Row> {
    eprintln!("writing {count} {}", kind.name());
    let mesh = Mesh::at(Location::Files, MESH).await?;
    let data = tempfile::tempdir()?;
    let numbers: Vec<usize> = (1..kind.objects(count)).collect();
    for (file, numbers) in numbers.chunks(TOGETHER).enumerate() {
        let texts: Vec<String> = numbers.iter().map(|number| kind.text(*number, 0, count)).collect();
        mesh.create(&format!("many-{file}"), &texts).await?;
    }
    // Alone in its file: the one that changes.
    mesh.create("one", &[kind.text(0, 0, count)]).await?;
    mesh.create("more", &[kind.more()]).await?;
    let reads = mesh.flags(data.path());
    let all: Vec<&str> = reads.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let control = started(binary, &all, &[]).await?;
    let row = run(&control, &mesh, kind, count).await;
    with_log(&control, row)
}

async fn run(control: &Control, mesh: &Mesh, kind: Kind, count: usize) -> Result<Row> {
    let pid = pid_of(control)?;
    idle(pid).await?;
    let start = Usage::of(pid)?.since(&Usage::default());
    let resident_idle = probe::memory(pid)?.0;
    let mut fleet = Fleet::new(mesh, control.grpc(), Protocol::Delta, pid);
    if kind == Kind::Gateways {
        fleet.connect_gateway()?;
    }
    eprintln!("connecting {PROXIES} proxies");
    let more = PROXIES - fleet.len();
    let connect = fleet.measure(Whom::AllFrom(0), "first configuration", async |fleet| fleet.connect(more));
    let first = cost(pid, async { connect.await.map(drop) }).await?;
    let resident = probe::memory(pid)?.0;
    let mut rounds = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        eprintln!("changes, round {}", round + 1);
        let changed = [kind.text(0, 2 * round + 1, count)];
        rounds.0.push(cost(pid, mesh.change("one", &changed)).await?);
        let other = mesh.change_endpoints(std::iter::once((UNRELATED, 2 * round + 1)));
        rounds.1.push(cost(pid, other).await?);
        mesh.change("one", &[kind.text(0, 2 * round + 2, count)]).await?;
        // While the control plane works on the change.
        tokio::time::sleep(Duration::from_millis(5)).await;
        fleet.expect(&format!("outbound|80||{}", MESH.host(UNRELATED)));
        let begin = Instant::now();
        mesh.change_endpoints(std::iter::once((UNRELATED, 2 * round + 2))).await?;
        rounds.2.push(fleet.expected().await?.context("no proxy")? - begin);
        idle(pid).await?;
    }
    fleet.check()?;
    read_pages(control, PAGES).await?;
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(Row {
        start,
        resident_idle,
        first,
        resident,
        change: median(rounds.0),
        unrelated: median(rounds.1),
        held_up: rounds.2.into_iter().max().unwrap_or_default(),
        stalls: stalls(control).await?,
    })
}

/// The CPU time of the control plane for a change, with all that follows from it.
async fn cost(pid: u32, change: impl Future<Output = Result<()>>) -> Result<Duration> {
    let used = Usage::of(pid)?;
    change.await?;
    idle(pid).await?;
    Ok(Usage::of(pid)?.since(&used))
}

impl Row {
    fn shown(&self) -> String {
        let long = self.stalls.iter().filter(|stall| stall.long > 0);
        let long: Vec<String> = long.map(Stall::shown).collect();
        let long = if long.is_empty() { "below 50 ms".to_owned() } else { long.join("; ") };
        format!(
            "| {} CPU | {} | {} CPU | {} | {} CPU | {} CPU | {} | {long} |",
            shown(self.start),
            size(self.resident_idle),
            shown(self.first),
            size(self.resident),
            shown(self.change),
            shown(self.unrelated),
            shown(self.held_up),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::read;

    #[test]
    fn objects_are_valid_and_generations_differ() -> Result<()> {
        for kind in Kind::value_variants() {
            assert_ne!(kind.text(0, 0, 1000), kind.text(0, 1, 1000), "{kind:?}");
            for text in kind.text(7, 0, 1000).split("---\n") {
                assert!(read(text)?["metadata"]["name"].is_string(), "{kind:?}: {text}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_patch_has_as_many_bytes_as_asked() {
        let [small, large] = [10_000, 116 << 10].map(|bytes| Kind::PatchBytes.text(0, 0, bytes).len());
        assert!((108_000..110_000).contains(&(large - small)), "{small} and {large}");
    }
}
