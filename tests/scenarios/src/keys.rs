//! The section `keys`: what is known of sources of token keys.

use anyhow::{Context as _, Result, anyhow};
use config::{KeySet, Timestamp};
use model::jwt::{KeyFailure, KeySource};
use world::Batch;

/// The changes of a section's lines.
pub(crate) fn batch(lines: &str) -> Result<Batch> {
    let mut batch = Batch::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let known = line.rsplit_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")));
        let (source, known) = known.context("want `URL: KEY-IDS`")?;
        let source = match source.strip_prefix("issuer ") {
            Some(issuer) => KeySource::Issuer(issuer.into()),
            None => KeySource::Uri(source.into()),
        };
        let failed = known
            .strip_prefix("failed ")
            .map(|reason| KeyFailure { reason: reason.into(), next: Timestamp::from_unix(1_700_000_000) });
        let keys = match failed.is_some() || known.trim().is_empty() {
            true => None,
            false => Some(keys(known)?),
        };
        batch.set_keys(source, keys, failed);
    }
    Ok(batch)
}

fn keys(ids: &str) -> Result<KeySet> {
    // A modulus of 1,024 bits, which is odd.
    let modulus = |id: &str| format!("w{}E", id.chars().cycle().take(169).collect::<String>());
    let key = |id: &str| format!(r#"{{"kty":"RSA","kid":"{id}","n":"{}","e":"AQAB"}}"#, modulus(id));
    let keys: Vec<String> = ids.split_whitespace().map(key).collect();
    let set = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
    KeySet::fetched(set.as_bytes()).map_err(|error| anyhow!("{error}"))
}
