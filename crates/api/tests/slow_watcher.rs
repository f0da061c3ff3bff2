//! A watcher that does not read is dropped, and costs nothing until then. Alone in its process, whose memory it measures.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::json;
use support::{Fixture, Setting, read};
use tokio::io::AsyncWriteExt as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// More than what the system keeps for a connection.
const WRITES: usize = 400;
const BYTES: usize = 128 * 1024;

/// Memory of this process that is in use, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn write(fixture: &Fixture, times: usize, round: &str) {
    for write in 0..times {
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "big" },
            "data": { "n": format!("{round}{write}"), "k": "x".repeat(BYTES) },
        });
        let reply = fixture.send("PUT", &format!("{MAPS}/big"), &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_watcher_is_dropped_and_costs_nothing() {
    let setting = Setting {
        store: store::Limits { ring_revisions: 8, ring_bytes: 4 << 20, ..store::Limits::default() },
        api: api::Limits { lines: 1 << 20, ..api::Limits::default() },
        ..Setting::default()
    };
    let fixture = Fixture::start(setting).await;
    let small = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}}"#;
    assert_eq!(fixture.send("POST", MAPS, small).await.status, 201);
    // The memory that writes use by themselves is allocated before the watcher starts.
    write(&fixture, 100, "before ").await;
    let mut slow = fixture.connect().await;
    let request = format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    slow.write_all(request.as_bytes()).await.unwrap();
    // The watch is there; from now on nobody reads.
    slow.readable().await.unwrap();
    let before = resident();
    write(&fixture, WRITES, "").await;
    let grown = resident().saturating_sub(before);
    assert!(grown < WRITES * BYTES / 3, "{grown} bytes more after {} were written", WRITES * BYTES);
    // It reads what was on its way, and then that it is too late.
    let reply = read(&mut slow, None).await;
    let lines = reply.lines();
    let lines = lines.as_array().unwrap();
    assert!(lines.len() < WRITES, "{} lines", lines.len());
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "ERROR");
    assert_eq!(last["object"]["code"], 410);
    assert_eq!(last["object"]["reason"], "Expired");
    let metrics = fixture.api.metrics();
    assert_eq!((metrics.watches_dropped, metrics.watches), (1, 0));
}
