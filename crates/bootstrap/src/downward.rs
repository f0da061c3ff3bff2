//! The files of labels and annotations that Kubernetes mounts into pods (`/etc/istio/pod`): lines of `KEY="VALUE"`, quoted as by Go.

use std::collections::BTreeMap;

/// The largest file that is read, in bytes. Kubernetes limits annotations to 256 KiB.
const MAX_BYTES: usize = 2 << 20;

/// The reason why a file of the downward API cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DownwardError {
    /// The file is too large.
    #[error("the file is larger than 2 MiB")]
    TooLarge,
    /// A value is not a quoted string.
    #[error("line {0} is not KEY=\"VALUE\" with the quoting of Go")]
    Quoting(usize),
}

/// Parses a file of the downward API. Lines without `=` are skipped.
///
/// # Errors
/// The file is too large, or a value is not quoted correctly.
pub fn parse_downward(text: &str) -> Result<BTreeMap<String, String>, DownwardError> {
    if text.len() > MAX_BYTES {
        return Err(DownwardError::TooLarge);
    }
    let lines = text.split('\n').enumerate();
    let pairs = lines.filter_map(|(number, line)| Some((number + 1, line.split_once('=')?)));
    pairs
        .map(|(number, (key, value))| Ok((key.to_owned(), unquote(value).ok_or(DownwardError::Quoting(number))?)))
        .collect()
}

/// The text of a double-quoted string of Go.
fn unquote(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"').filter(|_| text.len() >= 2)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => escaped(&mut rest, &mut bytes)?,
            c => push(c, &mut bytes),
        }
    }
    // Escapes may give bytes that are not UTF-8; JSON cannot express them.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn push(c: char, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Reads what follows a backslash.
fn escaped(rest: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let c = rest.next()?;
    let simple = match c {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        '"' => b'"',
        'x' => u8::try_from(number(rest, None, 2, 16)?).ok()?,
        '0'..='7' => u8::try_from(number(rest, Some(c), 2, 8)?).ok()?,
        'u' | 'U' => {
            push(char::from_u32(number(rest, None, if c == 'u' { 4 } else { 8 }, 16)?)?, bytes);
            return Some(());
        }
        _ => return None,
    };
    bytes.push(simple);
    Some(())
}

fn number(rest: &mut std::str::Chars<'_>, first: Option<char>, digits: usize, base: u32) -> Option<u32> {
    let mut value = first.map_or(Some(0), |c| c.to_digit(base))?;
    for _ in 0..digits {
        value = value.checked_mul(base)?.checked_add(rest.next()?.to_digit(base)?)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_unquoted_as_in_go() {
        let text = "app=\"a\"\nq=\"x=\\\"1\\\"\\n\\u00e9\\U0001F600\\x41\\102\\\\\"\n\nno line\nempty=\"\"";
        let pairs = parse_downward(text).unwrap();
        assert_eq!(pairs["app"], "a");
        assert_eq!(pairs["q"], "x=\"1\"\n\u{e9}\u{1f600}AB\\");
        assert_eq!((pairs["empty"].as_str(), pairs.len()), ("", 3));
        for wrong in ["a=b", "a=\"", "a=\"b\"c\"", "a=\"\\q\"", "a=\"\\x4\"", "a=\"\\777\"", "a=\"\\ud800\""] {
            assert_eq!(parse_downward(&format!("x=\"y\"\n{wrong}")), Err(DownwardError::Quoting(2)), "{wrong}");
        }
        assert_eq!(parse_downward(&" ".repeat(MAX_BYTES + 1)), Err(DownwardError::TooLarge));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(?s).{0,200}") {
            let _ = parse_downward(&text);
        }

        #[test]
        fn a_quoted_text_is_read_back(text in "[ -~\u{e9}\t\n]{0,80}") {
            let escape = |c: char| match c { '"' | '\\' => format!("\\{c}"), '\n' => "\\n".to_owned(), c => c.to_string() };
            let quoted: String = text.chars().map(escape).collect();
            proptest::prop_assert_eq!(&parse_downward(&format!("k=\"{quoted}\"")).unwrap()["k"], &text);
        }
    }
}
