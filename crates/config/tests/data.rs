//! Golden tests of parsing: every file in `tests/data` ends in comment lines (`#> …`) with the expected objects and
//! diagnostics. `RUTTER_BLESS=1` rewrites them; review the diff.
//!
//! A first line `# strict` enables strict mode.

use std::fs;
use std::path::{Path, PathBuf};

use config::{ParseOptions, parse_documents};

const MARK: &str = "#>";

#[test]
fn parses_files_as_expected() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "files are missing");
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
    assert!(failures.is_empty(), "{}\n(RUTTER_BLESS=1 accepts the new answers)", failures.join("\n"));
}

/// Objects and diagnostics of a file, as comment lines.
fn answer(input: &str) -> String {
    let strict = input.starts_with("# strict");
    let parsed = parse_documents(input.as_bytes(), "f", &ParseOptions { strict, ..ParseOptions::default() });
    let mut out = String::new();
    for object in &parsed.objects {
        out += &format!("{MARK} {}\n", object.key());
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
