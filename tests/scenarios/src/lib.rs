//! Scenario tests: objects, proxies, edits and the expected answers in one file.
//!
//! A scenario file is plain text in sections (see [`format`]). The [`run`] module plays it against a [`world::World`]
//! incrementally, and compares the state with a recomputation after every step. `RUTTER_BLESS=1` rewrites the answers;
//! review the diff.
//!
//! [`judge`] passes all resulting resources to a real Envoy.
//!
//! The same files are also played with their objects in a [`homes::Home`]: files, the embedded store, and APIs.

pub mod format;
pub mod homes;
pub mod judge;
mod keys;
pub mod project;
pub mod proxy;
pub mod random;
pub mod run;
pub mod standings;
pub mod state;

use std::path::{Path, PathBuf};

/// All scenario files whose path contains the text in `RUTTER_SCENARIO`, in order.
///
/// # Errors
/// A directory cannot be listed, or there are no files.
pub fn files() -> anyhow::Result<Vec<PathBuf>> {
    let wanted = std::env::var("RUTTER_SCENARIO").unwrap_or_default();
    let mut files = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), &mut files)?;
    files.retain(|file| file.to_string_lossy().contains(&wanted));
    files.sort();
    anyhow::ensure!(!files.is_empty(), "no scenarios");
    Ok(files)
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "scenario") {
            files.push(path);
        }
    }
    Ok(())
}

/// Plays all scenarios in a home. Prints how many were played, and why others were left out.
///
/// # Errors
/// All differences.
pub fn all_in(home: &mut dyn homes::Home) -> anyhow::Result<()> {
    let files = files()?;
    let (mut played, mut left_out, mut failed) = (0, 0, 0);
    for file in &files {
        match run::file_in(home, file) {
            Ok(None) => played += 1,
            Ok(Some(reason)) => {
                left_out += 1;
                eprintln!("left out: {}: {reason}", file.display());
            }
            Err(error) => {
                failed += 1;
                eprintln!("--- {}\n{error:#}\n", file.display());
            }
        }
    }
    eprintln!("{}: {played} as expected, {failed} differ, {left_out} left out", home.name());
    anyhow::ensure!(failed == 0, "{}: of {} scenarios, {failed} differ", home.name(), files.len());
    Ok(())
}
