//! Generated reference pages.

use std::path::PathBuf;

/// Compares a page below `docs/reference` with its generated text. If `RUTTER_UPDATE_DOCS` is set, as by
/// `cargo xtask docs`, the page is written first.
pub(super) fn check(name: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("docs can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == text, "{} differs from the declarations; run `cargo xtask docs`", path.display());
}

/// The directory of the workspace.
pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
