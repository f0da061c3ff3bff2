//! Reads answers of token issuers: key sets, discovery documents and redirects. Nothing may panic or hang, no private key may
//! remain, and every URL must be one of HTTP.

#![no_main]

use jwks::Guard;
use jwks::document::{key_set_url, parse_url, redirect};
use libfuzzer_sys::fuzz_target;
use config::KeySet;

fuzz_target!(|input: (Vec<u8>, String, String)| {
    let (body, location, pattern) = input;
    for set in [KeySet::fetched(&body).ok(), KeySet::inline(&location).ok()].into_iter().flatten() {
        let keys: serde_json::Value = serde_json::from_str(set.json()).expect("a key set is JSON");
        let keys = keys["keys"].as_array().expect("a key set has keys");
        assert!(!keys.is_empty() && keys.iter().all(|key| key.get("d").is_none()));
    }
    let base = parse_url("https://issuer.example/keys").expect("a URL");
    let urls = [key_set_url(&body).ok(), parse_url(&location).ok(), redirect(&base, &location).ok()];
    for url in urls.into_iter().flatten() {
        assert!(matches!(url.scheme(), "http" | "https"));
        let guard = Guard { blocked: pattern.parse().into_iter().collect(), allowed: Vec::new() };
        let _ = guard.host(url.host_str().expect("a host"));
        let _ = guard.address("issuer.example", [body.first().copied().unwrap_or(0), 1, 2, 3].into());
    }
});
