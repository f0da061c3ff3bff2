//! Plays every scenario below `data/`; one test, so that a failure lists all files that differ.

#[test]
fn scenarios() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let files = scenarios::files().expect("scenario files");
    let mut failed = 0;
    for file in &files {
        if let Err(error) = scenarios::run::file(file, bless) {
            failed += 1;
            eprintln!("--- {}\n{error:#}\n", file.display());
        }
    }
    assert_eq!(failed, 0, "of {} scenarios, {failed} differ", files.len());
}
