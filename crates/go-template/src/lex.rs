//! Splits templates into text and actions, and actions into words.

use crate::Problem;
use serde_json::{Number, Value};

/// An error with its line, starting at 1.
pub(crate) type LineError = (usize, Problem);

/// A part of a template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Piece {
    /// Literal text.
    Text(String),
    /// The content of an action, and its line.
    Action(Vec<Word>, usize),
}

/// A word of an action.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Word {
    /// A keyword or function name.
    Name(String),
    /// `.`, or the fields of `.a.b`.
    Dot(Vec<String>),
    /// `$` (empty name), `$x`, `$x.a`.
    Variable(String, Vec<String>),
    /// A literal.
    Literal(Value),
    /// `(`.
    Open,
    /// `)`, with the fields that follow.
    Close(Vec<String>),
    /// `|`, `,`, `:=` or `=`.
    Sign(&'static str),
}

/// Splits a template.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece>, LineError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trim = false;
    loop {
        let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
        let (before, action) = match rest.split_once("{{") {
            Some((before, action)) => (before, Some(action)),
            None => (rest, None),
        };
        let mut plain = if trim { before.trim_start() } else { before };
        let Some(action) = action else {
            push_text(&mut pieces, plain);
            return Ok(pieces);
        };
        let line = line + before.matches('\n').count();
        let inside = match action.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(inside) => {
                plain = plain.trim_end();
                inside
            }
            None => action,
        };
        push_text(&mut pieces, plain);
        let end = end_of(inside).ok_or((line, Problem::from("an action is not closed by `}}`")))?;
        rest = &inside[end + 2..];
        let mut inside = &inside[..end];
        trim = inside.ends_with('-') && inside[..inside.len() - 1].ends_with(char::is_whitespace);
        if trim {
            inside = &inside[..inside.len() - 1];
        }
        if !inside.trim_start().starts_with("/*") {
            pieces.push(Piece::Action(words(inside).map_err(|message| (line, message))?, line));
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// The end of an action, ignoring braces in strings and comments.
fn end_of(inside: &str) -> Option<usize> {
    let comment = inside.trim_start();
    if comment.starts_with("/*") {
        let from = inside.find("*/")? + 2;
        return inside[from..].find("}}").map(|end| from + end);
    }
    let bytes = inside.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            quote @ (b'"' | b'`') => {
                at += 1;
                while *bytes.get(at)? != quote {
                    at += if bytes[at] == b'\\' && quote == b'"' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn words(inside: &str) -> Result<Vec<Word>, Problem> {
    let mut words = Vec::new();
    let mut rest = inside.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '(' => (Word::Open, &rest[1..]),
            ')' => {
                let (fields, after) = fields(&rest[1..]);
                (Word::Close(fields), after)
            }
            '|' => (Word::Sign("|"), &rest[1..]),
            ',' => (Word::Sign(","), &rest[1..]),
            '=' => (Word::Sign("="), &rest[1..]),
            ':' if rest.starts_with(":=") => (Word::Sign(":="), &rest[2..]),
            '"' | '`' => text_literal(rest)?,
            '.' => {
                let (fields, after) = fields(rest);
                (Word::Dot(fields.clone()), if fields.is_empty() { &rest[1..] } else { after })
            }
            '$' => {
                let (name, after) = name(&rest[1..]);
                let (fields, after) = fields(after);
                (Word::Variable(name.to_owned(), fields), after)
            }
            c if c.is_ascii_digit() || c == '-' || c == '+' => number(rest)?,
            c if c.is_alphabetic() || c == '_' => {
                let (name, after) = name(rest);
                let word = match name {
                    "true" => Word::Literal(true.into()),
                    "false" => Word::Literal(false.into()),
                    "nil" => Word::Literal(Value::Null),
                    name => Word::Name(name.to_owned()),
                };
                (word, after)
            }
            other => return Err(format!("`{other}` is not allowed in an action").into()),
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

/// Parses `.a.b` at the start of a text.
fn fields(mut text: &str) -> (Vec<String>, &str) {
    let mut fields = Vec::new();
    while let Some(after) = text.strip_prefix('.') {
        let (field, rest) = name(after);
        if field.is_empty() {
            break;
        }
        fields.push(field.to_owned());
        text = rest;
    }
    (fields, text)
}

fn number(text: &str) -> Result<(Word, &str), Problem> {
    let end = text
        .char_indices()
        .skip(1)
        .find(|(_, c)| !c.is_ascii_alphanumeric() && *c != '.')
        .map_or(text.len(), |(at, _)| at);
    let (number, after) = text.split_at(end);
    let value = match number.parse::<i64>() {
        Ok(whole) => Some(Number::from(whole)),
        Err(_) => number.parse::<f64>().ok().and_then(Number::from_f64),
    };
    let value = value.ok_or_else(|| format!("`{number}` is not a number"))?;
    Ok((Word::Literal(Value::Number(value)), after))
}

/// Parses a quoted string. [`end_of`] has checked that it is closed.
fn text_literal(text: &str) -> Result<(Word, &str), Problem> {
    let not_closed = || Problem::from("a string is not closed");
    if let Some(raw) = text.strip_prefix('`') {
        let (raw, after) = raw.split_once('`').ok_or_else(not_closed)?;
        return Ok((Word::Literal(raw.into()), after));
    }
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Word::Literal(out.into()), &text[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(same @ ('"' | '\\' | '\'')) => out.push(same),
                other => return Err(format!("`\\{}` is not a valid escape", other.unwrap_or(' ')).into()),
            },
            c => out.push(c),
        }
    }
    Err(not_closed())
}
