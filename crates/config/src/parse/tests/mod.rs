//! Objects are the same after encoding and parsing, and no input makes parsing panic.

mod round_trip;

use std::time::Duration;

use proptest::prelude::*;

use crate::decode::{format_duration, parse_duration};
use crate::object::{Content, WithContent};
use crate::{AnyObject, Diagnostic, ParseOptions, Parsed, parse_documents, parse_mesh_config};

/// The documents of the data files, without the expected answers.
fn samples() -> Vec<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        texts.push(text.lines().filter(|l| !l.starts_with("#>")).collect::<Vec<_>>().join("\n"));
    }
    texts.sort();
    texts
}

fn parse(text: &str) -> Parsed {
    parse_documents(text.as_bytes(), "f", &ParseOptions::default())
}

#[test]
fn written_values_read_back() {
    let mut count = 0;
    for object in samples().iter().flat_map(|text| parse(text).objects) {
        let key = object.key();
        if !key.kind.is_complete() {
            continue;
        }
        let document = serde_json::json!({
            "apiVersion": key.kind.api_version(),
            "kind": key.kind.name(),
            "metadata": {"name": &*key.name, "namespace": &*key.namespace},
            "spec": object.spec_json(),
        });
        let again = parse(&document.to_string());
        let [again] = &again.objects[..] else { panic!("{key}: {:?}", again.diagnostics) };
        assert_eq!(again.spec_json(), object.spec_json(), "{key}");
        assert!(same_spec(again, &object), "{key}");
        count += 1;
    }
    assert!(count > 30, "only {count} objects");
}

/// Whether two objects have the same content.
pub(super) fn same_spec(a: &AnyObject, b: &AnyObject) -> bool {
    struct Same<'a>(&'a AnyObject, &'a AnyObject);
    impl WithContent for Same<'_> {
        type Output = bool;

        fn run<S: Content>(self) -> bool {
            S::from_any(self.0).map(|o| &o.spec) == S::from_any(self.1).map(|o| &o.spec)
        }
    }
    a.kind().with_content(Same(a, b))
}

/// Invariants for all inputs: rejected objects have a diagnostic.
fn hold(parsed: &Parsed) {
    let errors = parsed.diagnostics.iter().filter(|d| d.is_error()).count();
    assert!(parsed.refused.len() + parsed.unreadable <= errors);
    for object in &parsed.objects {
        assert!(!parsed.refused.contains(&object.key()));
    }
    let _: Vec<String> = parsed.diagnostics.iter().map(ToString::to_string).collect();
}

/// Samples with a few bytes removed, inserted or replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0..4usize, "[ -~\n]{0,4}");
    (prop::sample::select(samples()), prop::collection::vec(edit, 1..6)).prop_map(|(text, edits)| {
        let mut bytes = text.into_bytes();
        for (at, cut, put) in edits {
            let start = at.index(bytes.len().max(1)).min(bytes.len());
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, put.bytes());
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        hold(&parse_documents(&bytes, "f", &ParseOptions::default()));
    }

    #[test]
    fn damaged_files_are_read(bytes in damaged(), strict in any::<bool>()) {
        let options = ParseOptions { strict, ..ParseOptions::default() };
        hold(&parse_documents(&bytes, "f", &options));
        let (config, diagnostics) = parse_mesh_config(&bytes, "f", &options);
        prop_assert!(config.is_some() != diagnostics.iter().any(Diagnostic::is_error));
    }

    #[test]
    fn one_document_never_stops_the_others(noise in "[ -~\n]{0,60}") {
        let good = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: NAME}\nspec: {address: 10.0.0.1}\n";
        let text = format!("{}---\n{noise}\n---\n{}", good.replace("NAME", "first"), good.replace("NAME", "last"));
        let parsed = parse(&text);
        let names: Vec<&str> = parsed.objects.iter().map(|o| &*o.meta().name).collect();
        prop_assert_eq!(names, ["first", "last"]);
    }

    #[test]
    fn durations_are_written_as_they_are_read(nanos in 0..u64::MAX / 4) {
        let duration = Duration::from_nanos(nanos);
        prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
    }
}

#[test]
fn limits_hold() {
    let mut options = ParseOptions::default();
    options.limits.file_bytes = 100;
    let parsed = parse_documents(&[b'a'; 101], "f", &options);
    assert_eq!((parsed.unreadable, parsed.diagnostics[0].code), (1, "limit"));

    let mut options = ParseOptions::default();
    options.limits.document_bytes = 40;
    let parsed = parse_documents(format!("a: {}\n---\nb: 1\n", "x".repeat(50)).as_bytes(), "f", &options);
    assert_eq!(
        parsed.diagnostics.iter().map(|d| (d.line, d.code)).collect::<Vec<_>>(),
        [(1, "limit"), (3, "missing-field")]
    );

    let mut options = ParseOptions::default();
    options.limits.documents = 2;
    let parsed = parse_documents(b"---\na: 1\n---\nb: 1\n---\nc: 1\n---\nd: 1\n", "f", &options);
    assert_eq!(parsed.diagnostics.last().map(|d| (d.line, d.code)), Some((5, "limit")));
    assert_eq!(parsed.diagnostics.len(), 3);

    let mut options = ParseOptions::default();
    options.limits.problems = 5;
    let fields: String = (0..50).map(|i| format!("  x{i}: 1\n")).collect();
    let head = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: a}\nspec:\n";
    let parsed = parse_documents(format!("{head}{fields}  weight: many\n").as_bytes(), "f", &options);
    assert!(parsed.diagnostics.len() <= 6, "{:?}", parsed.diagnostics);
    assert!(parsed.diagnostics.iter().any(|d| d.path.to_string() == "spec.weight"), "errors stay");
}

