//! Renders a diagnostic with its source line and a caret.

use config::{Diagnostic, Severity};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::style::{Paint, printable};

/// Maximum width of the source line, in columns.
const WIDEST: usize = 110;

/// Renders a diagnostic:
///
/// ```text
/// error: VirtualService default/a: spec.http[0].timeout: `soon` is not a duration [bad-value]
///   --> mesh.yaml:7:5
///    |
///  7 |   - timeout: soon
///    |     ^
///    = hint: write `10s`
/// ```
pub(crate) fn render(diagnostic: &Diagnostic, bytes: &[u8], color: bool) -> String {
    let paint = match diagnostic.severity {
        Severity::Error => Paint::Red,
        Severity::Warning => Paint::Yellow,
        Severity::Info => Paint::Cyan,
    };
    let mut about = String::new();
    if let Some(object) = &diagnostic.object {
        about.push_str(&format!("{object}: "));
    }
    if !diagnostic.path.is_empty() {
        about.push_str(&format!("{}: ", diagnostic.path));
    }
    let code = match diagnostic.code {
        "" => String::new(),
        code => format!(" [{code}]"),
    };
    let message = printable(&format!("{about}{}{code}", diagnostic.message), false);
    let mut out = format!("{}: {message}", paint.apply(diagnostic.severity.name(), color));
    let number = diagnostic.line.to_string();
    let margin = " ".repeat(number.len());
    if let Some(file) = &diagnostic.file {
        let place = match diagnostic.line {
            0 => String::new(),
            line => format!(":{line}:{}", diagnostic.column),
        };
        out.push_str(&format!("\n{margin}{} {}{place}", Paint::Dim.apply("-->", color), printable(file, false)));
    }
    if let Some((line, caret)) = line_of(bytes, diagnostic.line, diagnostic.column) {
        let bar = Paint::Dim.apply("|", color);
        let number = Paint::Dim.apply(&number, color);
        let caret = format!("{}{}", " ".repeat(caret), paint.apply("^", color));
        out.push_str(&format!("\n{margin} {bar}\n{number} {bar} {line}\n{margin} {bar} {caret}"));
    }
    if let Some(hint) = &diagnostic.hint {
        out.push_str(&format!("\n{margin} {} hint: {}", Paint::Dim.apply("=", color), printable(hint, false)));
    }
    out
}

/// A source line, shortened if needed, and the offset of the caret.
fn line_of(bytes: &[u8], line: u32, column: u32) -> Option<(String, usize)> {
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let raw = bytes.split(|byte| *byte == b'\n').nth(index)?;
    // A line may be as long as the largest file, 64 MiB.
    let end = raw.len().min(64 << 10);
    let text = printable(&String::from_utf8_lossy(&raw[..end]), false);
    if text.trim().is_empty() {
        return None;
    }
    let before = usize::try_from(column.saturating_sub(1)).ok()?;
    let chars: Vec<char> = text.chars().collect();
    let before = before.min(chars.len());
    // Shows the part of a long line around the column.
    let skip = if text.width() > WIDEST { before.saturating_sub(WIDEST / 2) } else { 0 };
    let mut shown = String::new();
    let mut caret = 0;
    if skip > 0 {
        shown.push('…');
        caret += 1;
    }
    for (at, c) in chars.iter().enumerate().skip(skip) {
        if shown.width() >= WIDEST {
            shown.push('…');
            break;
        }
        if at < before {
            caret += c.width().unwrap_or(0);
        }
        shown.push(*c);
    }
    Some((shown, caret))
}

#[cfg(test)]
mod tests {
    use config::FieldPath;
    use proptest::prelude::*;

    use super::*;

    fn diagnostic(line: u32, column: u32) -> Diagnostic {
        Diagnostic {
            file: Some("mesh.yaml".into()),
            line,
            column,
            object: None,
            path: FieldPath::spec().field("timeout"),
            severity: Severity::Error,
            code: "bad-value",
            message: "`soon` is not a duration".to_owned(),
            hint: Some("write `10s`".to_owned()),
        }
    }

    #[test]
    fn the_line_is_shown_with_a_caret() {
        let text = "kind: A\nspec:\n  timeout: soon\n";
        let expected = "\
error: spec.timeout: `soon` is not a duration [bad-value]
 --> mesh.yaml:3:3
  |
3 |   timeout: soon
  |   ^
  = hint: write `10s`";
        assert_eq!(render(&diagnostic(3, 3), text.as_bytes(), false), expected);
        assert!(render(&diagnostic(3, 3), text.as_bytes(), true).contains("\x1b[31m^\x1b[0m"));
        let without = render(&diagnostic(9, 1), text.as_bytes(), false);
        assert!(!without.contains('^') && without.contains("mesh.yaml:9:1"));
    }

    #[test]
    fn long_lines_are_shortened_around_the_column() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = render(&diagnostic(1, 501), text.as_bytes(), false);
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[4].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[3].chars().nth(caret), Some('X'));
        assert!(lines[3].width() < 130);
    }

    proptest! {
        #[test]
        fn no_position_panics(bytes in prop::collection::vec(any::<u8>(), 0..60), line in 0u32..6, column in 0u32..80) {
            let shown = render(&diagnostic(line, column), &bytes, false);
            prop_assert!(!shown.contains('\x1b'));
        }
    }
}
