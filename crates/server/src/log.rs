//! Diagnostics in the log.

use std::collections::BTreeMap;

use config::{Diagnostic, Severity};

/// The number of diagnostics with the same code that are logged together. Further ones are only counted.
const SHOWN: usize = 20;

/// Logs diagnostics at the level of their severity. Of many with the same code, only the first are logged.
pub fn log_diagnostics<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for diagnostic in diagnostics {
        let count = counts.entry(diagnostic.code).or_default();
        *count += 1;
        if *count <= SHOWN {
            log(diagnostic);
        }
    }
    for (code, count) in counts.into_iter().filter(|(_, count)| *count > SHOWN) {
        tracing::warn!(
            code,
            count = count - SHOWN,
            "more problems of this kind are not logged; `rutter validate` lists all"
        );
    }
}

fn log(diagnostic: &Diagnostic) {
    match diagnostic.severity {
        Severity::Error => tracing::error!(code = diagnostic.code, "{diagnostic}"),
        Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        Severity::Info => tracing::info!(code = diagnostic.code, "{diagnostic}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::sync::Once;

    use config::FieldPath;

    use super::*;

    thread_local! {
        /// The log of this thread, if it is kept.
        static LOG: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }

    struct ToThread;

    impl io::Write for ToThread {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LOG.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that a function logs on this thread, down to level `debug`.
    pub(crate) fn lines_of(run: impl FnOnce()) -> Vec<String> {
        static INSTALLED: Once = Once::new();
        // One for all tests: whether an event is enabled is known for the whole process.
        INSTALLED.call_once(|| {
            let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
            tracing::subscriber::set_global_default(log.with_writer(|| ToThread).finish()).expect("the only one");
        });
        LOG.set(Some(Vec::new()));
        run();
        let bytes = LOG.take().unwrap_or_default();
        String::from_utf8(bytes).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    #[test]
    fn many_problems_of_one_kind_are_folded() {
        let problem = |line, code| Diagnostic {
            file: Some("a.yaml".into()),
            line,
            column: 1,
            object: None,
            path: FieldPath::root(),
            severity: Severity::Warning,
            code,
            message: "the file defines this object twice; the first definition is used".into(),
            hint: None,
        };
        let mut problems: Vec<Diagnostic> = (0..100_000).map(|line| problem(line, "duplicate-object")).collect();
        problems.push(problem(7, "unknown-field"));
        let lines = lines_of(|| log_diagnostics(&problems));
        assert_eq!(lines.len(), SHOWN + 2, "{lines:?}");
        let text = lines.concat();
        assert!(text.contains("unknown-field") && text.contains("count=99980"), "{text}");
    }
}
