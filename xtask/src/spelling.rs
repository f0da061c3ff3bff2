//! Spelling: the words of the documentation and of module comments are those of `vocabulary.txt`.
//!
//! A list of its own, instead of a dictionary of all English words, also finds words that are correct English and not the
//! terms of this project. `cargo xtask words --accept` adds the words that are new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::run::root;

/// The accepted words in lower case, one per line, ascending.
fn list() -> PathBuf {
    root().join("xtask/src/vocabulary.txt")
}

/// The words of texts that are not in the list.
#[derive(Default)]
pub(crate) struct Spelling {
    known: BTreeSet<String>,
    /// Unknown words, with the first place of each.
    unknown: BTreeMap<String, String>,
    /// Whether a fenced code block is open.
    fenced: bool,
}

impl Spelling {
    /// Reads the list.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(crate) fn read() -> Result<Spelling> {
        let text = fs::read_to_string(list()).context("xtask/src/vocabulary.txt")?;
        Ok(Spelling { known: text.lines().map(str::to_owned).collect(), ..Spelling::default() })
    }

    /// Checks the lines of a Markdown text.
    pub(crate) fn check<'a>(&mut self, file: &str, lines: impl Iterator<Item = (usize, &'a str)>) {
        self.fenced = false;
        for (at, line) in lines {
            if line.trim_start().starts_with("```") {
                self.fenced = !self.fenced;
            } else if !self.fenced {
                for word in words(line) {
                    if !self.known.contains(&word) {
                        let place = || format!("{file}:{}", at + 1);
                        self.unknown.entry(word).or_insert_with(place);
                    }
                }
            }
        }
    }

    /// Ends the check. With `accept`, adds the unknown words to the list.
    ///
    /// # Errors
    /// Names every unknown word with its first place.
    pub(crate) fn finish(mut self, accept: bool) -> Result<()> {
        if accept {
            self.known.extend(std::mem::take(&mut self.unknown).into_keys());
            let all: Vec<String> = self.known.into_iter().collect();
            return fs::write(list(), all.join("\n") + "\n").context("xtask/src/vocabulary.txt");
        }
        let unknown = self.unknown.iter();
        let unknown: Vec<String> = unknown.map(|(word, place)| format!("    {place}: {word}")).collect();
        ensure!(
            unknown.is_empty(),
            "{} words are not in xtask/src/vocabulary.txt; correct them, or run `cargo xtask words --accept`:\n{}",
            unknown.len(),
            unknown.join("\n")
        );
        Ok(())
    }
}

/// The words of a line in lower case, without code, addresses and names: anchors, and words with digits, underscores,
/// slashes, dots inside, or capital letters after the first.
fn words(line: &str) -> Vec<String> {
    let mut prose = String::new();
    for (at, part) in line.split('`').enumerate() {
        prose.push_str(if at % 2 == 0 { part } else { " " });
    }
    let part_of_word = |c: char| c.is_alphanumeric() || "'_/.:@#-".contains(c);
    prose
        .split(|c: char| !part_of_word(c))
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '#'))
        .filter(|word| !word.contains(['_', '/', '.', ':', '@', '#']))
        .flat_map(|word| word.split('-'))
        .map(|word| word.strip_suffix("'s").unwrap_or(word).trim_matches('\''))
        .filter(|word| word.len() > 2 && word.chars().skip(1).all(|c| c.is_lowercase() || c == '\''))
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_is_checked() {
        let line = "The [proxy's](docs/page.md) [codec](#codecs) `codeword` and kubectl's well-known VirtualServices at a.example, v2 URLs.";
        assert_eq!(words(line), ["the", "proxy", "codec", "and", "kubectl", "well", "known"]);
    }

    #[test]
    fn unknown_words_are_named_with_their_place() {
        let mut spelling = Spelling { known: ["good", "words"].map(str::to_owned).into(), ..Spelling::default() };
        let text = "good words\n```\nnot prose\n```\ngood wrods, wrods";
        spelling.check("a.md", text.lines().enumerate());
        let error = spelling.finish(false).unwrap_err().to_string();
        assert!(error.ends_with("a.md:5: wrods"), "{error}");
    }
}
