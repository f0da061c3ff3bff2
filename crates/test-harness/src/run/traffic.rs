//! Steady traffic that counts every answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Method;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Result, http};

/// The timeout after which a request counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of failed requests that are described; others are only counted.
const DESCRIBED: usize = 20;

/// The counts of requests and responses.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    /// Requests that were answered or lost.
    pub requests: u64,
    /// Requests without a 2xx response.
    pub errors: u64,
    /// Descriptions of the first of those.
    pub described: Vec<String>,
    /// Successful responses by version.
    pub by_version: BTreeMap<String, u64>,
    /// Successful responses by instance.
    pub by_instance: BTreeMap<String, u64>,
    /// The longest time to a response.
    pub slowest: Duration,
}

impl Counts {
    /// The share of this version in all successful responses, from 0 to 1.
    pub fn share(&self, version: &str) -> f64 {
        let good: u64 = self.by_version.values().sum();
        self.by_version.get(version).copied().unwrap_or(0) as f64 / good.max(1) as f64
    }

    /// The difference to the earlier counts.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let less = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            now.iter().map(|(k, n)| (k.clone(), n - then.get(k).unwrap_or(&0))).filter(|(_, n)| *n > 0).collect()
        };
        Counts {
            requests: self.requests - earlier.requests,
            errors: self.errors - earlier.errors,
            described: self.described.iter().skip(earlier.described.len()).cloned().collect(),
            by_version: less(&self.by_version, &earlier.by_version),
            by_instance: less(&self.by_instance, &earlier.by_instance),
            slowest: self.slowest,
        }
    }
}

/// Requests at a steady rate to one address, over several persistent connections.
#[derive(Debug)]
pub struct Traffic {
    counts: Arc<Mutex<Counts>>,
    stop: watch::Sender<bool>,
    workers: JoinSet<()>,
}

impl Traffic {
    /// Starts sending `GET path` with these headers: `rate` requests per second in total, over `connections`
    /// connections.
    pub fn start(address: SocketAddr, path: &str, headers: &[(&str, &str)], rate: u32, connections: u32) -> Traffic {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (stop, stopped) = watch::channel(false);
        let mut workers = JoinSet::new();
        let pause = Duration::from_secs(1) * connections.max(1) / rate.max(1);
        let headers: Vec<(String, String)> = headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        for number in 0..connections {
            let worker = Worker {
                address,
                path: path.to_owned(),
                headers: headers.clone(),
                counts: Arc::clone(&counts),
                connection: None,
            };
            let first = pause * number / connections.max(1);
            workers.spawn(worker.run(first, pause, stopped.clone()));
        }
        Traffic { counts, stop, workers }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }

    /// Waits until `requests` more were answered or lost, and returns only their counts.
    pub async fn next(&self, requests: u64) -> Result<Counts> {
        let before = self.counts();
        let counted = || async { Some(self.counts().since(&before)).filter(|counts| counts.requests >= requests) };
        super::wait_for("traffic", Duration::from_secs(60), counted).await
    }

    /// Waits for pending requests and returns all counts.
    pub async fn stop(mut self) -> Counts {
        let _ = self.stop.send(true);
        while self.workers.join_next().await.is_some() {}
        self.counts()
    }
}

struct Worker {
    address: SocketAddr,
    path: String,
    headers: Vec<(String, String)>,
    counts: Arc<Mutex<Counts>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl Worker {
    async fn run(mut self, first: Duration, pause: Duration, mut stopped: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval_at(Instant::now() + first, pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            tokio::select! {
                _ = stopped.changed() => return,
                _ = ticks.tick() => {}
            }
            let begin = Instant::now();
            let result = tokio::time::timeout(PATIENCE, self.exchange()).await;
            let result = result.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}").into()));
            self.count(result, begin.elapsed());
        }
    }

    fn count(&mut self, result: Result<http::Response>, took: Duration) {
        let mut counts = lock(&self.counts);
        counts.requests += 1;
        counts.slowest = counts.slowest.max(took);
        let fault = match result {
            Ok(response) if response.status.is_success() => {
                *counts.by_version.entry(response.header("x-version").to_owned()).or_default() += 1;
                *counts.by_instance.entry(response.header("x-instance").to_owned()).or_default() += 1;
                return;
            }
            Ok(response) => {
                format!("{} {} {}", response.status, response.header("x-instance"), response.text())
            }
            Err(error) => {
                self.connection = None;
                error.to_string()
            }
        };
        counts.errors += 1;
        if counts.described.len() < DESCRIBED {
            counts.described.push(fault);
        }
    }

    async fn exchange(&mut self) -> Result<http::Response> {
        let headers: Vec<(&str, &str)> = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let request = http::request(self.address, Method::GET, &self.path, &headers)?;
        let mut connection = match self.connection.take() {
            // A connection that the peer closed between requests is replaced, as in every client.
            Some(kept) if !kept.is_closed() => kept,
            _ => connect(self.address).await?,
        };
        let response = http::Response::read(connection.send_request(request).await?, http::BODY_LIMIT).await?;
        self.connection = Some(connection).filter(|_| response.header("connection") != "close");
        Ok(response)
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
