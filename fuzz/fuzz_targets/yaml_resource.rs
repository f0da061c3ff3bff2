//! Parses the bytes of a file into objects and diagnostics. Nothing may panic or hang, and memory must be proportional to
//! the input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use config::{ParseOptions, parse_documents, parse_mesh_config};

fuzz_target!(|bytes: &[u8]| {
    let options = ParseOptions { strict: bytes.len().is_multiple_of(2), ..ParseOptions::default() };
    let parsed = parse_documents(bytes, "input.yaml", &options);
    let refusals = parsed.refused.len() + parsed.unreadable;
    let errors = parsed.diagnostics.iter().filter(|d| d.is_error()).count();
    assert!(refusals <= errors, "refused without a reason");
    for diagnostic in &parsed.diagnostics {
        let _ = diagnostic.to_string();
    }
    let (config, diagnostics) = parse_mesh_config(bytes, "mesh.yaml", &options);
    assert!(config.is_some() || diagnostics.iter().any(|d| d.is_error()));
});
