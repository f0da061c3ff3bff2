//! The life of one Envoy.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use supervisor::{Admin, Configuration, Inputs, Proxy, Status};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::exchange::{Event, Settings};
use crate::mesh::Member;
use crate::parameters::Tuning;

/// The time after which Envoy is started again that ended by itself, or could not be started.
const RETRY: Duration = Duration::from_secs(5);
/// The shortest drain time. Meanwhile, clients notice that their connections will close.
const MINIMUM_DRAIN: Duration = Duration::from_secs(1);
/// The interval and number of attempts to end an Envoy that an earlier process left behind.
const QUIT_INTERVAL: Duration = Duration::from_millis(100);
const QUIT_ATTEMPTS: u32 = 50;
/// The longest time for which a starting Envoy holds up the next one. Two that start together could both bind a port before one of
/// them listens, and the other would not notice that it has no connections.
const START_LIMIT: Duration = Duration::from_secs(2);
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// The time between an acknowledgement and the question whether the ports are open, and its limit: it grows with each restart.
const CHECK_DELAY: Duration = Duration::from_millis(500);
const LONGEST_CHECK_DELAY: Duration = Duration::from_mins(10);

/// The settings of the supervisor of an Envoy. `number` distinguishes it from the others.
///
/// # Errors
/// A variable has a value that cannot be used.
pub(crate) fn supervisor_settings(
    settings: &Settings,
    tuning: &Tuning,
    is_ipv6: bool,
    number: u64,
    admin: PathBuf,
) -> Result<supervisor::Settings, EnvironmentError> {
    let of_proxy = &tuning.settings;
    let proxy = Proxy {
        binary: settings.envoy.clone(),
        drain: of_proxy.drain_duration,
        termination_drain: of_proxy.termination_drain_duration,
        concurrency: of_proxy.concurrency.and_then(|number| number.try_into().ok()).unwrap_or_default(),
        // It only names what the processes of a hot restart share: the admin interface is at a Unix socket. If another Envoy of
        // this machine has the same number, the supervisor goes on without hot restarts.
        admin_port: (number % 50_000) as u16 + 10_000,
        file_flush_interval: of_proxy.file_flush_interval,
        file_flush_min_size_kb: of_proxy.file_flush_min_size_kb,
        is_sidecar: false,
        is_ipv6,
        log_level: Some(&tuning.log_level).filter(|level| !level.is_empty()).unwrap_or(&settings.log_level).clone(),
        component_log_level: tuning.component_log_level.clone(),
        is_root: false,
    };
    let minimum = MINIMUM_DRAIN.min(proxy.termination_drain);
    let defaults =
        [("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true".to_owned()), ("MINIMUM_DRAIN_DURATION", format!("{minimum:?}"))];
    let given = tuning.variables.iter().map(|(name, value)| (&**name, value.clone()));
    let environment: Environment = defaults.into_iter().chain(given).collect();
    let found = supervisor::Settings::from_environment(&environment, proxy)?;
    Ok(supervisor::Settings { admin: Admin::Unix(admin), own_ports: Vec::new(), ..found })
}

/// The channels between [`Fleet`](crate::Fleet) and the task of an Envoy.
pub(crate) struct Channels {
    pub(crate) configurations: watch::Receiver<Configuration>,
    pub(crate) stop: watch::Receiver<bool>,
    /// Envoy starts when this has a permit, and returns the permit when it is ready.
    pub(crate) starting: Arc<Semaphore>,
    /// The ports that Envoy acknowledged.
    pub(crate) ports: watch::Receiver<BTreeSet<u16>>,
}

