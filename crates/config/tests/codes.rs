//! The reference page of diagnostic codes, generated from the table below. Tests compare the table with the sources and with
//! the codes that test data expect.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTRODUCTION: &str = "\
# Diagnostics

<!-- Generated from the table in crates/config/tests/codes.rs by `cargo xtask docs`; do not edit. -->

A diagnostic ends with its code in brackets, such as `[bad-value]`. Codes are stable; messages are not. An *error* rejects the object. A
*warning* reports a part of the object without the expected effect, or that was left out because of an error in it. *Info* is a hint.
`rutter validate`, the log of file sources and the status use the same codes.

| Code | Meaning | What to do |
|---|---|---|
";

/// Code, meaning, remedy.
const CODES: &[(&str, &str, &str)] = &[
    ("ambiguous", "The configuration has an effect that is easy to misread", "Write what the hint says"),
    (
        "bad-credential",
        "A Secret or ConfigMap contains an invalid certificate, key or revocation list",
        "Replace the named value; proxies keep the previous one",
    ),
    ("bad-expression", "A CEL expression does not parse", "Correct the expression"),
    ("bad-header", "A header name or value is invalid", "Correct the name, or the variable in the value"),
    (
        "bad-host",
        "A hostname is invalid, or not allowed here",
        "Use a valid DNS name, with a wildcard only where it is allowed",
    ),
    ("bad-name", "A name, namespace or label is invalid", "Use a valid Kubernetes name"),
    (
        "bad-patch",
        "The value of an EnvoyFilter patch does not fit Envoy's message",
        "Correct the field that the message names",
    ),
    ("bad-regex", "A regular expression is not valid RE2, or too large", "Correct or simplify it"),
    ("bad-script", "A Lua script does not parse", "Correct the script"),
    ("bad-value", "A value has the wrong type or format", "Write the expected type or format"),
    ("conflict", "Another object overrides a part of this one", "Merge the objects, or change the hosts or selectors"),
    ("converted", "`rutter convert` writes the field in another way", "Nothing, or what the hint says"),
    ("costly", "The configuration works but is expensive", "Reduce it"),
    ("defined-in-two-sources", "Two sources define the same object; one of them is used", "Remove one definition"),
    ("defined-twice", "Two files define the same object; the first file by name is used", "Remove one definition"),
    ("deprecated", "The field is deprecated", "Use the field that the message names"),
    ("duplicate", "A list contains an entry twice", "Remove one"),
    ("duplicate-key", "A map contains a key twice", "Remove one"),
    ("duplicate-object", "A file defines an object twice", "Remove one definition"),
    ("exclusive-fields", "Fields are set that exclude each other", "Keep one of them"),
    ("for-agents", "The field is for agents and has no effect on proxies", "Nothing, if this is intended"),
    ("forbidden", "The schema of the kind forbids the field here", "Remove it"),
    ("ignored-kind", "The mesh does not read this kind", "Remove it from the source, or ignore the message"),
    ("insecure", "The configuration reveals a secret", "Replace the secret, and use the public part"),
    ("invalid", "A value violates a rule of the kind's schema", "Correct the value as the message says"),
    (
        "large-regex",
        "A regular expression is larger than Envoy's default limit; some proxies get the rest of the routes without it",
        "Shorten it, or raise the limit of the proxies",
    ),
    ("limit", "The document exceeds a limit of size or depth", "Split it"),
    ("missing-field", "A required field is missing", "Add the field"),
    (
        "missing-reference",
        "A referenced object does not exist, or must not be used here",
        "Create the object or correct the reference",
    ),
    (
        "no-effect",
        "The field has no effect in this combination",
        "Remove it, or change the fields that the message names",
    ),
    ("not-an-object", "The document is not an object with `apiVersion` and `kind`", "Correct the document"),
    (
        "not-expressible",
        "The Gateway API does not have the field (`rutter convert`)",
        "Do what the hint says, or keep the object",
    ),
    ("not-found", "The namespace or another required object does not exist", "Create it"),
    ("not-implemented-yet", "The kind or field is validated but has no effect in this version", "Do not rely on it"),
    ("not-served", "The field has no effect over xDS; it is for another component", "Nothing, if this is intended"),
    ("not-supported", "A value is not among those that the schema lists", "Use a listed value"),
    ("out-of-range", "A number, duration or length is outside its bounds", "Use a value within the bounds"),
    ("syntax", "The text is not valid YAML or JSON", "Correct the line"),
    ("too-long", "A value is longer than the schema allows", "Shorten it"),
    ("too-many", "A list or map has more entries than the schema allows", "Split the object"),
    ("unknown-field", "The kind has no such field", "Correct the spelling"),
    ("unknown-kind", "The kind is unknown", "Correct `apiVersion` or `kind`"),
    ("unknown-version", "The kind has no such version", "Use a version that the message names"),
    ("unreachable", "A route is never used, because an earlier one matches the same requests", "Reorder or remove it"),
    (
        "unreadable-answer",
        "Another control plane sent an object that cannot be read",
        "Upgrade the older control plane",
    ),
    ("unreadable-file", "A file cannot be read", "Correct its permissions; its last content stays in effect"),
    (
        "unreadable-folder",
        "A folder of the configuration directory cannot be read",
        "Correct its permissions; its objects stay in effect",
    ),
    (
        "unstable",
        "An EnvoyFilter depends on generated configuration that may change",
        "Prefer other kinds; check it at every upgrade",
    ),
    ("unsupported", "The value is not supported here", "Use a value that the message names"),
    ("wrong-type", "A value has another type than the schema says", "Write the expected type"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of all files below a directory.
fn text(directory: &Path, out: &mut String) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text(&path, out);
        } else {
            out.push_str(&fs::read_to_string(path).unwrap_or_default());
        }
    }
}

fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (code, meaning, remedy) in CODES {
        let _ = writeln!(page, "| `{code}` | {meaning} | {remedy} |");
    }
    page
}

/// `RUTTER_UPDATE_DOCS` (which `cargo xtask docs` sets) writes the page instead of checking it.
#[test]
fn the_reference_page_of_diagnostics_is_up_to_date() {
    let path = root().join("docs/reference/diagnostics.md");
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        fs::write(&path, reference()).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == reference(), "docs/reference/diagnostics.md differs from the table; run `cargo xtask docs`");
}

#[test]
fn every_listed_code_is_used() {
    let mut sources = String::new();
    for directory in fs::read_dir(root().join("crates")).into_iter().flatten().flatten() {
        text(&directory.path().join("src"), &mut sources);
    }
    for (code, ..) in CODES {
        assert!(sources.contains(&format!("\"{code}\"")), "{code} is not used");
    }
}

#[test]
fn every_code_that_test_data_expect_is_listed() {
    let listed: BTreeSet<&str> = CODES.iter().map(|(code, ..)| *code).collect();
    let mut data = String::new();
    text(&root().join("crates/config/tests/validation"), &mut data);
    let is_code = |text: &str| text.contains('-') && text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    for piece in data.split('[').skip(1) {
        let Some((code, _)) = piece.split_once(']') else {
            continue;
        };
        // Header names and character classes of regular expressions.
        let is_other = code.starts_with("x-") || code.len() < 5;
        assert!(!is_code(code) || is_other || listed.contains(code), "{code} is not listed");
    }
}
