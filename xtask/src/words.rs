//! Phrases that documentation and module comments must not use, each with the term to use instead; and their spelling.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::lint::rust_files;
use crate::run::root;
use crate::spelling::Spelling;

/// Phrases in lower case, and their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("of whom", "say what the item is"),
    ("by whom", "name the actor"),
    ("derived anew", "re-derived"),
    ("sent singly", "sent one by one (VHDS, LEDS)"),
    ("is told of", "is notified of, receives"),
    ("are told of", "are notified of, receive"),
    ("have heard of", "have received"),
    ("has heard of", "has received"),
    ("goes before", "takes precedence over"),
    ("who runs it", "acknowledged"),
    ("that which", "what"),
];
/// Words that must not open a heading comment.
const OPENERS: &[&str] = &["Of ", "Who ", "Whom ", "Whose ", "Those ", "By what ", "That which "];

/// Checks the Markdown pages and the `//!` comments of the crates. With `--accept`, accepts all words that they have.
///
/// # Errors
/// Names every file, line and phrase or word that was found.
pub(crate) fn check(arguments: &[String]) -> Result<()> {
    let accept = match arguments {
        [] => false,
        [flag] if flag == "--accept" => true,
        _ => bail!("`words` takes nothing but --accept"),
    };
    let mut found = Vec::new();
    let mut spelling = Spelling::read()?;
    for page in pages()? {
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        collect(&name(&page), text.lines().enumerate(), &mut found);
        spelling.check(&name(&page), text.lines().enumerate());
    }
    for file in rust_files(&root().join("crates"))? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let comments = text.lines().enumerate().filter_map(|(at, line)| Some((at, line.strip_prefix("//! ")?)));
        collect(&name(&file), comments.clone(), &mut found);
        spelling.check(&name(&file), comments);
    }
    spelling.finish(accept)?;
    ensure!(found.is_empty(), "{} phrases to replace:\n{}", found.len(), found.join("\n"));
    Ok(())
}

fn collect<'a>(file: &str, lines: impl Iterator<Item = (usize, &'a str)>, found: &mut Vec<String>) {
    for (at, line) in lines {
        let lower = line.to_lowercase();
        for (phrase, instead) in REPLACED.iter().filter(|(phrase, _)| lower.contains(phrase)) {
            found.push(format!("    {file}:{}: \"{phrase}\": use {instead}", at + 1));
        }
        if at == 0
            && let Some(opener) = OPENERS.iter().find(|opener| line.starts_with(**opener))
        {
            found.push(format!("    {file}:1: opens with \"{}\": say what it is", opener.trim()));
        }
    }
}

fn name(path: &std::path::Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The hand-written Markdown files at the top level and below `docs`. The changelog is exempt, since it may quote old
/// names.
fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    let mut open = vec![root().join("docs")];
    pages.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|page| root().join(page)));
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_with_file_and_line() {
        let mut found = Vec::new();
        collect("a.md", "fine\nIt is Derived anew.".lines().enumerate(), &mut found);
        assert_eq!(found, ["    a.md:2: \"derived anew\": use re-derived"]);
    }

    #[test]
    fn openers_count_in_the_first_line_only() {
        let mut found = Vec::new();
        collect("a.rs", "Those who serve.\nThose are fine.".lines().enumerate(), &mut found);
        assert_eq!(found, ["    a.rs:1: opens with \"Those\": say what it is"]);
    }
}
