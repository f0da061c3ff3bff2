//! Colors, and removal of control characters.

/// A color or weight.
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
    /// The text in this color, if `on`.
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

/// The color of a state such as `True` or `Failed`; none for other words.
pub(crate) fn of_state(word: &str) -> Option<Paint> {
    match word {
        "True" | "Ready" | "Running" | "Active" | "Bound" | "Accepted" | "Programmed" | "Completed" => {
            Some(Paint::Green)
        }
        "False" | "Error" | "Failed" | "Rejected" | "Invalid" | "CrashLoopBackOff" => Some(Paint::Red),
        "Unknown" | "Pending" | "Terminating" | "Warning" => Some(Paint::Yellow),
        "<none>" | "<unknown>" => Some(Paint::Dim),
        _ => None,
    }
}

/// Removes control characters, which could manipulate the terminal: names and messages are untrusted. Line breaks and
/// tabs stay if `lines`, else they become spaces.
pub(crate) fn printable(text: &str, lines: bool) -> String {
    let sanitize = |c: char| match c {
        '\n' | '\t' if lines => Some(c),
        '\n' | '\t' => Some(' '),
        '\r' => None,
        c if c.is_control() => Some('\u{fffd}'),
        // Bidirectional control characters.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some('\u{fffd}'),
        c => Some(c),
    };
    text.chars().filter_map(sanitize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{202e}d", false), "a\u{fffd}[2Jb c\u{fffd}d");
        assert_eq!(printable("a\n\tb", true), "a\n\tb");
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
