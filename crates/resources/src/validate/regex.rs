//! Regular expressions in the syntax of RE2, which Envoy uses.

use regex_syntax::hir::{Hir, HirKind};

use crate::diagnostic::FieldPath;
use crate::validate::Report;

/// The longest expression, in bytes; Istio's bound.
const MAX_LENGTH: usize = 1024;

/// The most repetitions, also of nested ones multiplied; RE2's bound.
const MAX_REPEAT: u32 = 1000;

/// A regular expression that is not empty.
pub(super) fn check(r: &mut Report, path: &FieldPath, regex: &str) {
    if let Some(problem) = problem(regex) {
        r.error(path, "bad-regex", problem);
    }
}

fn problem(regex: &str) -> Option<String> {
    if regex.is_empty() {
        return Some("the regular expression is empty".to_owned());
    }
    if regex.len() > MAX_LENGTH {
        return Some(format!("the regular expression is longer than {MAX_LENGTH} characters"));
    }
    let parsed = regex_syntax::ParserBuilder::new().octal(true).utf8(false).build().parse(&translated(regex));
    match parsed {
        Err(error) => Some(format!("not a regular expression in RE2 syntax: {}", reason(&error))),
        Ok(hir) if repetitions(&hir) > MAX_REPEAT => {
            Some(format!("a part of the regular expression repeats more than {MAX_REPEAT} times"))
        }
        Ok(_) => None,
    }
}

/// The reason alone: the library's own message draws the expression over several lines.
fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "it cannot be understood".to_owned(),
    }
}

/// The product of the bounds of nested repetitions, where it is largest.
fn repetitions(hir: &Hir) -> u32 {
    match hir.kind() {
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            times.saturating_mul(repetitions(&repetition.sub))
        }
        HirKind::Capture(capture) => repetitions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(repetitions).max().unwrap_or(1),
        _ => 1,
    }
}

/// The expression in the parser's syntax, where that differs from RE2's: inside of brackets `[`, `&` and `~`
/// are plain characters to RE2, and `\Q…\E` quotes.
fn translated(regex: &str) -> String {
    let mut out = String::with_capacity(regex.len() + 8);
    let mut rest = regex;
    let mut class = Class::Outside;
    while let Some(c) = rest.chars().next() {
        if class == Class::Outside && let Some(quoted) = rest.strip_prefix("\\Q") {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex_syntax::escape(text));
            rest = after;
            continue;
        }
        // An escape, and a class of classes such as [:alpha:], are taken whole.
        let named = (class != Class::Outside && rest.starts_with("[:")).then(|| rest.find(":]")).flatten();
        let length = match c {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => named.map_or(c.len_utf8(), |end| end + 2),
        };
        let (token, after) = rest.split_at(length);
        class = class.after(token);
        if class == Class::Inside && matches!(token, "[" | "&" | "~") {
            out.push('\\');
        }
        out.push_str(token);
        rest = after;
    }
    out
}

/// Where in a bracket expression the translation stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    /// Right after `[`; a `^` or a `]` here has a meaning of its own.
    Opened,
    /// After `[^`.
    Negated,
    Inside,
}

impl Class {
    fn after(self, token: &str) -> Class {
        match (self, token) {
            (Class::Outside, "[") => Class::Opened,
            (Class::Outside, _) => Class::Outside,
            (Class::Opened, "^") => Class::Negated,
            (Class::Inside, "]") => Class::Outside,
            _ => Class::Inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_by_re2() {
        for regex in [
            "^/api/v[0-9]+/.*$",
            "(?i)abc",
            "[[]",
            "[^[a]",
            "[]a]",
            "[a&&b]",
            "[[:alpha:]_]+",
            "\\Qa.b(\\E.*",
            "\\Q[",
            "\\d{1,3}\\.\\pL",
            "(?P<name>x)",
            "a{1000}",
            "[~~a]",
            "\\/",
        ] {
            assert_eq!(problem(regex), None, "{regex}");
        }
    }

    #[test]
    fn refused_by_re2() {
        let long = "a".repeat(1025);
        for regex in ["", "(", "[a", "a**b(", "(?=a)", "(a)\\1(?!b)", "a{1001}", "(a{100}){100}", "\\", "[\\", "*", &long] {
            assert!(problem(regex).is_some(), "{regex}");
        }
    }
}
