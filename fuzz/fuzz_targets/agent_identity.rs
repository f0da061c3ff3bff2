//! Reads the name of a secret, certificates and a key of a file, and an answer of a certificate authority. Nothing may panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| identity::fuzz(bytes));
