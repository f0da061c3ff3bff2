//! Colours, and text that cannot play tricks on a terminal.

/// A colour or weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paint {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Paint {
    /// The text in this colour, if `on`.
    pub(crate) fn apply(self, text: &str, on: bool) -> String {
        let code = match self {
            _ if !on || text.is_empty() => return text.to_owned(),
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Red => 31,
            Paint::Green => 32,
            Paint::Yellow => 33,
            Paint::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The colour of a word that says how something is; none for other words.
pub(crate) fn of_state(word: &str) -> Option<Paint> {
    match word {
        "True" | "Ready" | "Running" | "Active" | "Bound" | "Accepted" | "Programmed" | "Completed" => {
            Some(Paint::Green)
        }
        "False" | "Error" | "Failed" | "Refused" | "Invalid" | "CrashLoopBackOff" => Some(Paint::Red),
        "Unknown" | "Pending" | "Terminating" | "Warning" => Some(Paint::Yellow),
        "<none>" | "<unknown>" => Some(Paint::Dim),
        _ => None,
    }
}

/// The text without control characters, which could move a cursor or rename a window: names and messages are other
/// people's. Line breaks and tabs stay if `lines`, and become spaces if not.
pub(crate) fn printable(text: &str, lines: bool) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' if lines => Some(c),
        '\n' | '\t' => Some(' '),
        '\r' => None,
        c if c.is_control() => Some('\u{fffd}'),
        // Marks that turn the direction of text around.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some('\u{fffd}'),
        c => Some(c),
    };
    text.chars().filter_map(harmless).collect()
}

/// The same for a line that this program has coloured itself: escapes that begin colours stay.
pub(crate) fn printable_paint(line: &str) -> String {
    let parts: Vec<String> = line.split('\x1b').map(|part| printable(part, true)).collect();
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            let code = part
                .strip_prefix('[')
                .and_then(|rest| rest.split_once('m'))
                .map(|(code, _)| code);
            let own = code.is_some_and(|code| matches!(code, "0" | "1" | "2" | "31" | "32" | "33" | "36"));
            out.push(if own { '\x1b' } else { '\u{fffd}' });
        }
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{202e}d", false), "a\u{fffd}[2Jb c\u{fffd}d");
        assert_eq!(printable("a\n\tb", true), "a\n\tb");
        assert_eq!(printable_paint("\x1b[1ma\x1b[0m\x1b[2J"), "\x1b[1ma\x1b[0m\u{fffd}[2J");
    }

    #[test]
    fn colours_are_left_out_when_off() {
        assert_eq!(Paint::Red.apply("x", false), "x");
        assert_eq!(Paint::Red.apply("x", true), "\x1b[31mx\x1b[0m");
        assert_eq!(Paint::Red.apply("", true), "");
        assert_eq!(of_state("True"), Some(Paint::Green));
        assert_eq!(of_state("reviews"), None);
    }
}
