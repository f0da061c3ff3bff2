//! Scripts in Lua, as far as their syntax goes: Lua 5.1 with what LuaJIT, which Envoy has, adds to it.

mod expression;
mod lexer;

#[cfg(test)]
mod tests;

use lexer::{Lexer, Token};

use crate::form::Fault;

/// How deep blocks and expressions may nest; LuaJIT's bound.
const MAX_DEPTH: u32 = 200;

/// A Lua script.
pub(crate) fn lua(script: &str) -> Result<(), Fault> {
    let message = |(line, error)| format!("not a valid Lua script: line {line}: {error}");
    check(script).map_err(|error| Fault::new("bad-script", message(error)))
}

/// Checks the syntax of a script. An error has the number of the line.
fn check(script: &str) -> Result<(), (usize, LuaError)> {
    let mut parser =
        Parser { lexer: Lexer::new(script), token: Token::End, depth: 0, function: Function::whole_script() };
    let parsed = parser.advance().and_then(|()| parser.script());
    parsed.map_err(|error| (parser.lexer.line(), error))
}

/// The reason why a text is not a script in Lua.
#[derive(Debug, PartialEq, thiserror::Error)]
enum LuaError {
    #[error("the character {0:?} is not expected")]
    UnexpectedCharacter(char),
    /// A text or comment between brackets with this many `=`.
    #[error("]{}] is missing", "=".repeat(*.0))]
    Unclosed(usize),
    #[error("a text has no end")]
    EndlessText,
    #[error("a text has no end in its line")]
    EndlessLine,
    #[error("\\{0} is not an escape")]
    UnknownEscape(char),
    #[error("{0:?} is not a number")]
    NotANumber(String),
    #[error("{wanted} is expected, and {found} found")]
    Expected { wanted: String, found: String },
    #[error("{0} is not expected here")]
    Unexpected(String),
    #[error("more than {} levels deep", MAX_DEPTH)]
    TooDeep,
    #[error("break is not in a loop")]
    BreakOutsideLoop,
    #[error("nothing can be assigned to a call or a value")]
    NotAPlace,
    #[error("... is not in a function that takes any number of arguments")]
    NotVariadic,
}

type Parsed<T = ()> = Result<T, LuaError>;

/// The statements that the enclosing function allows.
#[derive(Clone, Copy)]
struct Function {
    /// Whether it takes any number of arguments (`...`).
    variadic: bool,
    /// How many loops of it are around.
    loops: u32,
}

impl Function {
    fn whole_script() -> Function {
        Function { variadic: true, loops: 0 }
    }
}

/// The kind of the expression that begins a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// In a name or an element: something can be assigned to it.
    Place,
    /// In a call, which is a statement alone.
    Call,
    /// In something else.
    Value,
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token<'t>,
    depth: u32,
    function: Function,
}

impl<'t> Parser<'t> {
    fn script(&mut self) -> Parsed {
        self.block()?;
        match self.token {
            Token::End => Ok(()),
            _ => self.unexpected(),
        }
    }

    fn advance(&mut self) -> Parsed {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn is(&self, word: &str) -> bool {
        self.token == Token::Word(word)
    }

    /// Takes a word if it is the next token.
    fn take(&mut self, word: &str) -> Parsed<bool> {
        let is_it = self.is(word);
        if is_it {
            self.advance()?;
        }
        Ok(is_it)
    }

    fn expect(&mut self, word: &str) -> Parsed {
        match self.take(word)? {
            true => Ok(()),
            false => Err(self.expected(word)),
        }
    }

    fn name(&mut self) -> Parsed<&'t str> {
        match self.token {
            Token::Name(name) => {
                self.advance()?;
                Ok(name)
            }
            _ => Err(self.expected("a name")),
        }
    }

    fn expected(&self, wanted: &str) -> LuaError {
        LuaError::Expected { wanted: wanted.to_owned(), found: self.found() }
    }

    fn unexpected<T>(&self) -> Parsed<T> {
        Err(LuaError::Unexpected(self.found()))
    }

    fn found(&self) -> String {
        match self.token {
            Token::Name(text) | Token::Word(text) => text.chars().take(40).collect(),
            Token::Number => "a number".to_owned(),
            Token::Text => "a text".to_owned(),
            Token::End => "the end of the script".to_owned(),
        }
    }

