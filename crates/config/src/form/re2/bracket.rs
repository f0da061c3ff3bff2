//! Parses escape sequences and classes.

use super::class::{self, Class};
use super::error::SyntaxError;
use super::parse::{Parse, Parser};

impl Parser<'_> {
    /// Parses `\pL`, `\p{Greek}`, `\d` and the like.
    pub(super) fn named_class(&mut self) -> Parse<Option<Class>> {
        let start = self.at;
        let Some(letter) = self.peek(1) else { return Ok(None) };
        if !matches!(letter, b'p' | b'P') {
            let class = class::perl(letter);
            self.at += if class.is_some() { 2 } else { 0 };
            return Ok(class);
        }
        self.at += 2;
        let mut name = match self.take() {
            Some(b'{') => {
                let Some(length) = self.rest().iter().position(|byte| *byte == b'}') else {
                    self.at = self.text.len();
                    return Err(SyntaxError::Range(self.since(start)));
                };
                let name = &self.rest()[..length];
                self.at += length + 1;
                name
            }
            Some(_) => &self.text[self.at - 1..self.at],
            None => &[],
        };
        let mut negated = letter == b'P';
        if let Some(inner) = name.strip_prefix(b"^") {
            (name, negated) = (inner, !negated);
        }
        let class = class::unicode(name).ok_or_else(|| SyntaxError::Range(self.since(start)))?;
        let class = if self.flags.fold { class.folded() } else { class };
        Ok(Some(if negated { class.inverse() } else { class }))
    }

    /// Parses the escape sequence of a byte.
    pub(super) fn escape(&mut self) -> Parse<u8> {
        let start = self.at;
        self.at += 1;
        let Some(letter) = self.take() else { return Err(SyntaxError::TrailingBackslash) };
        let value = match letter {
            b'1'..=b'7' if !matches!(self.peek(0), Some(b'0'..=b'7')) => None,
            b'0'..=b'7' => {
                let mut code = u32::from(letter - b'0');
                for _ in 0..2 {
                    if let Some(digit @ b'0'..=b'7') = self.peek(0) {
                        code = code * 8 + u32::from(digit - b'0');
                        self.at += 1;
                    }
                }
                Some(code)
            }
            b'x' => self.hexadecimal(),
            b'n' => Some(0x0a),
            b'r' => Some(0x0d),
            b't' => Some(0x09),
            b'a' => Some(0x07),
            b'f' => Some(0x0c),
            b'v' => Some(0x0b),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => Some(u32::from(other)),
            _ => None,
        };
        value.and_then(|code| u8::try_from(code).ok()).ok_or_else(|| SyntaxError::Escape(self.since(start)))
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        if !self.eat(b"{") {
            return Some(digit(self.take()?)? * 16 + digit(self.take()?)?);
        }
        let mut code = digit(self.take()?)?;
        loop {
            match self.take()? {
                b'}' => return Some(code),
                byte => code = code.checked_mul(16)?.checked_add(digit(byte)?)?,
            }
        }
    }

    /// Parses a class in brackets.
    pub(super) fn bracket(&mut self) -> Parse<Class> {
        self.at += 1;
        let negated = self.eat(b"^");
        let mut class = Class::default();
        let mut first = true;
        while first || self.peek(0) != Some(b']') {
            first = false;
            let Some(byte) = self.peek(0) else { return Err(SyntaxError::MissingBracket) };
            let named = match byte {
                b'[' => self.posix()?,
                b'\\' => self.named_class()?,
                _ => None,
            };
            let part = match named {
                Some(named) => named,
                None => {
                    let range = self.range()?;
                    if self.flags.fold { range.folded() } else { range }
                }
            };
            class = class.union(part);
        }
        self.at += 1;
        Ok(if negated { class.inverse() } else { class })
    }

    /// Parses a class such as `[:alpha:]` within brackets.
    fn posix(&mut self) -> Parse<Option<Class>> {
        let start = self.at;
        let Some(inner) = self.rest().strip_prefix(b"[:") else { return Ok(None) };
        let Some(length) = inner.windows(2).position(|pair| pair == b":]") else { return Ok(None) };
        let name = &inner[..length];
        self.at += length + 4;
        let class = class::posix(name).ok_or_else(|| SyntaxError::Range(self.since(start)))?;
        let fold = self.flags.fold;
        Ok(Some(match name.first() {
            // The inverse of a class is that of the class with both cases.
            Some(b'^') if fold => class.inverse().folded().inverse(),
            _ if fold => class.folded(),
            _ => class,
        }))
    }

    /// Parses a byte or a range of bytes within brackets.
    fn range(&mut self) -> Parse<Class> {
        let start = self.at;
        let low = self.class_byte()?;
        let mut high = low;
        if self.peek(0) == Some(b'-') && self.peek(1).is_some_and(|next| next != b']') {
            self.at += 1;
            high = self.class_byte()?;
        }
        if high < low {
            return Err(SyntaxError::Range(self.since(start)));
        }
        Ok(Class::of(&[(low, high)]))
    }

    fn class_byte(&mut self) -> Parse<u8> {
        match self.peek(0) {
            Some(b'\\') => self.escape(),
            _ => self.take().ok_or(SyntaxError::MissingBracket),
        }
    }
}
