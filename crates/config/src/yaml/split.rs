//! Splits a file into documents.

/// A part of a file that holds one document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    /// The first line in the file, 1-based.
    pub(crate) first_line: u32,
}

/// The documents of a file without empty ones.
///
/// A line that starts with `---` or `...`, followed by white space or the end of the line, always separates documents:
/// no YAML scalar can contain such a line. So the split is exact even if documents have syntax errors.
pub(crate) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut first_line) = (0, 1);
    let (mut offset, mut line) = (0, 1);
    for piece in text.split_inclusive('\n') {
        if let Some(marker) = marker(piece) {
            documents.push(Document { text: &text[start..offset], first_line });
            // A `---` line may have content and belongs to the next document. A `...` line is dropped.
            (start, first_line) = match marker {
                "---" => (offset, line),
                _ => (offset + piece.len(), line + 1),
            };
        }
        offset += piece.len();
        line += 1;
    }
    documents.push(Document { text: &text[start..], first_line });
    documents.retain(|d| has_content(d.text));
    documents
}

fn marker(line: &str) -> Option<&'static str> {
    let marker = ["---", "..."].into_iter().find(|m| line.starts_with(m))?;
    let rest = &line[marker.len()..];
    (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then_some(marker)
}

/// Whether there is anything but comments, directives and blank lines.
fn has_content(text: &str) -> bool {
    text.lines().any(|line| {
        let line = match marker(line) {
            Some(marker) => line[marker.len()..].trim_start(),
            None if line.starts_with('%') => "",
            None => line.trim_start(),
        };
        !line.is_empty() && !line.starts_with('#')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(&str, u32)> {
        split(text).into_iter().map(|d| (d.text, d.first_line)).collect()
    }

    #[test]
    fn cuts() {
        assert_eq!(lines("a: 1\n---\nb: 2\n"), [("a: 1\n", 1), ("---\nb: 2\n", 2)]);
        assert_eq!(
            lines("---\n---\n# only this\n--- # x\na: 1\n...\n%YAML 1.2\n---\nb: 1"),
            [("--- # x\na: 1\n", 4), ("---\nb: 1", 8)]
        );
        assert_eq!(
            lines("\u{feff}a: |\n  ---\n  x\r\n---\r\nb: 1\r\n"),
            [("a: |\n  ---\n  x\r\n", 1), ("---\r\nb: 1\r\n", 4)]
        );
        assert_eq!(lines("----\n"), [("----\n", 1)]);
        assert_eq!(lines("--- {a: 1}\n--- {b: 1}"), [("--- {a: 1}\n", 1), ("--- {b: 1}", 2)]);
        assert!(lines("# nothing\n\n---\n...\n").is_empty());
    }
}