    /// Runs one level deeper.
    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(LuaError::TooDeep);
        }
        self.depth += 1;
        let out = run(self);
        self.depth -= 1;
        out
    }

    /// Statements, as many as there are.
    fn block(&mut self) -> Parsed {
        self.deeper(|p| {
            loop {
                match p.token {
                    Token::End | Token::Word("end" | "else" | "elseif" | "until") => return Ok(()),
                    Token::Word("return") => return p.returned(),
                    _ => p.statement()?,
                }
            }
        })
    }

    /// `return`, after which the block ends.
    fn returned(&mut self) -> Parsed {
        self.expect("return")?;
        let at_end = matches!(self.token, Token::End | Token::Word("end" | "else" | "elseif" | "until" | ";"));
        if !at_end {
            self.expressions()?;
        }
        self.take(";").map(drop)
    }

    fn statement(&mut self) -> Parsed {
        let Token::Word(word) = self.token else {
            return self.beginning_with_name();
        };
        match word {
            "(" => return self.assignment_or_call(),
            "break" if self.function.loops == 0 => return Err(LuaError::BreakOutsideLoop),
            ";" | "do" | "while" | "repeat" | "if" | "for" | "function" | "local" | "break" | "::" => self.advance()?,
            _ => return self.unexpected(),
        }
        match word {
            "do" => self.block_until_end(),
            "while" => {
                self.expression()?;
                self.expect("do")?;
                self.loop_body(|p| p.expect("end"))
            }
            "repeat" => {
                self.loop_body(|p| p.expect("until"))?;
                self.expression()
            }
            "if" => self.condition(),
            "for" => self.for_loop(),
            "function" => self.named_function(),
            "local" => self.local(),
            "::" => {
                self.name()?;
                self.expect("::")
            }
            _ => Ok(()),
        }
    }

    /// `goto` is a name, too, unless another name follows.
    fn beginning_with_name(&mut self) -> Parsed {
        if self.token != Token::Name("goto") {
            return self.assignment_or_call();
        }
        self.advance()?;
        match self.token {
            Token::Name(_) => self.advance(),
            _ => {
                let ends = self.suffixes(Ends::Place)?;
                self.after_first(ends)
            }
        }
    }

    fn block_until_end(&mut self) -> Parsed {
        self.block()?;
        self.expect("end")
    }

    fn loop_body(&mut self, end: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.function.loops += 1;
        self.block()?;
        self.function.loops -= 1;
        end(self)
    }

    fn condition(&mut self) -> Parsed {
        loop {
            self.expression()?;
            self.expect("then")?;
            self.block()?;
            if !self.take("elseif")? {
                break;
            }
        }
        if self.take("else")? {
            self.block()?;
        }
        self.expect("end")
    }

    fn for_loop(&mut self) -> Parsed {
        self.name()?;
        if self.take("=")? {
            self.expression()?;
            self.expect(",")?;
            self.expression()?;
            if self.take(",")? {
                self.expression()?;
            }
        } else {
            while self.take(",")? {
                self.name()?;
            }
            self.expect("in")?;
            self.expressions()?;
        }
        self.expect("do")?;
        self.loop_body(|p| p.expect("end"))
    }

    fn named_function(&mut self) -> Parsed {
        self.name()?;
        while self.take(".")? {
            self.name()?;
        }
        if self.take(":")? {
            self.name()?;
        }
        self.function_body()
    }

    /// From the parameters of a function to its end.
    fn function_body(&mut self) -> Parsed {
        self.expect("(")?;
        let mut variadic = false;
        if !self.is(")") {
            loop {
                variadic = self.take("...")?;
                if variadic {
                    break;
                }
                self.name()?;
                if !self.take(",")? {
                    break;
                }
            }
        }
        self.expect(")")?;
        let around = std::mem::replace(&mut self.function, Function { variadic, loops: 0 });
        self.block_until_end()?;
        self.function = around;
        Ok(())
    }

    fn local(&mut self) -> Parsed {
        if self.take("function")? {
            self.name()?;
            return self.function_body();
        }
        self.name()?;
        while self.take(",")? {
            self.name()?;
        }
        if self.take("=")? {
            self.expressions()?;
        }
        Ok(())
    }

    fn assignment_or_call(&mut self) -> Parsed {
        let ends = self.suffixed()?;
        self.after_first(ends)
    }

    /// A statement after its first place or call.
    fn after_first(&mut self, mut ends: Ends) -> Parsed {
        if ends == Ends::Call {
            return Ok(());
        }
        while ends == Ends::Place && self.take(",")? {
            ends = self.suffixed()?;
        }
        if ends != Ends::Place {
            return Err(LuaError::NotAPlace);
        }
        self.expect("=")?;
        self.expressions()
    }
}
