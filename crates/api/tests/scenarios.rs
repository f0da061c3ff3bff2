//! Every scenario of `tests/scenarios`, each on a server of its own. See `support/scenario.rs` for how they are written.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use api::ServiceRange;
use support::{Fixture, Setting, scenario};

/// Services get cluster IPs in the scenarios about them: one of six IPv4 addresses, and IPv6 addresses.
fn setting(name: &str) -> Setting {
    let ranges: &[(&str, u8)] = match name {
        "cluster_ips.http" => &[("10.96.0.0", 29)],
        "cluster_ips_dual.http" => &[("fd00::", 112), ("10.96.0.0", 16)],
        _ => &[],
    };
    let ranges = ranges.iter().map(|(first, length)| ServiceRange { first: first.parse().unwrap(), length: *length });
    Setting { ranges: ranges.collect(), ..Setting::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let only = std::env::var("RUTTER_SCENARIO").unwrap_or_default();
    let mut faults = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let fixture = Fixture::start(setting(&name)).await;
        let (found, is) = scenario::run(&fixture, &text).await;
        if std::env::var_os("RUTTER_UPDATE").is_some() && is != text {
            fs::write(&file, is).unwrap();
        }
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
