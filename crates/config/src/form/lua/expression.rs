//! Expressions, elements and calls.

use super::lexer::Token;
use super::{Ends, LuaError, Parsed, Parser};

impl Parser<'_> {
    pub(super) fn expressions(&mut self) -> Parsed {
        self.expression()?;
        while self.take(",")? {
            self.expression()?;
        }
        Ok(())
    }

    pub(super) fn expression(&mut self) -> Parsed {
        self.deeper(|p| {
            loop {
                while matches!(p.token, Token::Word("not" | "-" | "#")) {
                    p.advance()?;
                }
                p.operand()?;
                // Precedence does not change whether the text is an expression.
                let operators = ["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"];
                match p.token {
                    Token::Word(word) if operators.contains(&word) => p.advance()?,
                    _ => return Ok(()),
                }
            }
        })
    }

    fn operand(&mut self) -> Parsed {
        match self.token {
            Token::Number | Token::Text | Token::Word("nil" | "true" | "false") => self.advance(),
            Token::Word("...") if !self.function.variadic => Err(LuaError::NotVariadic),
            Token::Word("...") => self.advance(),
            Token::Word("{") => self.table(),
            Token::Word("function") => {
                self.advance()?;
                self.function_body()
            }
            _ => self.suffixed().map(drop),
        }
    }

    fn table(&mut self) -> Parsed {
        self.expect("{")?;
        while !self.is("}") {
            if self.take("[")? {
                self.expression()?;
                self.expect("]")?;
                self.expect("=")?;
            }
            if matches!(self.token, Token::Name(_)) && self.lexer.clone().next()? == Token::Word("=") {
                self.advance()?;
                self.advance()?;
            }
            self.expression()?;
            if !self.take(",")? && !self.take(";")? {
                break;
            }
        }
        self.expect("}")
    }

    pub(super) fn suffixed(&mut self) -> Parsed<Ends> {
        match self.token {
            Token::Name(_) => {
                self.advance()?;
                self.suffixes(Ends::Place)
            }
            Token::Word("(") => {
                self.advance()?;
                self.expression()?;
                self.expect(")")?;
                self.suffixes(Ends::Value)
            }
            _ => self.unexpected(),
        }
    }

    /// Elements and calls.
    pub(super) fn suffixes(&mut self, mut ends: Ends) -> Parsed<Ends> {
        loop {
            match self.token {
                Token::Word(".") => {
                    self.advance()?;
                    self.name()?;
                    ends = Ends::Place;
                }
                Token::Word("[") => {
                    self.advance()?;
                    self.expression()?;
                    self.expect("]")?;
                    ends = Ends::Place;
                }
                Token::Word(":") => {
                    self.advance()?;
                    self.name()?;
                    self.arguments()?;
                    ends = Ends::Call;
                }
                Token::Word("(" | "{") | Token::Text => {
                    self.arguments()?;
                    ends = Ends::Call;
                }
                _ => return Ok(ends),
            }
        }
    }

    fn arguments(&mut self) -> Parsed {
        match self.token {
            Token::Text => self.advance(),
            Token::Word("{") => self.table(),
            Token::Word("(") => {
                self.advance()?;
                if !self.is(")") {
                    self.expressions()?;
                }
                self.expect(")")
            }
            _ => self.unexpected(),
        }
    }
}
