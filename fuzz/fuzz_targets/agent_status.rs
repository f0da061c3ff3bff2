//! Parses what the injector writes into the environment of the agent, and Envoy's statistics. Nothing may panic, and metrics are
//! never scraped from the status port itself.

#![no_main]

use agent_status::readiness::is_ready;
use agent_status::settings::{probers, targets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(targets) = targets(text, 15020) {
        assert!(targets.iter().all(|target| target.port != 15020 && target.path.starts_with('/')));
    }
    if let Ok(probers) = probers(text) {
        assert!(probers.keys().all(|path| path.starts_with("/app-health/") || path.starts_with("/app-lifecycle/")));
    }
    assert!(is_ready(text).is_err() || text.contains("workers_started"));
});
