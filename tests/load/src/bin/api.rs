//! Measures the API over the store: durable writes, a list of everything, and many watchers.
//!
//! The client shares the machine with the server; the server's usage is read from its own counters.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use load::probe::{self, Usage};
use test_harness::run::Control;
use tokio::task::JoinSet;

/// The namespace of the objects.
const PATH: &str = "/apis/networking.istio.io/v1/namespaces/default/destinationrules";

/// Measures the API over the store.
#[derive(Parser)]
#[command(name = "api", version)]
struct Arguments {
    /// Objects
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Clients that write at the same time
    #[arg(long, default_value_t = 16)]
    writers: usize,
    /// Watchers of the kind
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Changes that all watchers must see
    #[arg(long, default_value_t = 1_000)]
    changes: usize,
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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(arguments))
}

/// The server to measure, and the output.
struct Bench {
    server: Control,
    kubeconfig: Kubeconfig,
    pid: u32,
}

impl Bench {
    /// A client with connections of its own.
    async fn client(&self) -> Result<Client> {
        let options = KubeConfigOptions::default();
        Ok(Client::try_from(Config::from_custom_kubeconfig(self.kubeconfig.clone(), &options).await?)?)
    }

    /// Runs a piece of work and prints a row of the table.
    async fn row(&self, what: &str, work: impl Future<Output = Result<String>>) -> Result<()> {
        let (used, begin) = (Usage::of(self.pid)?, Instant::now());
        let found = work.await?;
        let (took, cpu) = (begin.elapsed(), Usage::of(self.pid)?.since(&used));
        let (resident, _) = probe::memory(self.pid)?;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "| {what} | {:.2} s | {:.2} CPU-s | {} MiB | {found} |",
            took.as_secs_f64(),
            cpu.as_secs_f64(),
            resident >> 20
        )?;
        Ok(())
    }
}

async fn measure(arguments: Arguments) -> Result<()> {
    let binary = match arguments.rutter {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("rutter"),
    };
    let data = tempfile::tempdir()?;
    let mut flags: Vec<&str> = vec!["--api-requests-per-second", "1000000"];
    flags.extend(arguments.flags.iter().map(String::as_str));
    let server = Control::start_with_api(&binary, data.path(), &flags).await.map_err(anyhow::Error::from_boxed)?;
    let bench = Bench {
        kubeconfig: Kubeconfig::read_from(server.kubeconfig().context("it has no kubeconfig")?)?,
        pid: server.pid().context("the control plane has ended")?,
        server,
    };
    writeln!(std::io::stdout(), "| work | time | server | resident | |\n|---|---|---|---|---|")?;
    let (objects, writers) = (arguments.objects, arguments.writers);
    bench
        .row(
            &format!("{objects} objects created by {writers} clients"),
            write_all(&bench, writers, objects, Method::POST),
        )
        .await?;
    bench.row(&format!("list of {objects} objects, ten times"), list(&bench, objects)).await?;
    let changes = arguments.changes;
    let what = format!("{changes} updates seen by {} watchers", arguments.watchers);
    let watching = watch(&bench, arguments.watchers, changes).await?;
    bench.row(&what, watching.see(&bench, writers)).await?;
    anyhow::ensure!(bench.server.pid().is_some());
    Ok(())
}

fn object(number: usize, round: usize) -> String {
    let subset = |name: &str| format!(r#"{{"name":"{name}","labels":{{"version":"{name}"}}}}"#);
    format!(
        r#"{{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{{"name":"rule-{number}","labels":{{"app":"app-{}","round":"{round}"}}}},"spec":{{"host":"service-{number}.default.svc.cluster.local","trafficPolicy":{{"loadBalancer":{{"simple":"LEAST_REQUEST"}},"connectionPool":{{"tcp":{{"maxConnections":{}}}}}}},"subsets":[{},{},{}]}}}}"#,
        number % 100,
        round + 1,
        subset("v1"),
        subset("v2"),
        subset("v3"),
    )
}

/// Writes objects from many clients concurrently; reports writes per second and their latencies.
async fn write_all(bench: &Bench, writers: usize, objects: usize, method: Method) -> Result<String> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    for _ in 0..writers {
        let (client, next, method) = (bench.client().await?, next.clone(), method.clone());
        tasks.spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= objects {
                    return anyhow::Ok(took);
                }
                let (path, content, round) = match method {
                    Method::POST => (PATH.to_owned(), "application/json", 0),
                    _ => (format!("{PATH}/rule-{number}"), "application/merge-patch+json", 1),
                };
                let request = Request::builder().method(method.clone()).uri(path).header("content-type", content);
                let begin = Instant::now();
                client.request_text(request.body(object(number, round).into_bytes())?).await?;
                took.push(begin.elapsed());
            }
        });
    }
    let mut took: Vec<Duration> = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    let elapsed = begin.elapsed();
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
    Ok(format!(
        "{:.0} a second, median {:.1} ms, 99 % {:.1} ms",
        objects as f64 / elapsed.as_secs_f64(),
        at(50).as_secs_f64() * 1000.0,
        at(99).as_secs_f64() * 1000.0
    ))
}

/// Lists everything ten times; reports the minimum and the median time to the last byte.
async fn list(bench: &Bench, objects: usize) -> Result<String> {
    let client = bench.client().await?;
    let (mut took, mut bytes) = (Vec::new(), 0);
    for _ in 0..10 {
        let begin = Instant::now();
        let response = client.send(Request::get(PATH).body(Body::empty())?).await?;
        let body = response.into_body().collect().await?.to_bytes();
        took.push(begin.elapsed());
        bytes = body.len();
    }
    took.sort_unstable();
    anyhow::ensure!(bytes > objects * 100, "the list has {bytes} bytes only");
    Ok(format!(
        "median {:.1} ms, fastest {:.1} ms, {:.1} MiB",
        took[5].as_secs_f64() * 1000.0,
        took[0].as_secs_f64() * 1000.0,
        bytes as f64 / f64::from(1 << 20)
    ))
}

/// Watchers that are connected.
struct Watching {
    seen: Arc<AtomicUsize>,
    wanted: usize,
    changes: usize,
    tasks: JoinSet<Result<()>>,
}

async fn watch(bench: &Bench, watchers: usize, changes: usize) -> Result<Watching> {
    let client = bench.client().await?;
    let text = client.request_text(Request::get(format!("{PATH}?limit=1")).body(Vec::new())?).await?;
    let version = text.split("\"resourceVersion\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.context("the list has no resourceVersion")?.to_owned();
    let seen = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let request = Request::get(format!("{PATH}?watch=1&resourceVersion={version}")).body(Body::empty())?;
        streams.push(client.send(request).await?.into_body());
    }
    for mut body in streams {
        let seen = seen.clone();
        tasks.spawn(async move {
            while let Some(frame) = body.frame().await {
                // One event per line.
                let lines = frame?.into_data().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
                seen.fetch_add(lines, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    Ok(Watching { seen, wanted: watchers * changes, changes, tasks })
}

impl Watching {
    /// Makes the changes and waits until all watchers have received them.
    async fn see(mut self, bench: &Bench, writers: usize) -> Result<String> {
        let begin = Instant::now();
        let written = write_all(bench, writers, self.changes, Method::PATCH).await?;
        while self.seen.load(Ordering::Relaxed) < self.wanted {
            anyhow::ensure!(
                begin.elapsed() < Duration::from_secs(300),
                "{} of {} events were seen",
                self.seen.load(Ordering::Relaxed),
                self.wanted
            );
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
                anyhow::bail!("a watch ended early");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(format!("{} events; writes: {written}", self.wanted))
    }
}
