//! Validation of regular expressions in RE2 syntax, which Envoy uses.

use std::collections::BTreeSet;

use regex_syntax::ast::{self, AssertionKind, Ast, Flag, FlagsItemKind, LiteralKind, RepetitionKind, RepetitionRange};

use crate::form::Fault;

/// Maximum length of an expression in bytes, as in Istio.
const MAX_LENGTH: usize = 1024;

/// Maximum number of repetitions, including the product of nested ones, as in RE2.
const MAX_REPEAT: u32 = 1000;

/// Maximum number of characters after repetitions are expanded. Proxies limit the program size to 32,768 instructions,
/// and each character needs at least one.
const MAX_SIZE: u32 = 32_000;

/// The reason why Envoy would reject a regular expression.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum RegexError {
    #[error("the regular expression is empty")]
    Empty,
    #[error("the regular expression is longer than {} characters", MAX_LENGTH)]
    TooLong,
    #[error("the regular expression is too large: its repetitions expand to more than {} characters", MAX_SIZE)]
    TooLarge,
    #[error("a part of the regular expression repeats more than {} times", MAX_REPEAT)]
    TooManyRepetitions,
    #[error("not a regular expression in RE2 syntax: {0}")]
    Syntax(ast::ErrorKind),
    #[error("not a regular expression in RE2 syntax: a repetition operator must not be repeated; use parentheses")]
    RepeatedOperator,
    #[error("not a regular expression in RE2 syntax: unknown assertion")]
    UnknownAssertion,
    #[error("not a regular expression in RE2 syntax: unknown flag")]
    UnknownFlag,
    #[error("not a regular expression in RE2 syntax: {0} is not a character class")]
    UnknownClass(String),
    #[error("code points above \\xff are not supported in escapes of regular expressions; write the character itself")]
    CodePoint,
}

/// A regular expression, which must not be empty.
pub(crate) fn regex(text: &str) -> Result<(), Fault> {
    check_regex(text).map_err(|error| Fault::new("bad-regex", error.to_string()))
}

/// Reports why Envoy would reject a regular expression.
pub(crate) fn check_regex(regex: &str) -> Result<(), RegexError> {
    if regex.is_empty() {
        return Err(RegexError::Empty);
    }
    if regex.len() > MAX_LENGTH {
        return Err(RegexError::TooLong);
    }
    // Check the syntax only: building the automaton of a hostile expression would take too long.
    let text = translated(regex);
    let parsed = ast::parse::ParserBuilder::new().octal(true).build().parse(&text);
    let tree = parsed.map_err(|error| RegexError::Syntax(error.kind().clone()))?;
    let re2 = Re2 { repetitions: Vec::new(), size: 0, classes: BTreeSet::new(), text: &text };
    ast::visit(&tree, re2)
}

/// Visitor that finds syntax that the parser accepts and RE2 does not.
struct Re2<'t> {
    /// Products of the bounds of the enclosing repetitions.
    repetitions: Vec<u32>,
    /// Number of characters and classes after repetitions are expanded.
    size: u32,
    /// Unicode classes that are already checked.
    classes: BTreeSet<&'t str>,
    text: &'t str,
}

impl ast::Visitor for Re2<'_> {
    type Output = ();
    type Err = RegexError;

    fn finish(self) -> Result<(), RegexError> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), RegexError> {
        match tree {
            Ast::Repetition(repetition) if matches!(*repetition.ast, Ast::Repetition(_)) => {
                Err(RegexError::RepeatedOperator)
            }
            Ast::Repetition(repetition) => self.repeat(&repetition.op.kind),
            Ast::Literal(literal) if by_number(literal) => Err(RegexError::CodePoint),
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
                _ => Err(RegexError::UnknownAssertion),
            },
            _ => Ok(()),
        }
    }

    fn visit_post(&mut self, tree: &Ast) -> Result<(), RegexError> {
        if matches!(tree, Ast::Repetition(_)) {
            self.repetitions.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), RegexError> {
        match item {
            ast::ClassSetItem::Unicode(class) => self.unicode_class(class.span),
            ast::ClassSetItem::Literal(literal) if by_number(literal) => Err(RegexError::CodePoint),
            ast::ClassSetItem::Range(range) if by_number(&range.start) || by_number(&range.end) => {
                Err(RegexError::CodePoint)
            }
            _ => Ok(()),
        }
    }
}

impl Re2<'_> {
    /// Adds a character or class that compiles to this many instructions.
    fn grow(&mut self, instructions: u32) -> Result<(), RegexError> {
        let times = self.repetitions.last().copied().unwrap_or(1);
        self.size = self.size.saturating_add(times.saturating_mul(instructions));
        match self.size {
            ..=MAX_SIZE => Ok(()),
            _ => Err(RegexError::TooLarge),
        }
    }

    fn repeat(&mut self, kind: &RepetitionKind) -> Result<(), RegexError> {
        let times = match kind {
            RepetitionKind::Range(RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n)) => *n,
            RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => *most,
            _ => 1,
        };
        let times = times.max(1).saturating_mul(self.repetitions.last().copied().unwrap_or(1));
        self.repetitions.push(times);
        if times > MAX_REPEAT {
            return Err(RegexError::TooManyRepetitions);
        }
        Ok(())
    }

    /// Checks a class such as `\pL` by name.
    fn unicode_class(&mut self, span: ast::Span) -> Result<(), RegexError> {
        let name = self.text.get(span.start.offset..span.end.offset).unwrap_or_default();
        if self.classes.insert(name) && regex_syntax::parse(name).is_err() {
            return Err(RegexError::UnknownClass(name.to_owned()));
        }
        Ok(())
    }
}

/// Whether a character is written by its code point and is above 0xff. Envoy matches bytes and rejects it.
fn by_number(literal: &ast::Literal) -> bool {
    let written = matches!(literal.kind, LiteralKind::HexBrace(_) | LiteralKind::HexFixed(_) | LiteralKind::Octal);
    written && literal.c > '\u{ff}'
}

fn known_flags(flags: &ast::Flags) -> Result<(), RegexError> {
    let known = |flag: &Flag| {
        matches!(flag, Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed)
    };
    let all_known = flags.items.iter().all(|item| match &item.kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => known(flag),
    });
    if all_known { Ok(()) } else { Err(RegexError::UnknownFlag) }
}

/// Translates an expression from RE2's syntax to the parser's: within brackets, `[`, `&` and `~` are literal characters
/// in RE2, and `\Q…\E` quotes text.
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
        // Escapes and named classes such as [:alpha:] are copied as a whole.
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

/// Position relative to a bracket expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    /// Directly after `[`, where `^` and `]` have a special meaning.
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
            assert_eq!(check_regex(regex), Ok(()), "{regex}");
        }
    }

    #[test]
    fn rejected_by_re2() {
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
            assert!(check_regex(regex).is_err(), "{regex}");
        }
    }
}
