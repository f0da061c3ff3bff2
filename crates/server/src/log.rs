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
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use config::FieldPath;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
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
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || log_diagnostics(&problems));
        let text = String::from_utf8(lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), SHOWN + 2, "{text}");
        assert!(text.contains("unknown-field") && text.contains("count=99980"), "{text}");
    }
}
