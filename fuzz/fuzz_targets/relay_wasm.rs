//! Reads and changes filters with Wasm modules, and reads what registries answer. Nothing may panic, and a changed filter has no remote
//! module.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    relay::wasm::fuzz_filter(bytes);
    relay::wasm::fuzz_registry(bytes);
});