#[test]
fn a_large_map_with_equal_keys_is_read_in_linear_time() {
    let keys: String = (0..50_000).map(|i| format!("  k{}: v\n", i % 49_999)).collect();
    let parsed = parse(&format!("apiVersion: v1\nkind: Pod\nmetadata:\n name: a\n labels:\n{keys}"));
    assert_eq!((parsed.refused.len(), parsed.diagnostics.len()), (1, 1));
    assert_eq!(parsed.diagnostics[0].code, "duplicate-key");
}

#[test]
fn too_many_equal_keys_make_a_document_unreadable() {
    let item =
        "- {apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: a}, spec: {address: 10.0.0.1}}\n";
    let equal = "  a: 1\n".repeat(20_000);
    let parsed = parse(&format!("kind: List\nitems:\n{item}other:\n{equal}"));
    assert_eq!((parsed.objects.len(), parsed.unreadable), (0, 1));
}

#[test]
fn many_hosts_and_rules_are_checked_in_reasonable_time() {
    // Pairwise comparison would take minutes.
    let hosts: String = (0..20_000).map(|i| format!("  - h{i}.example.com\n")).collect();
    let rules: String =
        (0..5_000).map(|i| format!("  - {{match: [{{port: {}}}], redirect: {{uri: /}}}}\n", i + 1)).collect();
    let head = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec:\n";
    let parsed = parse(&format!("{head}  hosts:\n{hosts}  http:\n{rules}"));
    assert_eq!((parsed.objects.len(), parsed.diagnostics.len()), (1, 0));
}

#[test]
fn a_bare_mesh_config_is_a_file_of_its_own() {
    let options = ParseOptions::default();
    let (config, diagnostics) = parse_mesh_config(b"", "mesh.yaml", &options);
    assert_eq!((config, diagnostics), (Some(crate::MeshConfig::default()), vec![]));
    let (config, diagnostics) = parse_mesh_config(b"connectTimeout: 3s\naccesLogFile: x\n", "mesh.yaml", &options);
    assert_eq!(config.unwrap().connect_timeout, Duration::from_secs(3));
    assert_eq!(
        diagnostics[0].to_string(),
        "mesh.yaml:2:1: warning: MeshConfig default: accesLogFile: unknown field [unknown-field] \
         (hint: did you mean accessLogFile?)"
    );
    let (config, diagnostics) = parse_mesh_config(b"proxyListenPort: 0\n", "mesh.yaml", &options);
    assert_eq!((config, diagnostics[0].path.to_string().as_str()), (None, "proxyListenPort"));
}

#[test]
fn providers_are_merged_by_name() {
    let text = b"extensionProviders: [{name: envoy, envoyFileAccessLog: {path: /a}}, {name: z, zipkin: {service: z, port: 9411}}]";
    let (config, _) = parse_mesh_config(text, "f", &ParseOptions::default());
    let names: Vec<_> = config.unwrap().extension_providers.iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["prometheus", "stackdriver", "envoy", "z"]);
}

#[test]
fn keys_that_are_there_twice_are_told_by_their_paths() {
    let text = "a: 1\n---\nspec:\n  list:\n  - x: 1\n    x: 2\n--- {\n---\n";
    let read = crate::parse_yaml_json(text.as_bytes(), "f", &crate::Limits::default());
    let [first, second] = &read.documents[..] else { panic!("{read:?}") };
    assert_eq!((first.line, &first.value), (1, &serde_json::json!({"a": 1})));
    assert_eq!(second.value, serde_json::json!({"spec": {"list": [{"x": 1}]}}));
    let [twice] = &second.duplicates[..] else { panic!("{second:?}") };
    assert_eq!((twice.path.to_string().as_str(), twice.line), ("spec.list[0].x", 6));
    assert_eq!(read.errors.len(), 1, "{:?}", read.errors);
}

#[test]
fn objects_in_json_are_read_without_a_file() {
    let mut object = serde_json::json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": { "name": "a" },
        "spec": { "hosts": ["a.example"], "ports": [{ "number": 80, "name": "http" }], "resolution": "DNS" },
    });
    let read = crate::read_object(&object, &ParseOptions::default());
    assert!(read.object.is_some_and(|o| o.meta().origin.is_none()), "{:?}", read.diagnostics);
    object["spec"]["hosts"] = serde_json::json!(7);
    let read = crate::read_object(&object, &ParseOptions::default());
    assert!(read.object.is_none());
    assert!(read.diagnostics.iter().any(|d| d.is_error() && d.path.to_string() == "spec.hosts"));
}
