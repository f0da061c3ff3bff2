//! The loop of the supervisor.

use std::future::pending;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use agent_core::exchange::Event;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::arguments::{Restart, has_shared_memory, shared_memory};
use crate::exchange::{Configuration, Exit, Inputs, Status};
use crate::process::{self, Process};
use crate::settings::Settings;

/// A process that fails within this time may have failed because of the hot restart.
const EARLY: Duration = Duration::from_secs(5);
/// The number of failed counts of connections after which a drained Envoy is ended.
const MAX_FAILED_COUNTS: u32 = 5;

/// Runs Envoy until the agent is asked to end, or Envoy ends by itself.
pub async fn run(settings: Settings, inputs: Inputs, status: watch::Sender<Status>) -> Exit {
    let configuration = inputs.configurations.borrow().clone();
    let hot = settings.hot_restart && !settings.disabled && has_shared_memory(&settings.proxy);
    let mut supervisor = Supervisor {
        settings,
        inputs,
        status,
        configuration,
        current: None,
        old: None,
        hot,
        epoch: 0,
        crashes: 0,
        start_at: None,
        drained: false,
    };
    supervisor.inputs.configurations.mark_unchanged();
    let exit = supervisor.serve().await;
    supervisor.end().await;
    exit
}

struct Supervisor {
    settings: Settings,
    inputs: Inputs,
    status: watch::Sender<Status>,
    /// The configuration of the current process.
    configuration: Configuration,
    current: Option<Process>,
    /// The process before a hot restart, which drains and ends by itself.
    old: Option<Process>,
    hot: bool,
    epoch: u32,
    /// The number of crashes since Envoy was healthy.
    crashes: u32,
    /// The time of the next start, if there is no current process.
    start_at: Option<Instant>,
    /// Whether Envoy has been drained, or must not be.
    drained: bool,
}

/// An event of the loop.
enum Step {
    Exited(io::Result<ExitStatus>),
    OldExited,
    Healthy,
    StartDue,
    Configured,
    Asked(Event),
    Stop,
}

impl Supervisor {
    async fn serve(&mut self) -> Exit {
        if self.settings.disabled {
            return self.wait_for_stop().await;
        }
        let first = process::write(&self.configuration).and_then(|()| self.start());
        if let Err(error) = first {
            tracing::error!(binary = %self.settings.proxy.binary.display(), %error, "cannot start Envoy");
            return Exit::CannotStart(error);
        }
        loop {
            match self.step().await {
                Step::Exited(Ok(status)) if status.success() => {
                    tracing::info!("Envoy exited normally");
                    return Exit::Finished;
                }
                Step::Exited(status) => self.crashed(&status).await,
                Step::OldExited => {
                    tracing::info!("the old Envoy has drained and ended");
                    self.old = None;
                }
                Step::Healthy => self.healthy(),
                Step::StartDue => self.start_again(),
                Step::Configured => {
                    if let Some(exit) = self.reconfigure().await {
                        return exit;
                    }
                }
                Step::Asked(Event::Drain) => self.drain_now().await,
                Step::Asked(Event::Quit) => return Exit::Terminated,
                Step::Stop => {
                    self.terminate().await;
                    return Exit::Terminated;
                }
            }
        }
    }

    async fn wait_for_stop(&mut self) -> Exit {
        loop {
            tokio::select! {
                () = stopped(&mut self.inputs.stop) => return Exit::Terminated,
                Some(event) = self.inputs.events.recv() => if event == Event::Quit { return Exit::Terminated },
            }
        }
    }

