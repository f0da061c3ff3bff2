//! Plays every scenario below `data/`; one test, so that a failure lists all files that differ.

use std::collections::BTreeSet;

/// The relations that read each other, which are checked when the control plane starts.
const READS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/world/src/reads.txt");

#[test]
fn scenarios() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let files = scenarios::files().expect("scenario files");
    let (mut failed, mut reads) = (0, BTreeSet::new());
    for file in &files {
        if let Err(error) = scenarios::run::file(file, bless, &mut reads) {
            failed += 1;
            eprintln!("--- {}\n{error:#}\n", file.display());
        }
    }
    assert_eq!(failed, 0, "of {} scenarios, {failed} differ", files.len());
    let known: BTreeSet<_> = world::known_reads().collect();
    if bless {
        let lines: Vec<String> = reads.iter().map(|(reader, read)| format!("{reader} <- {read}\n")).collect();
        std::fs::write(READS, lines.concat()).expect("the file can be written");
    } else {
        let different: Vec<_> = reads.symmetric_difference(&known).collect();
        assert!(different.is_empty(), "reads that differ from {READS} (RUTTER_BLESS=1 writes it): {different:?}");
    }
}
