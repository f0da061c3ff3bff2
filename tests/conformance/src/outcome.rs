//! The results of the suite, read from its output.

use std::fmt;

/// The results of the suite.
#[derive(Default, Debug)]
pub(crate) struct Outcome {
    passed: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
    pub(crate) succeeded: bool,
}

impl Outcome {
    /// Whether all tests passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.succeeded && self.failed.is_empty()
    }

    /// Records a line of the suite's output. Shows the result of a test.
    pub(crate) fn note(&mut self, line: &str) {
        // The form that is for programs marks results, so that they are shown as soon as they are known.
        let Some(line) = line.strip_prefix('\u{16}') else { return };
        let Some((result, rest)) = line.strip_prefix("--- ").and_then(|rest| rest.split_once(": ")) else { return };
        // The tests are those one level below the Go test: `TestConformance/NAME (1.00s)`.
        let Some((name, took)) = rest.split_once('/').and_then(|(_, name)| name.split_once(' ')) else { return };
        if name.contains('/') {
            return;
        }
        eprintln!("{result} {name} {took}");
        let list = match result {
            "PASS" => &mut self.passed,
            "SKIP" => &mut self.skipped,
            _ => &mut self.failed,
        };
        list.push(name.to_owned());
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { passed, failed, skipped, .. } = self;
        write!(f, "{} passed, {} failed, {} skipped", passed.len(), failed.len(), skipped.len())?;
        failed.iter().try_for_each(|name| write!(f, "\nfailed: {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let mut outcome = Outcome::default();
        for line in [
            "\u{16}=== RUN   TestConformance/One",
            "\u{16}--- PASS: TestConformance/One (1.20s)",
            "\u{16}--- FAIL: TestConformance/Two/part (0.10s)",
            "\u{16}--- FAIL: TestConformance/Two (1.20s)",
            "\u{16}--- SKIP: TestConformance/Three (0.00s)",
            "\u{16}--- FAIL: TestConformance (30.00s)",
        ] {
            outcome.note(line);
        }
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 1 skipped\nfailed: Two");
        assert!(!outcome.has_passed());
    }
}
