//! The memory and processor time of the relay in a process of its own: `cargo test --release -p relay --test overhead -- --nocapture`.
#![allow(clippy::unwrap_used)]

mod fake;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agent_core::environment::Environment;
use agent_core::exchange::{Health, MeshRoots};
use fake::ads::Ads;
use fake::client::{Client, SOTW};
use fake::{PATIENCE, until};
use protos::Any;
use tokio::process::Command;
use tokio::sync::watch;

/// The variables of the process: the address of the control plane, and the socket.
const ADDRESS: &str = "RELAY_TEST_ADDRESS";
const SOCKET: &str = "RELAY_TEST_SOCKET";
const UPDATES: usize = 1000;
/// The size of a large update in bytes.
const LARGE: usize = 32 << 20;
/// The memory that the relay may need for updates of 100 kB, in KiB.
const MAX_GROWTH: u64 = 8 << 10;

/// The process with the relay; without the variables, it does nothing.
#[test]
fn the_process() {
    let (Ok(address), Ok(socket)) = (std::env::var(ADDRESS), std::env::var(SOCKET)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut settings = relay::Settings::from_environment(&Environment::default()).unwrap();
        settings.socket = socket.into();
        let channels = relay::Channels {
            names: watch::Sender::new(None),
            roots: watch::Sender::new(MeshRoots::default()),
            health: watch::Sender::new(Health::Unknown).subscribe(),
        };
        let stop = watch::Sender::new(false);
        let upstream = fake::upstream(address.parse().unwrap(), None);
        let registry = prometheus::Registry::new();
        let relay = relay::start(&settings, upstream, channels, &registry, stop.subscribe()).unwrap();
        relay.stopped().await;
    });
}

/// Resident memory in KiB, and processor time.
fn usage(pid: u32) -> (u64, Duration) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    (resident.unwrap(), Duration::from_millis(ticks * 10))
}

async fn start(address: &str, socket: &Path) -> tokio::process::Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process", "--nocapture"])
        .env(ADDRESS, address)
        .env(SOCKET, socket)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("the socket", None, async || socket.exists().then_some(())).await;
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_updates_need_little_memory_and_time() {
    let (ads, directory) = (Ads::start().await, tempfile::tempdir().unwrap());
    let socket = directory.path().join("XDS");
    let child = start(&ads.address.to_string(), &socket).await;
    let pid = child.id().unwrap();
    let mut stream = Client::connect(&socket).await.open(SOTW).await;
    let type_url = "type.googleapis.com/envoy.t";
    let update =
        |size: usize| ads.set(type_url, vec![("r", Any { type_url: "t".to_owned(), value: vec![7; size].into() })]);
    update(1);
    stream.request(type_url, "").await;
    stream.next().await;
    let (idle, begun) = usage(pid);
    println!("idle with one stream: {idle} KiB");
    for size in [1_000, 100_000] {
        let (_, before) = usage(pid);
        for _ in 0..UPDATES {
            update(size);
            let response = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
            assert_eq!(response.resources[0].value.len(), size);
            stream.request(type_url, &response.nonce).await;
        }
        let (resident, after) = usage(pid);
        println!("{UPDATES} updates of {size} bytes: {:?} of processor time, {resident} KiB resident", after - before);
        assert!(resident < idle + MAX_GROWTH, "{resident} KiB");
    }
    // A large update exists a few times while it is decoded and encoded, and the allocator keeps some of that memory. No
    // update adds to it: eight would need 256 MiB.
    let mut large = Vec::new();
    for _ in 0..8 {
        update(LARGE);
        let response = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
        assert_eq!(response.resources[0].value.len(), LARGE);
        stream.request(type_url, &response.nonce).await;
        large.push(usage(pid).0);
    }
    println!("updates of 32 MiB: {large:?} KiB; {:?} of processor time in all", usage(pid).1 - begun);
    assert!(large[7] < idle + (128 << 10), "{large:?}");
}
