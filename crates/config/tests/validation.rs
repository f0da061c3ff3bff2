//! Golden tests of validation: hundreds of cases, one per line, each followed by its diagnostics.
//!
//! A line `== KIND SPEC` starts a family of cases. `SPEC` is a `spec` in YAML flow style, in which `$` is replaced by each
//! case that follows. Each case is followed by indented lines: its diagnostics, or `ok`. `RUTTER_BLESS=1` rewrites them;
//! review the diff. Warnings about fields that have no effect yet, and the warning about every EnvoyFilter, are omitted.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use config::{Kind, ParseOptions, effects, parse_documents};

#[test]
fn reports_expected_diagnostics() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/validation");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let (mut counts, mut failures) = (BTreeMap::new(), Vec::new());
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let answered = answer(&text, &mut counts);
        if answered != text {
            match bless {
                true => fs::write(file, answered).unwrap(),
                false => failures.push(difference(file, &text, &answered)),
            }
        }
    }
    assert!(failures.is_empty(), "{}\n(RUTTER_BLESS=1 accepts)", failures.join("\n"));
    let (good, bad) = counts.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    assert!(good >= 100 && bad >= 250 && good + bad >= 400, "{good} valid and {bad} invalid: {counts:?}");
    assert_eq!(counts.len(), 9, "each networking kind must have cases: {counts:?}");
}

/// Rewrites the diagnostics of every case, and counts valid and invalid cases by kind.
fn answer(text: &str, counts: &mut BTreeMap<Kind, (usize, usize)>) -> String {
    let mut out = String::new();
    let mut family = None;
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        let _ = writeln!(out, "{line}");
        if let Some(heading) = line.strip_prefix("== ") {
            let (kind, spec) = heading.split_once(' ').unwrap();
            let kind = Kind::find("networking.istio.io", kind).unwrap();
            assert!(spec.contains('$'), "{line}");
            family = Some((kind, spec));
        } else if !line.is_empty() && !line.starts_with('#') {
            let (kind, spec) = family.unwrap();
            let found = diagnostics(kind, &spec.replace('$', line));
            let count = counts.entry(kind).or_default();
            match found.iter().any(|line| line.starts_with("error")) {
                true => count.1 += 1,
                false => count.0 += 1,
            }
            found.iter().for_each(|line| {
                let _ = writeln!(out, "  {line}");
            });
        }
    }
    out
}

fn diagnostics(kind: Kind, spec: &str) -> Vec<String> {
    let (version, name) = (kind.api_version(), kind.name());
    let text = format!("apiVersion: {version}\nkind: {name}\nmetadata: {{name: a}}\nspec: {spec}\n");
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    let mut lines: Vec<String> = Vec::new();
    for diagnostic in parsed
        .diagnostics
        .iter()
        .filter(|one| ![effects::CODE, effects::ELSEWHERE_CODE, "unstable"].contains(&one.code))
    {
        let path = diagnostic.path.to_string();
        assert!(!diagnostic.message.is_empty() && !diagnostic.message.ends_with('.'), "{}", diagnostic.message);
        let hint = diagnostic.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        lines.push(format!("{} {path}: {} [{}]{hint}", diagnostic.severity, diagnostic.message, diagnostic.code));
    }
    if lines.is_empty() {
        lines.push("ok".to_owned());
    }
    lines
}

/// The first line that differs, with its case.
fn difference(file: &Path, old: &str, new: &str) -> String {
    let pair = old.lines().zip(new.lines()).position(|(a, b)| a != b).unwrap_or_default();
    let case = new.lines().take(pair + 1).filter(|line| !line.starts_with("  ")).last().unwrap_or_default();
    let at = |text: &str| text.lines().nth(pair).unwrap_or_default().to_owned();
    format!("{}: {case}\nexpected: {}\nfound:    {}", file.display(), at(old), at(new))
}
