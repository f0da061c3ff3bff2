//! What is checked without running anything.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::layers;
use crate::run::{cargo, root, run, say, works};

/// Files longer than this are listed: the house rule is "around 300".
const LONG: usize = 400;

/// Formatting, lints, layers, lengths, licences.
pub(crate) fn lint() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    layers::check()?;
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    report_long_files()?;
    if works(&mut cargo(&["deny", "--version"])) {
        run(&mut cargo(&[
            "deny",
            "--all-features",
            "check",
            "bans",
            "licenses",
            "sources",
        ]))?;
    } else {
        say("cargo-deny is not installed: licences and sources of dependencies were not checked");
    }
    Ok(())
}

fn report_long_files() -> Result<()> {
    let mut long = Vec::new();
    for dir in ["crates", "tests", "xtask"] {
        for file in rust_files(&root().join(dir))? {
            let lines = fs::read_to_string(&file)
                .with_context(|| file.display().to_string())?
                .lines()
                .count();
            if lines > LONG {
                long.push((lines, file.strip_prefix(root()).unwrap_or(&file).display().to_string()));
            }
        }
    }
    long.sort_by(|a, b| b.cmp(a));
    say(&format!("{} files are longer than {LONG} lines", long.len()));
    for (lines, file) in long {
        eprintln!("    {lines:5}  {file}");
    }
    Ok(())
}

/// All Rust files below `dir`, sorted.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry.with_context(|| dir.display().to_string())?.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
