//! Reads arbitrary stored counts of another replica. Nothing may panic, totals match their parts, and counts survive a
//! round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use status::{Shards, read_shard};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    let shares = read_shard(&value);
    let mut shards = Shards::default();
    shards.take(shares.iter().map(|(key, share)| (key.clone(), Some(share.clone()))));
    let mut again = std::collections::BTreeMap::new();
    for (_, part) in shards.changed() {
        again.extend(part.iter().flat_map(read_shard));
    }
    assert_eq!(shares.len(), again.len());
    for (key, share) in shares {
        let counts = &share.counts;
        assert_eq!(counts.total, counts.running + counts.refused + counts.pending);
        assert_eq!(again[&key].counts.total, counts.total);
    }
});
