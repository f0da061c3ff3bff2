//! Parses documents as JSON values and as objects. Nothing may panic or hang. An object is returned only without
//! errors, and can be parsed from its own JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use config::{Limits, ParseOptions, parse_yaml_json, read_object};
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let options = ParseOptions { strict: bytes.len().is_multiple_of(2), ..ParseOptions::default() };
    let read = parse_yaml_json(bytes, "", &Limits::default());
    for diagnostic in &read.errors {
        let _ = diagnostic.to_string();
    }
    for document in &read.documents {
        let once = read_object(&document.value, &options);
        for diagnostic in &once.diagnostics {
            let _ = diagnostic.to_string();
        }
        let Some(object) = once.object else {
            continue;
        };
        if !object.kind().is_complete() {
            continue;
        }
        let meta = object.meta();
        let written = json!({
            "apiVersion": object.kind().api_version(),
            "kind": object.kind().name(),
            "metadata": { "name": &*meta.name, "namespace": &*meta.namespace },
            "spec": object.spec_json(),
        });
        let again = read_object(&written, &options);
        let same = again.object.is_some_and(|again| again.spec_json() == object.spec_json());
        assert!(same, "{written} does not read back: {:?}", again.diagnostics);
    }
});
