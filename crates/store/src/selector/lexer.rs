//! The lexer of label selectors.

use super::SelectorError;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A name or value. Includes `in` and `notin` where they are not operators.
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
}

impl Token<'_> {
    /// The token for error messages.
    pub(super) fn describe(token: Option<Token<'_>>) -> String {
        match token {
            None => "the end".to_owned(),
            Some(Token::Word(word)) => format!("{word:?}"),
            Some(Token::Comma) => "\",\"".to_owned(),
            Some(Token::Open) => "\"(\"".to_owned(),
            Some(Token::Close) => "\")\"".to_owned(),
            Some(Token::Not) => "\"!\"".to_owned(),
            Some(Token::Equal) => "\"=\"".to_owned(),
            Some(Token::NotEqual) => "\"!=\"".to_owned(),
            Some(Token::Greater) => "\">\"".to_owned(),
            Some(Token::Less) => "\"<\"".to_owned(),
        }
    }
}

/// Splits a selector into tokens.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// The start of the last token.
    began: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, began: 0 }
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.token().map(|(token, ..)| token)
    }

    /// Returns the next token; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let found = self.token();
        self.began = found.map_or(self.text.len(), |(_, began, _)| began);
        self.at = found.map_or(self.text.len(), |(.., end)| end);
        found.map(|(token, ..)| token)
    }

    /// An error at the last token.
    pub(super) fn error(&self, text: &str) -> SelectorError {
        SelectorError(format!(
            "label selector {:?}, at character {}: {text}",
            self.text,
            self.text[..self.began].chars().count() + 1
        ))
    }

    /// The next token with its start and end.
    fn token(&self) -> Option<(Token<'a>, usize, usize)> {
        let rest = &self.text[self.at..];
        let began = self.at + (rest.len() - rest.trim_start().len());
        let rest = &self.text[began..];
        let (token, length) = match rest.as_bytes() {
            [] => return None,
            [b',', ..] => (Token::Comma, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b'!', b'=', ..] => (Token::NotEqual, 2),
            [b'!', ..] => (Token::Not, 1),
            [b'=', b'=', ..] => (Token::Equal, 2),
            [b'=', ..] => (Token::Equal, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || ",()!=<>".contains(c));
                let end = end.unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
        };
        Some((token, began, began + length))
    }
}
