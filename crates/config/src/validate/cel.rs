//! Expressions in CEL, as far as their syntax goes (the specification's grammar).

#[cfg(test)]
mod tests;

/// How deep an expression may nest; cel-go's bound is near it.
const MAX_DEPTH: u32 = 200;

/// Words that cannot be names.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "void",
    "while",
];

/// Why a text is not an expression in CEL.
pub(super) fn problem(text: &str) -> Option<String> {
    let mut lexer = Lexer { rest: text };
    let mut tokens = Vec::new();
    loop {
        match lexer.next() {
            Ok(Some(token)) => tokens.push(token),
            Ok(None) => break,
            Err(problem) => return Some(problem),
        }
    }
    let mut parser = Parser {
        tokens: &tokens,
        depth: 0,
    };
    let parsed = parser.expression().and_then(|()| match parser.tokens.first() {
        None => Ok(()),
        Some(token) => Err(format!("{} is not expected here", token.describe())),
    });
    parsed.err()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'t> {
    Name(&'t str),
    /// A name in back-ticks, which can only stand after a dot.
    Quoted,
    Literal(&'t str),
    Sign(&'t str),
}

impl Token<'_> {
    fn describe(&self) -> String {
        match self {
            Token::Quoted => "a name in back-ticks".to_owned(),
            Token::Name(text) | Token::Literal(text) | Token::Sign(text) => {
                format!("{:?}", text.chars().take(40).collect::<String>())
            }
        }
    }
}

/// Cuts a text into tokens.
struct Lexer<'t> {
    rest: &'t str,
}

impl<'t> Lexer<'t> {
    fn next(&mut self) -> Result<Option<Token<'t>>, String> {
        self.skip_blanks();
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if let Some(length) = string_prefix(self.rest) {
            return self.string(length).map(Some);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if first.is_ascii_digit() || (first == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return self.number().map(Some);
        }
        if is_word(first) {
            let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            return Ok(Some(Token::Name(self.take(length))));
        }
        if first == '`' {
            let length = self.rest[1..].find('`').ok_or("a back-tick has no second one")?;
            self.take(length + 2);
            return Ok(Some(Token::Quoted));
        }
        const SIGNS: [&str; 24] = [
            "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
            "[", "]", "{", "}",
        ];
        match SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
            Some(sign) => Ok(Some(Token::Sign(self.take(sign.len())))),
            None => Err(format!("the character {first:?} is not expected")),
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
            match self.rest.strip_prefix("//") {
                Some(comment) => self.rest = comment.find('\n').map_or("", |end| &comment[end..]),
                None => return,
            }
        }
    }

    fn take(&mut self, length: usize) -> &'t str {
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }

    /// A text or bytes whose quotes begin after `prefix` letters.
    fn string(&mut self, prefix: usize) -> Result<Token<'t>, String> {
        let raw = self.rest[..prefix].contains(['r', 'R']);
        let quoted = &self.rest[prefix..];
        let quote = if quoted.starts_with("\"\"\"") || quoted.starts_with("'''") {
            &quoted[..3]
        } else {
            &quoted[..1]
        };
        let mut at = prefix + quote.len();
        loop {
            let rest = &self.rest[at..];
            if rest.starts_with(quote) {
                return Ok(Token::Literal(self.take(at + quote.len())));
            }
            match rest.chars().next() {
                None => return Err("a text has no end".to_owned()),
                Some('\n' | '\r') if quote.len() == 1 => return Err("a text has no end in its line".to_owned()),
                Some('\\') if !raw => at += escape(rest)?,
                Some(c) => at += c.len_utf8(),
            }
        }
    }

    fn number(&mut self) -> Result<Token<'t>, String> {
        let rest = self.rest;
        let digits = |from: usize| {
            let end = rest[from..].find(|c: char| !c.is_ascii_digit());
            end.map_or(rest.len(), |end| from + end)
        };
        let mut at = digits(0);
        if let Some(hex) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
            at = 2 + hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        } else {
            if rest[at..].starts_with('.') && rest[at + 1..].starts_with(|c: char| c.is_ascii_digit()) {
                at = digits(at + 1);
            }
            if let Some(exponent) = rest[at..].strip_prefix(['e', 'E']) {
                let sign = usize::from(exponent.starts_with(['+', '-']));
                at = digits(at + 1 + sign);
            }
        }
        if rest[at..].starts_with(['u', 'U']) {
            at += 1;
        }
        if rest[at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("{:?} is not a number", &rest[..=at]));
        }
        Ok(Token::Literal(self.take(at)))
    }
}