    async fn step(&mut self) -> Step {
        let recovering = self.current.as_ref().filter(|_| self.crashes > 0);
        let healthy_at = recovering.map(|process| process.started + self.settings.backoff.reset);
        // One hot restart at a time: Envoy knows one process before it.
        let may_configure = self.old.is_none();
        let Inputs { configurations, events, stop } = &mut self.inputs;
        tokio::select! {
            biased;
            () = stopped(stop) => Step::Stop,
            Some(event) = events.recv() => Step::Asked(event),
            status = exit(&mut self.current) => Step::Exited(status),
            _ = exit(&mut self.old) => Step::OldExited,
            () = at(self.start_at) => Step::StartDue,
            () = at(healthy_at) => Step::Healthy,
            // Without a sender, the configuration stays.
            Ok(()) = configurations.changed(), if may_configure => Step::Configured,
        }
    }

    /// Starts the first process of an epoch.
    fn start(&mut self) -> io::Result<()> {
        let restart = if self.hot { Restart::Epoch(0) } else { Restart::Disabled };
        let process = Process::start(&self.settings, &self.configuration, restart)?;
        self.epoch = 0;
        self.replace(process);
        Ok(())
    }

    /// Makes a process the current one and returns the one before.
    fn replace(&mut self, process: Process) -> Option<Process> {
        self.start_at = None;
        let pid = process.pid();
        self.status.send_modify(|status| status.pid = pid);
        self.current.replace(process)
    }

    fn start_again(&mut self) {
        if let Err(error) = process::write(&self.configuration).and_then(|()| self.start()) {
            self.failed(format!("cannot start Envoy: {error}"));
        }
    }

    /// Plans a start after a crash.
    async fn crashed(&mut self, status: &io::Result<ExitStatus>) {
        let process = self.current.take();
        // A signal, such as that of the memory limit, has other reasons.
        let refused = status.as_ref().is_ok_and(|status| status.code().is_some());
        let early = refused && process.is_some_and(|process| process.started.elapsed() < EARLY);
        // The old process of a hot restart would hold the ports.
        if let Some(old) = self.old.take() {
            old.kill().await;
        } else if early && self.hot {
            tracing::warn!("Envoy failed at once; it starts without support of hot restarts");
            self.hot = false;
        }
        let reason = match status {
            Ok(status) => process::describe(*status),
            Err(error) => error.to_string(),
        };
        self.failed(reason);
    }

    fn failed(&mut self, exit: String) {
        let backoff = self.settings.backoff;
        let delay = backoff.first.saturating_mul(1 << self.crashes.min(20)).min(backoff.longest);
        self.crashes += 1;
        self.start_at = Some(Instant::now() + delay);
        tracing::error!(exit, retry_after = ?delay, "Envoy failed");
        self.status.send_modify(|status| {
            status.pid = None;
            status.restarts += 1;
            status.failure = Some(exit);
        });
    }

    fn healthy(&mut self) {
        self.crashes = 0;
        self.status.send_modify(|status| status.failure = None);
    }

    /// Takes a new configuration over. Ends the supervisor if it is asked to end meanwhile.
    async fn reconfigure(&mut self) -> Option<Exit> {
        let new = self.inputs.configurations.borrow_and_update().clone();
        if new == self.configuration || self.drained {
            return None;
        }
        let Supervisor { settings, inputs, .. } = self;
        let checked = tokio::select! {
            biased;
            // The next step ends the supervisor.
            () = stopped(&mut inputs.stop) => return None,
            () = quit(&mut inputs.events) => return Some(Exit::Terminated),
            checked = process::check(settings, &new) => checked,
        };
        if let Err(reason) = checked {
            tracing::error!(reason, "Envoy keeps its configuration");
            self.status.send_modify(|status| status.failure = Some(reason));
            return None;
        }
        if new.path != self.configuration.path {
            process::remove(&self.configuration);
        }
        self.configuration = new;
        if let Err(error) = process::write(&self.configuration) {
            tracing::error!(%error, "cannot write the configuration of Envoy");
            return None;
        }
        let recovered = self.crashes == 0;
        self.status.send_modify(|status| {
            status.reloads += 1;
            status.failure.take_if(|_| recovered);
        });
        if self.current.is_some() && !self.hot_restart() {
            tracing::info!("the configuration has changed: Envoy drains and restarts");
            if self.drain_and_wait().await || *self.inputs.stop.borrow() {
                return Some(Exit::Terminated);
            }
            if let Some(process) = self.current.take() {
                process.kill().await;
            }
        }
        if self.current.is_none() {
            self.start_again();
        }
        None
    }

