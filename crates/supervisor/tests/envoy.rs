//! Start, crash, new configurations, drain and end of a real Envoy.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent_core::exchange::Event;
use common::{PATIENCE, Supervised, configuration, settings};
use supervisor::{Admin, Exit, Inputs, Status, run};
use test_harness::run::{Traffic, http, wait_for};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

async fn ended(pid: u32) {
    let gone = || async move { (!Path::new("/proc").join(pid.to_string()).exists()).then_some(()) };
    wait_for("the end of a process", PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn a_crashed_envoy_is_started_again() {
    let mut envoy = Supervised::start(|_| ()).await;
    for restarts in 1..=2 {
        let pid = envoy.pid();
        signal("-9", pid);
        let failed = envoy.until(|status| status.restarts == restarts && status.failure.is_some()).await;
        assert!(failed.failure.unwrap().starts_with("signal 9"));
        let running = envoy.until(|status| status.pid.is_some_and(|new| new != pid)).await;
        envoy.answers("one").await;
        assert_eq!(running.restarts, restarts);
        envoy.until(|status| status.failure.is_none()).await;
    }
    let (pid, file) = (envoy.pid(), envoy.folder.path().join("proxy/envoy-rev.json"));
    assert!(file.exists());
    envoy.events.send(Event::Quit).await.unwrap();
    assert!(matches!(envoy.end().await, Exit::Terminated));
    ended(pid).await;
    assert!(!file.exists());
}

#[tokio::test]
async fn a_new_configuration_takes_effect_without_a_failed_request() {
    let mut envoy = Supervised::start(|_| ()).await;
    let first = envoy.pid();
    let traffic = Traffic::start(envoy.address, "/", &[], 200, 8);
    traffic.next(50).await.unwrap();
    for (number, text) in [(1, "two"), (2, "three")] {
        let old = envoy.pid();
        envoy.configure(text);
        envoy.until(|status| status.reloads == number).await;
        envoy.until(|status| status.pid != Some(old)).await;
        envoy.answers(text).await;
        ended(old).await;
        traffic.next(50).await.unwrap();
    }
    let last = envoy.pid();
    // The same configuration again has no effect, and one that Envoy rejects leaves the old one.
    envoy.configure("three");
    envoy.configurations.send_replace(configuration(&envoy.folder, "{\"no_such\":".to_owned()));
    let refused = envoy.until(|status| status.failure.is_some()).await;
    assert!(refused.failure.unwrap().contains("rejects"));
    assert_eq!((refused.pid, refused.reloads), (Some(last), 2));
    envoy.answers("three").await;
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{:?}", counts.described);
    // A crash after hot restarts starts again.
    signal("-9", last);
    envoy.until(|status| status.pid.is_some_and(|pid| pid != last && pid != first)).await;
    envoy.answers("three").await;
    envoy.events.send(Event::Quit).await.unwrap();
    assert!(matches!(envoy.end().await, Exit::Terminated));
}

#[tokio::test]
async fn without_hot_restart_envoy_drains_and_restarts() {
    let mut envoy = Supervised::start(|settings| {
        settings.hot_restart = false;
        settings.exit_on_zero = true;
    })
    .await;
    let old = envoy.pid();
    envoy.backend.hold();
    let slow = tokio::spawn(http::get(envoy.address, "/slow", &[]));
    let arrived = || async { (envoy.backend.requests() == 2).then_some(()) };
    wait_for("the request", PATIENCE, arrived).await.unwrap();
    envoy.configure("two");
    envoy.until(|status| status.draining).await;
    envoy.backend.open();
    let response = slow.await.unwrap().unwrap();
    assert_eq!((response.status.as_u16(), response.header("x-configuration")), (200, "one"));
    envoy.until(|status| status.pid.is_some_and(|pid| pid != old)).await;
    envoy.answers("two").await;
    ended(old).await;
}

#[tokio::test]
async fn a_request_that_ends_within_the_drain_time_succeeds() {
    let mut envoy = Supervised::start(|settings| settings.proxy.termination_drain = Duration::from_secs(3)).await;
    let (pid, traffic) = (envoy.pid(), Traffic::start(envoy.address, "/", &[], 100, 4));
    traffic.next(20).await.unwrap();
    envoy.backend.hold();
    let slow = tokio::spawn(http::get(envoy.address, "/slow", &[]));
    let before = envoy.backend.requests();
    let arrived = || async { (envoy.backend.requests() > before + 4).then_some(()) };
    wait_for("requests", PATIENCE, arrived).await.unwrap();
    envoy.stop.send_replace(true);
    envoy.until(|status| status.draining).await;
    envoy.backend.open();
    let response = slow.await.unwrap().unwrap();
    assert_eq!((response.status.as_u16(), response.header("connection")), (200, "close"));
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{:?}", counts.described);
    let exit = envoy.end().await;
    assert!(matches!(exit, Exit::Terminated) && exit.code() == 0);
    ended(pid).await;
}

#[tokio::test]
async fn envoy_ends_when_it_has_no_more_connections() {
    let mut envoy = Supervised::start(|settings| settings.exit_on_zero = true).await;
    let open = TcpStream::connect(envoy.address).await.unwrap();
    envoy.backend.hold();
    let slow = tokio::spawn(http::get(envoy.address, "/slow", &[]));
    let arrived = || async { (envoy.backend.requests() == 2).then_some(()) };
    wait_for("the request", PATIENCE, arrived).await.unwrap();
    envoy.stop.send_replace(true);
    envoy.until(|status| status.draining).await;
    // Several counts later, it still runs.
    let admin = Admin::Unix(envoy.folder.path().join("admin"));
    for _ in 0..30 {
        assert_eq!(admin.connections(&[]).await.unwrap(), Some(2));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!envoy.task.is_finished());
    drop(open);
    envoy.backend.open();
    assert_eq!(slow.await.unwrap().unwrap().status.as_u16(), 200);
    assert!(matches!(envoy.end().await, Exit::Terminated));
}

#[tokio::test]
async fn envoy_drained_before_ends_at_once() {
    let mut envoy = Supervised::start(|_| ()).await;
    let pid = envoy.pid();
    envoy.events.send(Event::Drain).await.unwrap();
    envoy.until(|status| status.draining).await;
    // It still serves.
    let response = http::get(envoy.address, "/", &[]).await.unwrap();
    assert_eq!((response.status.as_u16(), response.header("connection")), (200, "close"));
    drop(envoy.stop);
    assert!(matches!(tokio::time::timeout(PATIENCE, envoy.task).await.unwrap().unwrap(), Exit::Terminated));
    ended(pid).await;
}

#[tokio::test]
async fn a_request_to_quit_ends_a_drain() {
    let mut envoy = Supervised::start(|_| ()).await;
    envoy.stop.send_replace(true);
    envoy.until(|status| status.draining).await;
    envoy.events.send(Event::Quit).await.unwrap();
    assert!(matches!(envoy.end().await, Exit::Terminated));
}

#[tokio::test]
async fn the_agent_ends_with_an_envoy_that_ends_normally() {
    let envoy = Supervised::start(|_| ()).await;
    signal("-TERM", envoy.pid());
    let exit = envoy.end().await;
    assert!(matches!(exit, Exit::Finished) && exit.code() == 0);
}

#[tokio::test]
async fn there_may_be_no_envoy() {
    let folder = tempfile::tempdir().unwrap();
    let (_configurations, configured) = watch::channel(configuration(&folder, "{}".to_owned()));
    let mut missing = settings(&folder);
    missing.proxy.binary = folder.path().join("no-envoy");
    let mut disabled = missing.clone();
    disabled.disabled = true;
    for (settings, code) in [(disabled, 0), (missing, 1)] {
        let (_events, asked) = mpsc::channel(1);
        let (stop, stopped) = watch::channel(false);
        let (reported, _status) = watch::channel(Status::default());
        let inputs = Inputs { configurations: configured.clone(), events: asked, stop: stopped };
        let task = tokio::spawn(run(settings, inputs, reported));
        stop.send_replace(true);
        let exit = tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        assert_eq!(exit.code(), code, "{exit:?}");
    }
}

#[tokio::test]
async fn where_hot_restarts_do_not_work_envoy_starts_without() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("envoy");
    let mut envoy = Supervised::start(|settings| {
        let real = settings.proxy.binary.display();
        let text = format!("#!/bin/sh\ncase \"$*\" in *--base-id*) exit 3;; esac\nexec {real} \"$@\"\n");
        // A process of its own writes the script: a file that this process had open for writing might not be executable yet.
        let write = "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&script).arg(text).status().unwrap().success());
        settings.proxy.binary = script.clone();
        settings.backoff.reset = PATIENCE;
    })
    .await;
    let status = envoy.until(|status| status.pid.is_some()).await;
    assert_eq!((status.restarts, status.failure.unwrap().as_str()), (1, "exit status 3"));
}
