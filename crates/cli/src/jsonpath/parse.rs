//! From text to pieces and steps.

use serde_json::Value as Json;

use super::{Filter, MAX_DEPTH, MAX_TEMPLATE, Operand, Operator, PathError, Piece, Step};

type Result<T> = std::result::Result<T, PathError>;

/// Parses a template.
pub(super) fn template(text: &str) -> Result<Vec<Piece>> {
    if text.len() > MAX_TEMPLATE {
        return Err(PathError::new(format!(
            "the template is longer than {MAX_TEMPLATE} bytes"
        )));
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let pieces = parser.pieces(false)?;
    Ok(pieces)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Pieces up to the end of the text, or up to the `{end}` of the range that they are in.
    fn pieces(&mut self, in_range: bool) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        loop {
            let rest = self.rest();
            let text = rest.find('{').unwrap_or(rest.len());
            if text > 0 {
                pieces.push(Piece::Text(rest[..text].to_owned()));
                self.at += text;
            }
            if !self.eat("{") {
                return match in_range {
                    true => Err(self.wrong("`range` has no `{end}`")),
                    false => Ok(pieces),
                };
            }
            if self.action(&mut pieces, in_range)? {
                return Ok(pieces);
            }
        }
    }

    /// What is in one pair of braces; true if it was the `end` of a range.
    fn action(&mut self, pieces: &mut Vec<Piece>, in_range: bool) -> Result<bool> {
        loop {
            self.space();
            if self.eat("}") {
                return Ok(false);
            }
            if self.keyword("end") {
                self.space();
                if !self.eat("}") {
                    return Err(self.wrong("`end` stands alone in its braces"));
                }
                return match in_range {
                    true => Ok(true),
                    false => Err(self.wrong("`end` without a `range`")),
                };
            }
            if self.keyword("range") {
                self.space();
                let path = self.path(true)?;
                self.space();
                if !self.eat("}") {
                    return Err(self.wrong("`range` takes one path and a closing brace"));
                }
                let inner = self.deeper(|parser| parser.pieces(true))?;
                pieces.push(Piece::Range(path, inner));
                return Ok(false);
            }
            pieces.push(match self.literal()? {
                Some(Json::String(text)) => Piece::Text(text),
                Some(value) => Piece::Text(value.to_string()),
                None => Piece::Query(self.path(true)?),
            });
        }
    }

    /// A path; `needed`: at least one step.
    fn path(&mut self, needed: bool) -> Result<Vec<Step>> {
        let start = self.at;
        let mut steps = Vec::new();
        if self.eat("$") {
            steps.push(Step::Root);
        } else {
            self.eat("@");
        }
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                match self.peek() {
                    Some('[') => {}
                    Some('*') => self.wild(&mut steps),
                    _ => steps.push(Step::Field(self.name()?)),
                }
            } else if self.rest().starts_with(".[") {
                self.at += 1;
            } else if self.eat(".") {
                match self.peek() {
                    Some('*') => self.wild(&mut steps),
                    // `{.}` is the value itself.
                    None | Some('}' | ' ' | ')' | '\t' | '\n') => {}
                    _ => steps.push(Step::Field(self.name()?)),
                }
            } else if self.eat("[") {
                steps.push(self.brackets()?);
            } else if steps.is_empty() && self.peek() == Some('*') {
                self.wild(&mut steps);
            } else {
                break;
            }
        }
        if needed && self.at == start {
            return Err(self.wrong("a path such as `.metadata.name` is expected"));
        }
        Ok(steps)
    }

    fn wild(&mut self, steps: &mut Vec<Step>) {
        self.at += 1;
        steps.push(Step::Wild);
    }

    /// A name after a dot, with escapes.
    fn name(&mut self) -> Result<String> {
        let mut name = String::new();
        while let Some(next) = self.peek() {
            match next {
                '\\' => {
                    self.at += 1;
                    let escaped = self.peek().ok_or_else(|| self.wrong("nothing follows the backslash"))?;
                    name.push(escaped);
                    self.at += escaped.len_utf8();
                }
                '.' | '[' | ']' | '(' | ')' | '{' | '}' | ',' | '=' | '!' | '<' | '>' | '"' | '\'' | '|' | '&' => break,
                next if next.is_whitespace() => break,
                next => {
                    name.push(next);
                    self.at += next.len_utf8();
                }
            }
        }
        match name.is_empty() {
            true => Err(self.wrong("a field's name is expected")),
            false => Ok(name),
        }
    }

    /// What follows an opening bracket.
    fn brackets(&mut self) -> Result<Step> {
        self.space();
        let step = if self.eat("?(") {
            self.deeper(Parser::filter)?
        } else if self.eat("*") {
            Step::Wild
        } else if matches!(self.peek(), Some('\'' | '"')) {
            self.names()?
        } else {
            self.indexes()?
        };
        self.space();
        match self.eat("]") {
            true => Ok(step),
            false => Err(self.wrong("the bracket is not closed")),
        }
    }

    fn names(&mut self) -> Result<Step> {
        let mut names = vec![self.quoted()?];
        self.space();
        while self.eat(",") {
            self.space();
            names.push(self.quoted()?);
            self.space();
        }
        Ok(match names.len() {
            1 => Step::Field(names.remove(0)),
            _ => Step::Fields(names),
        })
    }

    /// `1`, `-1`, `0,2`, `1:3`, `::2`.
    fn indexes(&mut self) -> Result<Step> {
        let first = self.integer()?;
        if self.peek() == Some(':') {
            let mut parts = [first, None, None];
            for part in parts.iter_mut().skip(1) {
                self.space();
                if !self.eat(":") {
                    break;
                }
                *part = self.integer()?;
            }
            let [start, end, step] = parts;
            let step = step.unwrap_or(1);
            if step < 1 {
                return Err(self.wrong("the step of a slice is at least 1"));
            }
            return Ok(Step::Slice { start, end, step });
        }
        let wanted = "an index, a slice, a name in quotes, `*` or `?(…)` is expected";
        let mut indexes = vec![first.ok_or_else(|| self.wrong(wanted))?];
        while self.eat(",") {
            indexes.push(self.integer()?.ok_or_else(|| self.wrong(wanted))?);
        }
        Ok(Step::Indexes(indexes))
    }

    fn integer(&mut self) -> Result<Option<i64>> {
        self.space();
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(at, c)| !(c.is_ascii_digit() || (*at == 0 && *c == '-')))
            .map_or(rest.len(), |(at, _)| at);
        if end == 0 {
            return Ok(None);
        }
        let value = rest[..end].parse().map_err(|_| self.wrong("that is no whole number"))?;
        self.at += end;
        self.space();
        Ok(Some(value))
    }

    /// What follows `?(`, with its closing parenthesis.
    fn filter(&mut self) -> Result<Step> {
        let left = self.operand()?;
        self.space();
        let test = match self.operator() {
            Some(operator) => Some((operator, self.operand()?)),
            None => None,
        };
        self.space();
        match self.eat(")") {
            true => Ok(Step::Filter(Box::new(Filter { left, test }))),
            false => Err(self.wrong("a comparison or `)` is expected in the filter")),
        }
    }

    fn operator(&mut self) -> Option<Operator> {
        // The longer ones first.
        let known = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        known
            .into_iter()
            .find(|(text, _)| self.eat(text))
            .map(|(_, operator)| operator)
    }

    fn operand(&mut self) -> Result<Operand> {
        self.space();
        match self.literal()? {
            Some(value) => Ok(Operand::Literal(value)),
            None => Ok(Operand::Path(self.path(true)?)),
        }
    }

    /// A text in quotes, a number or a boolean, if one is next.
    fn literal(&mut self) -> Result<Option<Json>> {
        match self.peek() {
            Some('"' | '\'') => Ok(Some(Json::String(self.quoted()?))),
            Some(c) if c.is_ascii_digit() || c == '-' || c == '+' => {
                let rest = self.rest();
                let number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
                let end = rest.find(|c| !number(c)).unwrap_or(rest.len());
                let text = rest[..end].trim_start_matches('+');
                let value = serde_json::from_str(text).map_err(|_| self.wrong(format!("`{text}` is no number")))?;
                self.at += end;
                Ok(Some(value))
            }
            _ if self.keyword("true") => Ok(Some(Json::Bool(true))),
            _ if self.keyword("false") => Ok(Some(Json::Bool(false))),
            _ => Ok(None),
        }
    }

    fn quoted(&mut self) -> Result<String> {
        let quote = match self.peek() {
            Some(quote @ ('"' | '\'')) => quote,
            _ => return Err(self.wrong("a text in quotes is expected")),
        };
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + 1;
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err(self.wrong("the quotes are not closed"))
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(format!("more than {MAX_DEPTH} ranges and filters inside each other")));
        }
        let done = inner(self);
        self.depth -= 1;
        done
    }

    /// A word that ends where it ends.
    fn keyword(&mut self, word: &str) -> bool {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let found = self.rest().strip_prefix(word).is_some_and(ends);
        if found {
            self.at += word.len();
        }
        found
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: impl AsRef<str>) -> PathError {
        let character = self.text[..self.at].chars().count() + 1;
        PathError::new(format!("JSONPath, character {character}: {}", what.as_ref()))
    }
}
