//! Serves a client of HTTP/2 that sends any bytes. Nothing may panic or wait.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| http2_server::fuzz(bytes));