/// The number of letters before the quotes, if the text begins with a string.
fn string_prefix(text: &str) -> Option<usize> {
    let letters = text.bytes().take_while(|b| b"rRbB".contains(b)).count();
    let quoted = text[letters..].starts_with(['"', '\'']);
    (letters <= 2 && quoted).then_some(letters)
}

/// The length of the escape sequence that a text begins with.
fn escape(text: &str) -> Result<usize, String> {
    let digits = match text.chars().nth(1) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '?' | '"' | '\'' | '`') => return Ok(2),
        Some('x' | 'X') => 2,
        Some('u') => 4,
        Some('U') => 8,
        Some('0'..='3') => {
            let octal = text
                .bytes()
                .skip(1)
                .take(3)
                .filter(|b| (b'0'..=b'7').contains(b))
                .count();
            return if octal == 3 {
                Ok(4)
            } else {
                Err("an escape sequence needs three octal digits".to_owned())
            };
        }
        other => return Err(format!("there is no escape sequence with {other:?}")),
    };
    let hex = text.bytes().skip(2).take(digits).filter(u8::is_ascii_hexdigit).count();
    match hex == digits {
        true => Ok(2 + digits),
        false => Err(format!("an escape sequence needs {digits} hexadecimal digits")),
    }
}

type Parsed = Result<(), String>;

/// Goes through the tokens, and forgets what they say.
struct Parser<'p, 't> {
    tokens: &'p [Token<'t>],
    depth: u32,
}

impl<'t> Parser<'_, 't> {
    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the expression is too deep".to_owned());
        }
        // Conditions nest to the right, without going deeper.
        loop {
            self.operations()?;
            if !self.eat("?") {
                break;
            }
            self.operations()?;
            self.need(":")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Operands with operators between them. Precedence does not matter to whether it is correct, except that comparisons
    /// may be chained.
    fn operations(&mut self) -> Parsed {
        loop {
            while self.eat("!") || self.eat("-") {}
            self.member()?;
            let operator = match self.tokens.first() {
                Some(Token::Sign(sign)) => {
                    ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"].contains(sign)
                }
                Some(Token::Name("in")) => true,
                _ => false,
            };
            if !operator {
                return Ok(());
            }
            self.tokens = &self.tokens[1..];
        }
    }

    fn member(&mut self) -> Parsed {
        self.primary()?;
        loop {
            if self.eat(".") {
                match self.take() {
                    Some(Token::Name(_) | Token::Quoted) => {}
                    other => return Err(unexpected(other, "a name after the dot")),
                }
                if self.eat("(") {
                    self.list(")", Parser::expression, false)?;
                }
            } else if self.eat("[") {
                self.expression()?;
                self.need("]")?;
            } else if self.eat("{") {
                self.list("}", Parser::entry, true)?;
            } else {
                return Ok(());
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        if self.eat("(") {
            self.expression()?;
            return self.need(")");
        }
        if self.eat("[") {
            return self.list("]", Parser::expression, true);
        }
        if self.eat("{") {
            return self.list("}", Parser::entry, true);
        }
        let dotted = self.eat(".");
        match self.take() {
            Some(Token::Literal(_)) if !dotted => Ok(()),
            Some(Token::Name(name)) if RESERVED.contains(&name) => Err(format!("{name:?} is a reserved word")),
            Some(Token::Name(_)) if self.eat("(") => self.list(")", Parser::expression, false),
            Some(Token::Name(_)) => Ok(()),
            other => Err(unexpected(other, "a value")),
        }
    }

    /// `key: value`.
    fn entry(&mut self) -> Parsed {
        self.expression()?;
        self.need(":")?;
        self.expression()
    }

    /// Entries with commas between them, and the sign at their end; whether a comma may stand before it.
    fn list(&mut self, end: &str, entry: fn(&mut Self) -> Parsed, trailing: bool) -> Parsed {
        if self.eat(end) {
            return Ok(());
        }
        loop {
            entry(self)?;
            if !self.eat(",") {
                return self.need(end);
            }
            if trailing && self.eat(end) {
                return Ok(());
            }
        }
    }

    fn take(&mut self) -> Option<Token<'t>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.first(), Some(Token::Sign(first)) if *first == sign);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn need(&mut self, sign: &str) -> Parsed {
        match self.eat(sign) {
            true => Ok(()),
            false => Err(unexpected(self.tokens.first().copied(), &format!("{sign:?}"))),
        }
    }
}

fn unexpected(found: Option<Token<'_>>, wanted: &str) -> String {
    match found {
        Some(token) => format!("expected {wanted}, found {}", token.describe()),
        None => format!("expected {wanted}, found the end"),
    }
}
