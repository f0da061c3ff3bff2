//! Plays every scenario below `data/`; one test, so that a failure lists all files that differ.

use std::path::{Path, PathBuf};

#[test]
fn scenarios() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let wanted = std::env::var("RUTTER_SCENARIO").unwrap_or_default();
    let mut files = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), &mut files);
    files.retain(|f| f.to_string_lossy().contains(&wanted));
    files.sort();
    assert!(!files.is_empty(), "no scenarios");
    let mut failed = 0;
    for file in &files {
        if let Err(error) = scenarios::run::file(file, bless) {
            failed += 1;
            eprintln!("--- {}\n{error:#}\n", file.display());
        }
    }
    assert_eq!(failed, 0, "of {} scenarios, {failed} differ", files.len());
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("scenario folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|e| e == "scenario") {
            files.push(path);
        }
    }
}
