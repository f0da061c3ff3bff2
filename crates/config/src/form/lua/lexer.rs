//! Lua's tokens.

use super::LuaError;

/// A token; names and signs are slices of the script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    /// A name that is no keyword.
    Name(&'t str),
    /// A keyword or a sign: `end`, `==`.
    Word(&'t str),
    /// A number.
    Number,
    /// A text.
    Text,
    /// Nothing comes any more.
    End,
}

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
    "repeat", "return", "then", "true", "until", "while",
];

/// Signs; longer ones come before those that they begin with.
const SIGNS: [&str; 27] = [
    "...", "..", "==", "~=", "<=", ">=", "::", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{", "}",
    "[", "]", ";", ":", ",", ".",
];

/// Cuts a script into tokens.
#[derive(Clone)]
pub(super) struct Lexer<'t> {
    script: &'t str,
    /// How far it is cut.
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(script: &'t str) -> Lexer<'t> {
        Lexer { script, at: 0 }
    }

    /// The number of the line that it has come to.
    pub(super) fn line(&self) -> usize {
        1 + self.script[..self.at].bytes().filter(|b| *b == b'\n').count()
    }

    /// The next token, or what is wrong with it.
    pub(super) fn next(&mut self) -> Result<Token<'t>, LuaError> {
        self.skip_blanks()?;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Token::End);
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let digit_next = || rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if first.is_ascii_digit() || (first == '.' && digit_next()) {
            return self.number();
        }
        if is_word(first) {
            let word = self.take(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let is_keyword = KEYWORDS.contains(&word);
            return Ok(if is_keyword { Token::Word(word) } else { Token::Name(word) });
        }
        if first == '"' || first == '\'' {
            return self.text(first);
        }
        if let Some(level) = long_bracket(rest) {
            return self.long(level).map(|()| Token::Text);
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok(Token::Word(self.take(sign.len()))),
            None => Err(LuaError::UnexpectedCharacter(first)),
        }
    }

    fn rest(&self) -> &'t str {
        &self.script[self.at..]
    }

    fn take(&mut self, length: usize) -> &'t str {
        let token = &self.rest()[..length];
        self.at += length;
        token
    }

    /// Blanks and comments.
    fn skip_blanks(&mut self) -> Result<(), LuaError> {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{b}', '\u{c}']).len();
            self.at += blanks;
            let Some(comment) = self.rest().strip_prefix("--") else {
                return Ok(());
            };
            self.at += 2;
            match long_bracket(comment) {
                Some(level) => self.long(level)?,
                None => self.at += comment.find('\n').unwrap_or(comment.len()),
            }
        }
    }

    /// A text or comment between brackets with this many `=`.
    fn long(&mut self, level: usize) -> Result<(), LuaError> {
        let end = format!("]{}]", "=".repeat(level));
        let inside = &self.rest()[level + 2..];
        let length = inside.find(&end).ok_or(LuaError::Unclosed(level))?;
        self.at += level + 2 + length + end.len();
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<Token<'t>, LuaError> {
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '\n' => break,
                '\\' => {
                    // The text includes everything after it, line ends too.
                    let (_, escaped) = characters.next().ok_or(LuaError::EndlessText)?;
                    if escaped == 'z' {
                        // The blanks that follow do not count, and may have lines in them.
                        let blank = |c: char| c.is_ascii_whitespace();
                        let rest = &self.rest()[at + 2..];
                        let length = rest.len() - rest.trim_start_matches(blank).len();
                        for _ in 0..length {
                            characters.next();
                        }
                    } else if !(escaped.is_ascii_digit() || "abfnrtvxu\\\"'\n\r".contains(escaped)) {
                        return Err(LuaError::UnknownEscape(escaped));
                    }
                }
                c if c == quote => {
                    self.take(at + 1);
                    return Ok(Token::Text);
                }
                _ => {}
            }
        }
        Err(LuaError::EndlessLine)
    }

    fn number(&mut self) -> Result<Token<'t>, LuaError> {
        let rest = self.rest();
        let mut before = ' ';
        let is_part = |c: char| {
            // A sign belongs to a number after its exponent's letter.
            let sign = "+-".contains(c) && "eEpP".contains(before);
            before = c;
            sign || c.is_ascii_alphanumeric() || c == '.' || c == '_'
        };
        let length = rest.len() - rest.trim_start_matches(is_part).len();
        let text = self.take(length);
        if is_number(text) { Ok(Token::Number) } else { Err(LuaError::NotANumber(text.chars().take(40).collect())) }
    }
}

/// The number of `=` of a long bracket that begins here.
fn long_bracket(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('[')?;
    let rest = inside.trim_start_matches('=');
    rest.starts_with('[').then(|| inside.len() - rest.len())
}

/// Lua's numbers, and those that LuaJIT adds: 64-bit integers and imaginary numbers.
fn is_number(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let body = ["ull", "ll", "i"].iter().find_map(|suffix| lower.strip_suffix(suffix)).unwrap_or(&lower);
    let (body, exponent, is_digit): (&str, char, fn(char) -> bool) = match body.strip_prefix("0x") {
        Some(body) => (body, 'p', |c| c.is_ascii_hexdigit()),
        None => (body, 'e', |c| c.is_ascii_digit()),
    };
    let (mantissa, power) = match body.split_once(exponent) {
        Some((mantissa, power)) => (mantissa, Some(power.strip_prefix(['+', '-']).unwrap_or(power))),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.chars().all(is_digit);
    let good_power = power.is_none_or(|power| !power.is_empty() && power.chars().all(|c| c.is_ascii_digit()));
    good_power && !(whole.is_empty() && fraction.is_empty()) && digits(whole) && digits(fraction)
}
