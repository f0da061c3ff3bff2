//! Files in, expected objects and diagnostics out: every file of `tests/data` ends in comment lines (`#> …`) that say
//! what parsing makes of it. With `RUTTER_BLESS=1` they are rewritten; the difference is the review.
//!
//! A first line `# strict` turns on the strict mode.

use std::fs;
use std::path::{Path, PathBuf};

use config::{ParseOptions, parse_documents, validate};

const MARK: &str = "#>";

#[test]
fn files_are_read_as_expected() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "the files are missing");
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let mut failures = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (input, expected) = text.split_at(text.find(MARK).unwrap_or(text.len()));
        let answer = answer(input);
        if answer == expected {
            continue;
        }
        match bless {
            true => fs::write(&file, format!("{input}{answer}")).unwrap(),
            false => failures.push(format!("{}\nexpected:\n{expected}\nfound:\n{answer}", file.display())),
        }
    }
    assert!(
        failures.is_empty(),
        "{}\n(RUTTER_BLESS=1 accepts what was found)",
        failures.join("\n")
    );
}

/// What is made of a file, as comment lines.
fn answer(input: &str) -> String {
    let strict = input.starts_with("# strict");
    let parsed = parse_documents(
        input.as_bytes(),
        "f",
        &ParseOptions {
            strict,
            ..ParseOptions::default()
        },
    );
    let mut out = String::new();
    for object in &parsed.objects {
        out += &format!("{MARK} {}\n", object.key());
        // What a file says is right is right without a file, too.
        assert!(validate(object).iter().all(|d| !d.is_error()), "{}", object.key());
    }
    for key in &parsed.refused {
        out += &format!("{MARK} refused: {key}\n");
    }
    if parsed.unreadable > 0 {
        out += &format!("{MARK} unreadable: {}\n", parsed.unreadable);
    }
    for diagnostic in &parsed.diagnostics {
        let text = diagnostic.to_string();
        out += &format!("{MARK} {}\n", text.strip_prefix("f:").unwrap_or(&text));
    }
    out
}
