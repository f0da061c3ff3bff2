//! Checks the table of ARCHITECTURE.md: dependencies point down, and the middle layers are pure.
//!
//! It reads the dependencies of `cargo metadata` and the sources of the pure crates. A crate that is missing in the
//! table fails the check.

mod edges;
mod purity;
mod table;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, root, say};

/// Checks the workspace. Fails with every dependency and call that the table does not allow.
pub(crate) fn check() -> Result<()> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata = serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?;
    let mut faults = edges::faults(&metadata)?;
    let crates = edges::count(&metadata);
    faults.extend(purity::faults(&root())?);
    if !faults.is_empty() {
        bail!("layers: {} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    say(&format!("layers: {crates} crates, all dependencies point down, and the middle does no I/O"));
    Ok(())
}