/// Runs the Envoy of a Gateway until it should stop. One with an identity in the mesh starts when it has a certificate.
pub(crate) async fn supervise(
    settings: supervisor::Settings,
    member: Option<Member>,
    channels: Channels,
    report: impl Fn(Event),
) {
    let Channels { configurations, mut stop, starting, ports } = channels;
    let mut stopped = stop.clone();
    member.iter().for_each(Member::prepare);
    let tokens = async {
        match &member {
            Some(member) => member.keep_token(|| report(Event::NeedsToken(member.token_request()))).await,
            None => pending().await,
        }
    };
    tokio::pin!(tokens);
    let prepared = async {
        let parts = match &member {
            Some(member) => Some(member.join().await),
            None => None,
        };
        (parts, starting.acquire_owned().await)
    };
    let (parts, turn) = tokio::select! {
        prepared = prepared => prepared,
        () = &mut tokens => return,
        _ = stopped.wait_for(|stop| *stop) => return,
    };
    end_remaining(&settings.admin).await;
    let started = async {
        let _ = tokio::time::timeout(START_LIMIT, ready(&settings.admin)).await;
        drop(turn);
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(keep_running(&settings, &configurations, &mut stop), started) } => {}
        () = check_ports(&settings.admin, ports, |ports| report(Event::Lost(ports))) => {}
        () = &mut tokens => {}
    }
    if let Some(parts) = parts {
        parts.end().await;
    }
    if let Admin::Unix(socket) = &settings.admin {
        // It does not exist if Envoy never ran.
        let _ = std::fs::remove_file(socket);
    }
}

/// Waits until Envoy accepts connections.
async fn ready(admin: &Admin) {
    while !admin.is_ready().await {
        tokio::time::sleep(READY_INTERVAL).await;
    }
}

/// Compares the ports at which Envoy listens with those that it acknowledged, whenever the status of the Gateway is new. Never ends.
///
/// Two processes may bind a port as long as none of them listens. Envoy listens after it has acknowledged the listener: if it is the
/// later one, it drops the listener, and only its log has the error.
async fn check_ports(admin: &Admin, mut ports: watch::Receiver<BTreeSet<u16>>, lost: impl Fn(BTreeSet<u16>)) {
    let mut delay = CHECK_DELAY;
    while ports.changed().await.is_ok() {
        loop {
            tokio::time::sleep(delay).await;
            let expected = ports.borrow_and_update().clone();
            match admin.listeners().await {
                Ok(listeners) if listeners.warming > 0 => continue,
                Ok(listeners) if listeners.failures > 0 && !expected.is_subset(&listeners.ports) => {
                    lost(&expected - &listeners.ports);
                    delay = (delay * 2).min(LONGEST_CHECK_DELAY);
                }
                Ok(_) => {}
                // It does not run, and is asked again when the status changes.
                Err(error) => tracing::debug!(%error, "cannot ask Envoy for its ports"),
            }
            break;
        }
    }
    pending().await
}

/// Starts Envoy again whenever its supervisor gives up.
async fn keep_running(
    settings: &supervisor::Settings,
    configurations: &watch::Receiver<Configuration>,
    stop: &mut watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let (_, events) = mpsc::channel(1);
        let (status, _) = watch::channel(Status::default());
        let inputs = Inputs { configurations: configurations.clone(), events, stop: stop.clone() };
        let exit = supervisor::run(settings.clone(), inputs, status).await;
        if *stop.borrow() {
            return;
        }
        tracing::error!(?exit, retry_after = ?RETRY, "Envoy does not run");
        // Both results mean that the Gateway should not run.
        let _ = tokio::time::timeout(RETRY, stop.wait_for(|stop| *stop)).await;
    }
}

/// Ends the Envoy of an earlier process that was killed. It would hold the ports. With hot restarts, Envoy itself ends with the
/// process that started it.
async fn end_remaining(admin: &Admin) {
    for attempt in 0..QUIT_ATTEMPTS {
        if admin.quit().await.is_err() {
            return;
        }
        if attempt == 0 {
            tracing::warn!("an Envoy of an earlier process still runs; it is ended");
        }
        tokio::time::sleep(QUIT_INTERVAL).await;
    }
}
