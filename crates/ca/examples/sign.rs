//! Signs 10,000 certificate signing requests for each kind of issuer and prints signatures per second of processor time,
//! the 99th percentile of the time of one, and the resident memory: `cargo run --release -p ca --example sign`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant, SystemTime};

use ca::self_signed::{Settings, create};
use ca::{Csr, KeyKind, Lifetimes};
use names::Identity;
use rcgen::{CertificateParams, KeyPair};

const REQUESTS: usize = 10_000;

fn main() {
    let now = SystemTime::now();
    println!("issuer      request   per CPU second   mean       p99        resident");
    for (issuer, kind) in [("RSA-2048", KeyKind::Rsa(2048)), ("P-256", KeyKind::P256), ("P-384", KeyKind::P384)] {
        let authority = create(&Settings { key: kind, ..Settings::new("cluster.local") }, now).unwrap();
        for (request, algorithm) in [("P-256", &rcgen::PKCS_ECDSA_P256_SHA256), ("RSA-2048", &rcgen::PKCS_RSA_SHA256)] {
            // One key: making 10,000 RSA keys would take longer than everything else.
            let key = KeyPair::generate_for(algorithm).unwrap();
            let csr = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
            let mut times = Vec::with_capacity(REQUESTS);
            let before = processor_time();
            for number in 0..REQUESTS {
                let start = Instant::now();
                let identity = Identity::parse(&format!("spiffe://cluster.local/ns/shop/sa/w{number}")).unwrap();
                let csr = Csr::from_pem(&csr).unwrap();
                let issued = authority.issue(&csr, &[identity], 0, &Lifetimes::default(), now).unwrap();
                std::hint::black_box(issued.chain());
                times.push(start.elapsed());
            }
            let used = processor_time() - before;
            times.sort();
            let mean = times.iter().sum::<Duration>() / u32::try_from(REQUESTS).unwrap();
            println!(
                "{issuer:<11} {request:<9} {:>14.0}   {mean:>8.1?}   {:>8.1?}   {} KiB",
                REQUESTS as f64 / used.as_secs_f64(),
                times[REQUESTS * 99 / 100],
                resident()
            );
        }
    }
}

/// The processor time of this process; its unit is 10 ms.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = [fields[11], fields[12]].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}
