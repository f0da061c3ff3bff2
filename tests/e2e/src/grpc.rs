//! Proxyless gRPC applications, each a process of its own: the probes of `test_harness::grpc`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_harness::grpc::Probe;
use test_harness::run::Result;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The maximum time until a probe prints its next line, and until a change has arrived.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running probe. It ends when it is dropped.
#[derive(Debug)]
pub struct Application {
    // Closing it ends the process.
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The outcome of several calls.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The number of calls that each server answered, by its name.
    pub answers: BTreeMap<String, u64>,
    /// The number of failed calls, by status code.
    pub errors: BTreeMap<String, u64>,
    /// The message of the last failed call.
    pub detail: String,
    /// The duration of all calls.
    pub took: Duration,
}

impl Application {
    /// Starts a probe; `bootstrap` is the bootstrap file with the address of the control plane.
    pub fn start(probe: &Probe, what: &str, of: &str, bootstrap: Option<&Path>) -> Result<Application> {
        let mut command = Command::new(&probe.program);
        command.args(&probe.arguments).args([what, of]);
        command.envs(probe.environment.iter().map(|(name, value)| (name, value)));
        if let Some(bootstrap) = bootstrap {
            command.env("GRPC_XDS_BOOTSTRAP", bootstrap);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Application { _child: child, input, output })
    }

    /// Starts a server that answers with its name, and returns it with its port.
    pub async fn serve(probe: &Probe, name: &str) -> Result<(Application, u16)> {
        let mut server = Application::start(probe, "serve", name, None)?;
        let port = server.port().await?;
        Ok((server, port))
    }

    /// The port that a server reports.
    pub async fn port(&mut self) -> Result<u16> {
        let said = self.says().await?;
        let port = said["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        Ok(port.ok_or_else(|| format!("no port: {said}"))?)
    }

    /// The next JSON document that the probe prints.
    pub async fn says(&mut self) -> Result<Value> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line.map_err(|_| "the probe says nothing")??.ok_or("the probe has ended")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Makes this many calls one after the other, with these headers.
    pub async fn calls(&mut self, times: u64, headers: &[(&str, &str)]) -> Result<Outcome> {
        let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
        let ask = json!({"times": times, "headers": headers, "timeout": 20.0});
        self.input.write_all(format!("{ask}\n").as_bytes()).await?;
        self.input.flush().await?;
        let said = self.says().await?;
        let counts = |key: &str| serde_json::from_value(said[key].clone());
        Ok(Outcome {
            answers: counts("answers")?,
            errors: counts("errors")?,
            detail: said["detail"].as_str().unwrap_or_default().to_owned(),
            took: Duration::from_secs_f64(said["seconds"].as_f64().unwrap_or_default()),
        })
    }
    /// Makes this many calls again and again until the outcome is as wanted. A channel gets changes while it is used.
    pub async fn until(
        &mut self,
        times: u64,
        headers: &[(&str, &str)],
        wanted: impl Fn(&Outcome) -> bool,
    ) -> Result<Outcome> {
        retried(async || self.calls(times, headers).await, wanted).await
    }
}

/// Repeats the calls until their outcome is as wanted.
pub async fn retried(
    mut calls: impl AsyncFnMut() -> Result<Outcome>,
    wanted: impl Fn(&Outcome) -> bool,
) -> Result<Outcome> {
    let end = Instant::now() + PATIENCE;
    loop {
        let outcome = calls().await?;
        if wanted(&outcome) {
            return Ok(outcome);
        }
        if Instant::now() >= end {
            return Err(format!("not within {PATIENCE:?}; last {outcome:?}").into());
        }
    }
}
