//! Reads discovery messages of both variants as the relay of the agent does. Nothing may panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    relay::fuzz_envelope(bytes);
});
