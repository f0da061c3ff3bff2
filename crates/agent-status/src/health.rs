//! Checks the health of an application on a virtual machine, where there is no kubelet.

use std::process::Stdio;
use std::time::Duration;

use agent_core::exchange::Health;
use config::istio::{ExecCheck, HealthCheck, HttpCheck, ReadinessProbe};
use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::client::{Get, GetError, connect};
use crate::probe::{GrpcError, authority, grpc};
use crate::readiness::{EnvoyReadiness, NotReady};
use crate::settings::Settings;

/// The name by which applications recognize the checks.
const AGENT: HeaderValue = HeaderValue::from_static("istio-probe/1.0");

/// The reason why an application is not healthy.
#[derive(thiserror::Error, Debug)]
enum Unhealthy {
    #[error(transparent)]
    Envoy(#[from] NotReady),
    #[error(transparent)]
    Http(#[from] GetError),
    #[error("status code was not from [200,400), bad code {0}")]
    Status(u16),
    #[error(transparent)]
    Grpc(#[from] GrpcError),
    #[error("cannot connect to port {0}: {1}")]
    Tcp(u32, std::io::Error),
    #[error("cannot run the command: {0}")]
    Command(#[from] std::io::Error),
    #[error("the command failed: {0}")]
    Exit(std::process::ExitStatus),
    #[error("no result within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Invalid(&'static str),
}

/// Checks the health until `stop` is true or closed, and reports changes. Envoy must be ready, too, if there is one.
pub async fn check(
    settings: &Settings,
    probe: &ReadinessProbe,
    health: &watch::Sender<Health>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        () = run(settings, probe, health) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn run(settings: &Settings, probe: &ReadinessProbe, health: &watch::Sender<Health>) {
    let seconds = |number: i32, default: u64| Duration::from_secs(positive(number).unwrap_or(default));
    let mut count = Count::new(probe);
    let limit = seconds(probe.timeout_seconds, 1);
    let envoy = settings.admin.map(EnvoyReadiness::new);
    sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut ticks = interval(seconds(probe.period_seconds, 10));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let checked = timeout(limit, once(settings, envoy.as_ref(), probe.method.as_ref())).await;
        let checked = checked.unwrap_or(Err(Unhealthy::Timeout(limit)));
        tracing::debug!(?checked, "the health of the application was checked");
        if let Some(new) = count.add(checked.err().map(|reason| reason.to_string())) {
            tracing::info!(health = ?new, "the health of the application has changed");
            health.send_replace(new);
        }
    }
}

/// Counts results until they reach a threshold.
struct Count {
    thresholds: (u64, u64),
    /// The number of results in succession that were as the last one.
    same: (bool, u64),
    healthy: Option<bool>,
}

impl Count {
    fn new(probe: &ReadinessProbe) -> Count {
        let threshold = |number: i32| positive(number).unwrap_or(1);
        let thresholds = (threshold(probe.success_threshold), threshold(probe.failure_threshold));
        Count { thresholds, same: (true, 0), healthy: None }
    }

    /// Adds a result, and returns the health if it changes.
    fn add(&mut self, reason: Option<String>) -> Option<Health> {
        let healthy = reason.is_none();
        self.same = (healthy, if self.same.0 == healthy { self.same.1.saturating_add(1) } else { 1 });
        let threshold = if healthy { self.thresholds.0 } else { self.thresholds.1 };
        if self.same.1 < threshold || self.healthy == Some(healthy) {
            return None;
        }
        self.healthy = Some(healthy);
        Some(reason.map_or(Health::Healthy, |reason| Health::Unhealthy { reason }))
    }
}

fn positive(number: i32) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

async fn once(
    settings: &Settings,
    envoy: Option<&EnvoyReadiness>,
    method: Option<&HealthCheck>,
) -> Result<(), Unhealthy> {
    if let Some(envoy) = envoy {
        envoy.check().await?;
    }
    let host = |host: &str| if host.is_empty() { settings.health_destination.clone() } else { host.to_owned() };
    let port =
        |port: u32| u16::try_from(port).map_err(|_| Unhealthy::Invalid("the port of readinessProbe is not a port"));
    match method {
        Some(HealthCheck::HttpGet(check)) => http(check, &host(&check.host), port(check.port)?).await,
        Some(HealthCheck::TcpSocket(check)) => {
            let connected = connect(&host(&check.host), port(check.port)?, false).await;
            connected.map(drop).map_err(|error| Unhealthy::Tcp(check.port, error))
        }
        Some(HealthCheck::Exec(check)) => exec(check).await,
        Some(HealthCheck::Grpc(check)) => {
            Ok(grpc(&settings.health_destination, port(check.port)?, &check.service, Some(&AGENT), false).await?)
        }
        None if envoy.is_some() => Ok(()),
        None => Err(Unhealthy::Invalid("readinessProbe has no method: give httpGet, tcpSocket, exec or grpc")),
    }
}

async fn http(check: &HttpCheck, host: &str, port: u16) -> Result<(), Unhealthy> {
    let scheme = if check.scheme.eq_ignore_ascii_case("https") { "https" } else { "http" };
    let slash = if check.path.starts_with('/') { "" } else { "/" };
    let mut get = Get::new(&format!("{scheme}://{}{slash}{}", authority(host, port), check.path))?;
    get.probe = true;
    for header in &check.http_headers {
        let parsed = HeaderName::from_bytes(header.name.as_bytes()).ok().zip(HeaderValue::from_str(&header.value).ok());
        let (name, value) = parsed.ok_or(Unhealthy::Invalid("a header of readinessProbe.httpGet is not valid"))?;
        get.headers.append(name, value);
    }
    if !get.headers.contains_key(USER_AGENT) {
        get.headers.insert(USER_AGENT, AGENT);
    }
    let status = get.send().await?.0.status().as_u16();
    if (200..400).contains(&status) { Ok(()) } else { Err(Unhealthy::Status(status)) }
}

async fn exec(check: &ExecCheck) -> Result<(), Unhealthy> {
    let (program, arguments) =
        check.command.split_first().ok_or(Unhealthy::Invalid("readinessProbe.exec has no command"))?;
    let mut command = Command::new(&**program);
    command
        .args(arguments.iter().map(|argument| &**argument))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // The command ends with the timeout.
    let status = command.kill_on_drop(true).status().await?;
    if status.success() { Ok(()) } else { Err(Unhealthy::Exit(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_reached_by_results_in_succession() {
        // Results and reports: + healthy, - unhealthy.
        for (success, failure, results, reports) in [
            (0, 0, "++-+--", "+ -+- "),
            (2, 3, "+-++--+---+", "   +     - "),
            (1, 3, "---", "  -"),
            (3, 1, "+-+++", " -  +"),
        ] {
            let probe =
                ReadinessProbe { success_threshold: success, failure_threshold: failure, ..ReadinessProbe::default() };
            let mut count = Count::new(&probe);
            let shown: String = results
                .chars()
                .map(|result| match count.add((result == '-').then(|| "down".to_owned())) {
                    None => ' ',
                    Some(Health::Healthy) => '+',
                    Some(health) => {
                        assert_eq!(health, Health::Unhealthy { reason: "down".to_owned() });
                        '-'
                    }
                })
                .collect();
            assert_eq!(shown, reports, "{success} {failure}");
        }
    }
}
