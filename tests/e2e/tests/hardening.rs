//! A control plane with hostile clients and files, few descriptors, or a full disk.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::{PATIENCE, rutter_binary};
use test_harness::run::{Control, Result, http, wait_for};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// A program that runs these shell commands and then the control plane.
fn wrapper(directory: &Path, commands: &str) -> Result<PathBuf> {
    let path = directory.join("rutter");
    std::fs::write(&path, format!("#!/bin/sh\n{commands}\nexec {} \"$@\"\n", rutter_binary().display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_leave_descriptors_for_the_others() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let binary = wrapper(directory.path(), "ulimit -n 512")?;
    let control = Control::start_with_api(&binary, &directory.path().join("data"), &["--api-plaintext", "on"]).await?;
    let mut silent = Vec::new();
    for address in [control.grpc(), control.api().ok_or("no API")?] {
        for _ in 0..700 {
            // Connections beyond the limit wait, or replace others.
            let connecting = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address));
            let Ok(Ok(stream)) = connecting.await else { break };
            silent.push(stream);
        }
    }
    assert!(control.readiness().await?.status.is_success());
    assert!(control.debug("/version").await?.status.is_success());
    let api = http::get(control.api().ok_or("no API")?, "/api/v1/namespaces", &[("host", "localhost")]).await?;
    assert!(api.status.is_success(), "{}", api.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_takes_no_longer_than_the_setting() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let flags = ["--api-plaintext", "on", "--shutdown-duration", "1s"];
    let mut control = Control::start_with_api(rutter_binary(), &directory.path().join("data"), &flags).await?;
    // A watch, a request whose body does not come, and a connection without a request.
    let api = control.api().ok_or("no API")?;
    let mut open = Vec::new();
    for request in [
        "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
        "",
    ] {
        let mut stream = TcpStream::connect(api).await?;
        stream.write_all(request.as_bytes()).await?;
        open.push(stream);
    }
    open.push(TcpStream::connect(control.grpc()).await?);
    let begin = Instant::now();
    assert!(control.stop().await?, "{}", control.log_end()?);
    assert!(begin.elapsed() < Duration::from_millis(2500), "{:?}", begin.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_in_the_config_directory_does_not_hang() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let made = std::process::Command::new("mkfifo").arg(directory.path().join("pipe.yaml")).status()?;
    assert!(made.success());
    let mut control = Control::start(rutter_binary(), directory.path(), &[]).await?;
    let begin = Instant::now();
    assert!(control.stop().await?);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_others_can_read_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    std::fs::write(data.join("admin.token"), "0123456789abcdef0123456789abcdef")?;
    std::fs::set_permissions(data.join("admin.token"), std::fs::Permissions::from_mode(0o644))?;
    let error = Control::start_with_api(rutter_binary(), &data, &[]).await.err().ok_or("it started")?.to_string();
    assert!(error.contains("admin.token: other users have access to it (mode 644)"), "{error}");
    Ok(())
}

/// Needs root, to mount a small file system that only the control plane sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_a_full_disk_serves_and_reports_it() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let mounted = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("mount -t tmpfs -o size=4m tmpfs {}", data.display()))
        .status()?;
    if !mounted.success() {
        eprintln!("skipped: mounting a file system needs root");
        return Ok(());
    }
    let result = on_a_full_disk(&data).await;
    let unmounted = std::process::Command::new("umount").args(["-l"]).arg(&data).status()?;
    assert!(unmounted.success());
    result
}

async fn on_a_full_disk(data: &Path) -> Result<()> {
    let mut control = Control::start_with_api(rutter_binary(), data, &["--api-plaintext", "on"]).await?;
    let api = control.api().ok_or("no API")?;
    let get = async |path: &str| http::get(api, path, &[("host", "localhost")]).await;
    assert!(get("/readyz").await?.status.is_success());
    assert!(control.stop().await?);
    // Fills the file system to the last byte.
    let mut fill = std::fs::File::create(data.join("fill"))?;
    while std::io::Write::write_all(&mut fill, &[0; 4096]).is_ok() {}
    while std::io::Write::write_all(&mut fill, &[0]).is_ok() {}
    control.begin().await?;
    assert!(get("/api/v1/namespaces").await?.text().contains("istio-system"), "what was stored is served");
    let ready = control.readiness().await?;
    assert!(
        ready.status.is_success() && ready.text().contains("the store is read-only: no space is left"),
        "{}",
        ready.text()
    );
    assert!(!get("/healthz").await?.status.is_success() && get("/livez").await?.status.is_success());
    assert_eq!(control.metric("rutter_store_writable", "").await? as i64, 0);
    drop(fill);
    std::fs::remove_file(data.join("fill"))?;
    let writable = || async { get("/readyz").await.ok().filter(|answer| answer.status.is_success()).map(drop) };
    wait_for("the store to be writable", PATIENCE, writable).await?;
    assert_eq!(control.metric("rutter_store_writable", "").await? as i64, 1);
    Ok(())
}