    /// Starts a process that takes over from the current one. False if that is not possible.
    fn hot_restart(&mut self) -> bool {
        if !self.hot {
            return false;
        }
        match Process::start(&self.settings, &self.configuration, Restart::Epoch(self.epoch + 1)) {
            Ok(process) => {
                tracing::info!("the configuration has changed: a new Envoy takes over");
                self.epoch += 1;
                self.old = self.replace(process);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start a second Envoy");
                false
            }
        }
    }

    async fn drain_now(&mut self) {
        self.ask_to_drain(true).await;
        self.drained = true;
    }

    async fn ask_to_drain(&mut self, stays: bool) {
        tracing::info!("draining Envoy");
        if let Err(error) = self.settings.admin.drain(self.settings.proxy.is_sidecar, stays).await {
            tracing::warn!(%error, "cannot drain Envoy");
        }
        self.status.send_modify(|status| status.draining = true);
    }

    /// Drains Envoy before the agent ends.
    async fn terminate(&mut self) {
        if self.drained || self.current.is_none() {
            tracing::info!("Envoy ends at once");
            return;
        }
        self.drain_and_wait().await;
    }

    /// Drains Envoy and waits for the drain time, for the end of its connections, or for Envoy's own end. True if the agent is asked
    /// to end at once.
    async fn drain_and_wait(&mut self) -> bool {
        self.ask_to_drain(false).await;
        let Supervisor { settings, inputs, current, .. } = self;
        let quit = tokio::select! {
            biased;
            _ = exit(current) => {
                tracing::info!("Envoy ended while it drained");
                *current = None;
                false
            }
            () = quit(&mut inputs.events) => true,
            () = drained(settings) => false,
        };
        self.status.send_modify(|status| status.draining = false);
        quit
    }

    /// Ends all processes and removes the configuration.
    async fn end(mut self) {
        for process in [self.current.take(), self.old.take()].into_iter().flatten() {
            process.kill().await;
        }
        if !self.settings.disabled {
            process::remove(&self.configuration);
            // It does not exist without hot restarts.
            let _ = std::fs::remove_file(shared_memory(&self.settings.proxy));
        }
        self.status.send_modify(|status| status.pid = None);
    }
}

/// Waits for the time that a drained Envoy has, or until it has no connections.
async fn drained(settings: &Settings) {
    if !settings.exit_on_zero {
        tracing::info!(duration = ?settings.proxy.termination_drain, "waiting for the end of the drain time");
        return sleep(settings.proxy.termination_drain).await;
    }
    sleep(settings.minimum_drain).await;
    let mut failed = 0;
    loop {
        sleep(settings.count_interval).await;
        match settings.admin.connections(&settings.own_ports).await {
            Ok(None | Some(0)) => return tracing::info!("Envoy has no more connections"),
            Ok(Some(count)) => {
                tracing::info!(count, "Envoy still has connections");
                failed = 0;
            }
            Err(error) => {
                failed += 1;
                tracing::warn!(%error, failed, "cannot count the connections of Envoy");
                if failed >= MAX_FAILED_COUNTS {
                    return;
                }
            }
        }
    }
}

/// Waits until the agent is asked to end. A dropped sender means the same.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Both results mean that the agent ends.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits for a request to end at once.
async fn quit(events: &mut tokio::sync::mpsc::Receiver<Event>) {
    loop {
        match events.recv().await {
            Some(Event::Quit) => return,
            Some(Event::Drain) => {}
            None => pending().await,
        }
    }
}

async fn exit(process: &mut Option<Process>) -> io::Result<ExitStatus> {
    match process {
        Some(process) => process.exit().await,
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
