//! Regular expressions in the syntax of RE2, which Envoy uses.

use std::collections::BTreeSet;

use regex_syntax::ast::{self, AssertionKind, Ast, Flag, FlagsItemKind, LiteralKind, RepetitionKind, RepetitionRange};

use crate::diagnostic::FieldPath;
use crate::validate::Report;

/// The longest expression, in bytes; Istio's bound.
const MAX_LENGTH: usize = 1024;

/// The most repetitions, also of nested ones multiplied; RE2's bound.
const MAX_REPEAT: u32 = 1000;

/// The most characters, repetitions written out: proxies take programs of 32,768 instructions, one for each at least.
const MAX_SIZE: u32 = 32_000;

/// What is said of a character by its number.
const BY_NUMBER: &str =
    "Envoy does not take characters above \\xff by their number in a regular expression; write the character itself";

/// A regular expression that is not empty.
pub(super) fn check(r: &mut Report, path: &FieldPath, regex: &str) {
    if let Some(problem) = problem(regex) {
        r.error(path, "bad-regex", problem);
    }
}

/// Why a text is not a regular expression that Envoy takes.
pub(crate) fn problem(regex: &str) -> Option<String> {
    if regex.is_empty() {
        return Some("the regular expression is empty".to_owned());
    }
    if regex.len() > MAX_LENGTH {
        return Some(format!("the regular expression is longer than {MAX_LENGTH} characters"));
    }
    // Only the syntax is looked at: building the automaton of a hostile expression would take long.
    let text = translated(regex);
    let tree = match ast::parse::ParserBuilder::new().octal(true).build().parse(&text) {
        Ok(tree) => tree,
        Err(error) => return Some(format!("not a regular expression in RE2 syntax: {}", error.kind())),
    };
    let re2 = Re2 {
        repetitions: Vec::new(),
        size: 0,
        classes: BTreeSet::new(),
        text: &text,
    };
    ast::visit(&tree, re2).err()
}

/// Finds what the parser understands and RE2 does not.
struct Re2<'t> {
    /// The bounds of the repetitions around the current place, multiplied.
    repetitions: Vec<u32>,
    /// How many characters and classes there are when repetitions are written out.
    size: u32,
    /// Unicode classes that have been looked up.
    classes: BTreeSet<&'t str>,
    text: &'t str,
}

impl ast::Visitor for Re2<'_> {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), String> {
        match tree {
            Ast::Repetition(repetition) if matches!(*repetition.ast, Ast::Repetition(_)) => Err(
                "not a regular expression in RE2 syntax: a repetition cannot be repeated; put it in parentheses"
                    .to_owned(),
            ),
            Ast::Repetition(repetition) => self.repeat(&repetition.op.kind),
            Ast::Literal(literal) if by_number(literal) => Err(BY_NUMBER.to_owned()),
            Ast::Literal(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => self.grow(1),
            Ast::Dot(_) => self.grow(2),
            Ast::Flags(flags) => known_flags(&flags.flags),
            Ast::Group(group) => group.flags().map_or(Ok(()), known_flags),
            Ast::ClassUnicode(class) => self.unicode_class(class.span),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => Ok(()),
                _ => Err("not a regular expression in RE2 syntax: unknown assertion".to_owned()),
            },
            _ => Ok(()),
        }
    }

    fn visit_post(&mut self, tree: &Ast) -> Result<(), String> {
        if matches!(tree, Ast::Repetition(_)) {
            self.repetitions.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), String> {
        match item {
            ast::ClassSetItem::Unicode(class) => self.unicode_class(class.span),
            ast::ClassSetItem::Literal(literal) if by_number(literal) => Err(BY_NUMBER.to_owned()),
            ast::ClassSetItem::Range(range) if by_number(&range.start) || by_number(&range.end) => {
                Err(BY_NUMBER.to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Re2<'_> {
    /// Counts a character or class, of so many instructions.
    fn grow(&mut self, instructions: u32) -> Result<(), String> {
        let times = self.repetitions.last().copied().unwrap_or(1);
        self.size = self.size.saturating_add(times.saturating_mul(instructions));
        match self.size {
            ..=MAX_SIZE => Ok(()),
            _ => Err(format!(
                "the regular expression is too large: its repetitions stand for more than {MAX_SIZE} characters"
            )),
        }
    }

    fn repeat(&mut self, kind: &RepetitionKind) -> Result<(), String> {
        let times = match kind {
            RepetitionKind::Range(RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n)) => *n,
            RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => *most,
            _ => 1,
        };
        let times = times
            .max(1)
            .saturating_mul(self.repetitions.last().copied().unwrap_or(1));
        self.repetitions.push(times);
        if times > MAX_REPEAT {
            return Err(format!(
                "a part of the regular expression repeats more than {MAX_REPEAT} times"
            ));
        }
        Ok(())
    }

    /// Looks up a class such as `\pL` by its name.
    fn unicode_class(&mut self, span: ast::Span) -> Result<(), String> {
        let name = self.text.get(span.start.offset..span.end.offset).unwrap_or_default();
        if self.classes.insert(name) && regex_syntax::parse(name).is_err() {
            return Err(format!(
                "not a regular expression in RE2 syntax: {name} is not a class of characters"
            ));
        }
        Ok(())
    }
}

/// Whether a character is written by its number, and is none that Envoy knows: it matches bytes.
fn by_number(literal: &ast::Literal) -> bool {
    let written = matches!(
        literal.kind,
        LiteralKind::HexBrace(_) | LiteralKind::HexFixed(_) | LiteralKind::Octal
    );
    written && literal.c > '\u{ff}'
}

fn known_flags(flags: &ast::Flags) -> Result<(), String> {
    let known = |flag: &Flag| {
        matches!(
            flag,
            Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed
        )
    };
    let all_known = flags.items.iter().all(|item| match &item.kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => known(flag),
    });
    if all_known {
        Ok(())
    } else {
        Err("not a regular expression in RE2 syntax: unknown flag".to_owned())
    }
}

/// The expression in the parser's syntax, where that differs from RE2's: inside of brackets `[`, `&` and `~`
/// are plain characters to RE2, and `\Q…\E` quotes.
fn translated(regex: &str) -> String {
    let mut out = String::with_capacity(regex.len() + 8);
    let mut rest = regex;
    let mut class = Class::Outside;
    while let Some(c) = rest.chars().next() {
        if class == Class::Outside
            && let Some(quoted) = rest.strip_prefix("\\Q")
        {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex_syntax::escape(text));
            rest = after;
            continue;
        }
        // An escape, and a class of classes such as [:alpha:], are taken whole.
        let named = (class != Class::Outside && rest.starts_with("[:"))
            .then(|| rest.find(":]"))
            .flatten();
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
            "(?s:a.b)",
            "[\\p{Greek}\\pL]",
            "(?:a*)*",
            "a{2}?",
            "x{1000}x{1000}",
        ] {
            assert_eq!(problem(regex), None, "{regex}");
        }
    }

    #[test]
    fn refused_by_re2() {
        let long = "a".repeat(1025);
        for regex in [
            "",
            "(",
            "[a",
            "a**b(",
            "(?=a)",
            "(a)\\1(?!b)",
            "a{1001}",
            "(a{100}){100}",
            "\\",
            "[\\",
            "*",
            "a**",
            "a{2}*",
            "a*+",
            "\\x{10ffff}",
            "[a-\\x{100}]",
            &"x{1000}".repeat(33),
            &long,
        ] {
            assert!(problem(regex).is_some(), "{regex}");
        }
    }
}
