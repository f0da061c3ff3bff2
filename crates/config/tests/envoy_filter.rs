//! Warnings about expensive EnvoyFilters.

use config::{ParseOptions, parse_documents};

/// The codes and paths of the diagnostics of an EnvoyFilter with these patches, without that of every EnvoyFilter.
fn diagnostics(patches: &str) -> Vec<String> {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: a}}, spec: {{configPatches: [{patches}]}}}}"
    );
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    assert_eq!(parsed.objects.len(), 1, "it is not rejected");
    let found = parsed.diagnostics.iter().filter(|diagnostic| diagnostic.code != "unstable");
    found.map(|diagnostic| format!("{} {}", diagnostic.code, diagnostic.path)).collect()
}

#[test]
fn a_large_value_that_is_copied_is_costly() {
    let patch = |operation: &str, size: usize| {
        let name = "x".repeat(size);
        format!("{{applyTo: CLUSTER, patch: {{operation: {operation}, value: {{name: {name}, connectTimeout: 1s}}}}}}")
    };
    assert_eq!(diagnostics(&patch("MERGE", 60_000)), [] as [&str; 0]);
    assert_eq!(diagnostics(&patch("MERGE", 70_000)), ["costly spec.configPatches[0].patch.value"]);
    assert_eq!(diagnostics(&patch("ADD", 70_000)), [] as [&str; 0]);
}

#[test]
fn expressions_for_versions_are_limited() {
    let patch = |version: usize| {
        format!(
            "{{applyTo: CLUSTER, match: {{proxy: {{proxyVersion: '^1\\.{version}.*'}}}}, patch: {{operation: REMOVE}}}}"
        )
    };
    let patches = |versions: &mut dyn Iterator<Item = usize>| versions.map(patch).collect::<Vec<_>>().join(", ");
    assert_eq!(diagnostics(&patches(&mut (0..100).map(|n| n % 16))), [] as [&str; 0]);
    assert_eq!(
        diagnostics(&patches(&mut (0..18))),
        [16, 17].map(|n| format!("no-effect spec.configPatches[{n}].match.proxy.proxyVersion"))
    );
}
