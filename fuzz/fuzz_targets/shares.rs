//! Reads arbitrary stored counts of another replica, and arbitrary names of them. Nothing may panic, and both survive a
//! round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use status::{ReplicaCounts, read_name, stored_name};

fuzz_target!(|bytes: &[u8]| {
    if let Some(key) = std::str::from_utf8(bytes).ok().and_then(read_name) {
        assert_eq!(read_name(&stored_name(&key)), Some(key));
    }
    let Ok(counts) = serde_json::from_slice::<ReplicaCounts>(bytes) else {
        return;
    };
    let stored = serde_json::to_vec(&counts).expect("serializable");
    assert_eq!(serde_json::from_slice::<ReplicaCounts>(&stored).expect("readable"), counts);
});
