//! Scans the sources of the pure layers for I/O.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::table::{self, Place};
use crate::lint::rust_files;

/// The mentions of I/O, clocks or the environment in the sources of pure crates, as text. Tests and comments are
/// skipped.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, place) in table::CRATES {
        if !matches!(place, Place::Layer(layer, _) if *layer <= table::PURE_UP_TO) {
            continue;
        }
        for file in rust_files(&root.join("crates").join(name).join("src"))? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            faults.extend(mentions(&shown, &text));
        }
    }
    Ok(faults)
}

/// Whether a line contains a word that no letter follows: `UdpSocketConfig` is an Envoy message, not a socket.
fn has(line: &str, word: &str) -> bool {
    let follows = |at: usize| line[at + word.len()..].chars().next();
    let ends = |at: usize| !word.ends_with(char::is_alphanumeric) || !follows(at).is_some_and(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| ends(at))
}

fn mentions(file: &str, text: &str) -> Vec<String> {
    if file.ends_with("/tests.rs") || file.contains("/tests/") {
        return Vec::new();
    }
    // By convention, the tests of a file are its last module.
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or(line);
        for (word, what) in table::IMPURE_WORDS {
            let allowed = table::ALLOWED_WORDS.iter().any(|(f, w, _)| *f == file && w == word);
            if has(line, word) && !allowed {
                found.push(format!("{file}:{}: `{word}` brings {what} into a pure layer", number + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn a_clock_is_reported_with_its_line() {
        let found = mentions("crates/xds/src/a.rs", "fn f() {\n    let t = std::time::Instant::now();\n}\n");
        assert_eq!(found, ["crates/xds/src/a.rs:2: `Instant::now` brings a clock into a pure layer"]);
    }

    #[test]
    fn longer_identifiers_do_not_match() {
        assert!(mentions("a.rs", "use protos::UdpSocketConfig;").is_empty());
        assert_eq!(mentions("a.rs", "use std::net::{UdpSocketConfig, UdpSocket};").len(), 1);
    }

    #[test]
    fn comments_and_tests_are_skipped() {
        let text = "// std::fs is not used\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert!(mentions("crates/xds/src/a.rs", text).is_empty());
        assert!(mentions("crates/xds/src/tests.rs", "use std::fs;").is_empty());
    }

    #[test]
    fn time_as_an_argument_is_allowed() {
        assert!(mentions("crates/xds/src/a.rs", "fn f(now: std::time::Instant) {}\n").is_empty());
    }
}
