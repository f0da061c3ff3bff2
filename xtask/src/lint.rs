//! Static checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::{cargo, run, say, works};
use crate::{layers, size, words};

/// Checks formatting, lints, layers, sizes, words and licences.
pub(crate) fn lint() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    layers::check()?;
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    size::check()?;
    words::check(&[])?;
    if works(&mut cargo(&["deny", "--version"])) {
        run(&mut cargo(&["deny", "--all-features", "check", "bans", "licenses", "sources"]))?;
    } else {
        say("cargo-deny is not installed: licences and sources of dependencies were not checked");
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
