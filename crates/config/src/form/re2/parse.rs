//! Parses an expression.

use std::rc::Rc;

use super::class::{self, Class};
use super::error::{MAX_DEPTH, MAX_REPEAT, SyntaxError};
use super::factor::factor;
use super::{Assertion, Flags, Node, Operator};

pub(super) type Parse<T> = Result<T, SyntaxError>;

/// Parses an expression.
pub(super) fn parse(text: &[u8]) -> Parse<Node> {
    let mut parser = Parser { text, at: 0, flags: Flags::default(), groups: vec![Group::default()], captures: 0 };
    // The position after the last repetition operator, directly after which there must not be another one.
    let mut repeated = None;
    while parser.at < text.len() {
        let start = parser.at;
        if let Some(counts) = parser.repetition()? {
            if repeated == Some(start) {
                return Err(SyntaxError::RepeatOperator);
            }
            parser.repeat(counts)?;
            repeated = Some(parser.at);
        } else {
            parser.token()?;
        }
    }
    if parser.groups.len() > 1 {
        return Err(SyntaxError::MissingParen);
    }
    Ok(parser.groups.pop().map_or(Node::Empty, Group::finish))
}

/// A repetition operator, and whether it prefers fewer.
struct Counts {
    kind: Count,
    lazy: bool,
}

enum Count {
    Operator(Operator),
    Range(u32, Option<u32>),
}

/// An open group, or the whole expression.
#[derive(Default)]
struct Group {
    /// Number of a group that captures.
    number: Option<usize>,
    /// Flags outside of the group.
    outer: Flags,
    /// Alternatives that are complete.
    alternatives: Vec<Node>,
    /// Parts of the current alternative.
    parts: Vec<Node>,
}

impl Group {
    /// Adds a part. Literals before it become one.
    fn push(&mut self, node: Node) {
        self.join();
        self.parts.push(node);
    }

    /// Joins the last two parts if both are literals.
    fn join(&mut self) {
        let [.., Node::Literal { fold: a, .. }, Node::Literal { fold: b, .. }] = &*self.parts else { return };
        if a == b
            && let Some(Node::Literal { bytes: more, .. }) = self.parts.pop()
            && let Some(Node::Literal { bytes, .. }) = self.parts.last_mut()
        {
            bytes.extend(more);
        }
    }

    /// Completes an alternative.
    fn bar(&mut self) {
        self.join();
        let parts = std::mem::take(&mut self.parts);
        let flat = if let [_] = &*parts {
            parts
        } else {
            flattened(parts, |node| match node {
                Node::Concat(parts) => Ok(parts),
                other => Err(other),
            })
        };
        let node = Node::concat(flat);
        let simple = |node: &Node| node.is_byte() || matches!(node, Node::Class(_) | Node::AnyChar);
        match self.alternatives.last_mut() {
            Some(Node::AnyChar) if simple(&node) => {}
            Some(last) if node == Node::AnyChar && simple(last) => *last = Node::AnyChar,
            _ => self.alternatives.push(node),
        }
    }

    /// The expression of the group.
    fn finish(mut self) -> Node {
        self.bar();
        if self.alternatives.len() == 1 {
            return self.alternatives.remove(0);
        }
        let alternatives = flattened(self.alternatives, |node| match node {
            Node::Alternate(parts) => Ok(parts),
            other => Err(other),
        });
        Node::alternate(factor(alternatives))
    }
}

/// The nodes, with those that have parts replaced by their parts.
fn flattened(nodes: Vec<Node>, parts: impl Fn(Node) -> Result<Vec<Node>, Node>) -> Vec<Node> {
    nodes.into_iter().flat_map(|node| parts(node).unwrap_or_else(|node| vec![node])).collect()
}

pub(super) struct Parser<'t> {
    pub(super) text: &'t [u8],
    pub(super) at: usize,
    pub(super) flags: Flags,
    /// Open groups; the first is the whole expression.
    groups: Vec<Group>,
    captures: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    pub(super) fn take(&mut self) -> Option<u8> {
        let byte = self.peek(0);
        self.at += usize::from(byte.is_some());
        byte
    }

    pub(super) fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// The text since a position, for messages.
    pub(super) fn since(&self, start: usize) -> String {
        String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()).into_owned()
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn push(&mut self, node: Node) {
        self.group().push(node);
    }

    /// Adds a class. A class of one byte, or of a letter in both cases, is a literal.
    fn class(&mut self, class: Class) {
        self.push(match class.as_literal() {
            Some((byte, fold)) => Node::Literal { bytes: vec![byte], fold: fold || self.flags.fold },
            None => Node::Class(class),
        });
    }

    fn literal(&mut self, byte: u8) {
        let fold = self.flags.fold;
        let byte = if fold { byte.to_ascii_lowercase() } else { byte };
        self.push(Node::Literal { bytes: vec![byte], fold });
    }

    /// Parses one token that is not a repetition operator.
    fn token(&mut self) -> Parse<()> {
        if self.rest().starts_with(b"(?") {
            return self.special_group();
        }
        let lines = self.flags.lines;
        match self.peek(0) {
            Some(b'\\') => return self.backslash(),
            Some(b'[') => {
                let class = self.bracket()?;
                self.class(class);
                return Ok(());
            }
            _ => {}
        }
        match self.take() {
            None => {}
            Some(b'(') => {
                self.captures += 1;
                self.open(Some(self.captures))?;
            }
            Some(b')') => self.close()?,
            Some(b'|') => self.group().bar(),
            Some(b'^') if lines => self.push(Node::Assert(Assertion::BeginLine)),
            Some(b'^') => self.push(Node::Assert(Assertion::BeginText)),
            Some(b'$') if lines => self.push(Node::Assert(Assertion::EndLine)),
            Some(b'$') => self.push(Node::Assert(Assertion::EndText { dollar: true })),
            Some(b'.') if self.flags.dot_all => self.push(Node::AnyChar),
            Some(b'.') => self.class(Class::of(&[(b'\n', b'\n')]).inverse()),
            Some(byte) => self.literal(byte),
        }
        Ok(())
    }

    fn open(&mut self, number: Option<usize>) -> Parse<()> {
        if self.groups.len() > MAX_DEPTH {
            return Err(SyntaxError::Depth);
        }
        self.groups.push(Group { number, outer: self.flags, ..Group::default() });
        Ok(())
    }

    fn close(&mut self) -> Parse<()> {
        if self.groups.len() < 2 {
            return Err(SyntaxError::UnexpectedParen);
        }
        let Some(group) = self.groups.pop() else { return Err(SyntaxError::UnexpectedParen) };
        self.flags = group.outer;
        let number = group.number;
        let node = group.finish();
        self.push(match number {
            Some(number) => Node::Capture(number, Rc::new(node)),
            None => node,
        });
        Ok(())
    }

    /// Parses a group with a name or with flags.
    fn special_group(&mut self) -> Parse<()> {
        let start = self.at;
        let ahead = |parser: &mut Parser<'_>, length: usize| {
            parser.at = (start + length).min(parser.text.len());
            parser.since(start)
        };
        let rest = self.rest();
        if (rest.len() > 3 && matches!(rest[2], b'=' | b'!'))
            || (rest.len() > 4 && rest[2] == b'<' && matches!(rest[3], b'=' | b'!'))
        {
            return Err(SyntaxError::Group(ahead(self, if rest[2] == b'<' { 4 } else { 3 })));
        }
        let name = if rest.len() > 4 && rest.starts_with(b"(?P<") {
            Some(4)
        } else if rest.len() > 3 && rest.starts_with(b"(?<") {
            Some(3)
        } else {
            None
        };
        let Some(begin) = name else { return self.group_flags() };
        let length = rest[begin..].iter().position(|byte| *byte == b'>');
        let name = length.map(|length| &rest[begin..begin + length]);
        if !name.is_some_and(|name| !name.is_empty() && name.iter().all(|byte| class::in_name(*byte))) {
            return Err(SyntaxError::GroupName(ahead(self, begin + length.map_or(rest.len(), |length| length + 1))));
        }
        self.at += begin + length.unwrap_or_default() + 1;
        self.captures += 1;
        self.open(Some(self.captures))
    }

    /// Parses `(?flags)` or `(?flags:`.
    fn group_flags(&mut self) -> Parse<()> {
        let start = self.at;
        self.at += 2;
        let mut flags = self.flags;
        let (mut on, mut complete) = (true, true);
        loop {
            let flag = match self.take() {
                Some(b'i') => &mut flags.fold,
                Some(b'm') => &mut flags.lines,
                Some(b's') => &mut flags.dot_all,
                Some(b'U') => &mut flags.lazy,
                Some(b'-') if on => {
                    (on, complete) = (false, false);
                    continue;
                }
                Some(b':') if complete => {
                    self.open(None)?;
                    break;
                }
                Some(b')') if complete => break,
                _ => return Err(SyntaxError::Group(self.since(start))),
            };
            *flag = on;
            complete = true;
        }
        self.flags = flags;
        Ok(())
    }

    /// Parses what begins with a backslash.
    fn backslash(&mut self) -> Parse<()> {
        let node = match self.peek(1) {
            Some(b'b') => Node::Assert(Assertion::WordBoundary),
            Some(b'B') => Node::Assert(Assertion::NotWordBoundary),
            Some(b'A') => Node::Assert(Assertion::BeginText),
            Some(b'z') => Node::Assert(Assertion::EndText { dollar: false }),
            Some(b'C') => Node::AnyByte,
            Some(b'Q') => {
                self.at += 2;
                while self.at < self.text.len() && !self.eat(b"\\E") {
                    if let Some(byte) = self.take() {
                        self.literal(byte);
                    }
                }
                return Ok(());
            }
            _ => {
                match self.named_class()? {
                    Some(class) => self.class(class),
                    None => {
                        let byte = self.escape()?;
                        self.literal(byte);
                    }
                }
                return Ok(());
            }
        };
        self.at += 2;
        self.push(node);
        Ok(())
    }

    /// Parses a repetition operator, if there is one.
    fn repetition(&mut self) -> Parse<Option<Counts>> {
        let kind = match self.peek(0) {
            Some(b'*') => Count::Operator(Operator::Star),
            Some(b'+') => Count::Operator(Operator::Plus),
            Some(b'?') => Count::Operator(Operator::Quest),
            Some(b'{') => match self.counted() {
                Some((kind, length)) => {
                    self.at += length - 1;
                    kind
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.at += 1;
        let lazy = self.eat(b"?") != self.flags.lazy;
        Ok(Some(Counts { kind, lazy }))
    }

    /// `{n}`, `{n,}` or `{n,m}` and its length. Anything else is literal text.
    fn counted(&self) -> Option<(Count, usize)> {
        let inner = self.rest().get(1..)?;
        let length = inner.iter().position(|byte| *byte == b'}')?;
        let text = std::str::from_utf8(&inner[..length]).ok()?;
        let (least, most) = match text.split_once(',') {
            None => (number(text)?, Some(number(text)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        Some((Count::Range(least, most), length + 2))
    }

    /// Applies a repetition operator to the last part.
    fn repeat(&mut self, counts: Counts) -> Parse<()> {
        let flags = Flags { lazy: counts.lazy, ..self.flags };
        if let Count::Range(least, most) = counts.kind {
            if most.is_some_and(|most| most < least) {
                return Err(SyntaxError::RepeatOrder);
            }
            if least.max(most.unwrap_or(0)) > MAX_REPEAT {
                return Err(SyntaxError::RepeatSize);
            }
        }
        let of = Rc::new(self.group().parts.pop().ok_or(SyntaxError::RepeatArgument)?);
        let node = match counts.kind {
            Count::Operator(operator) => Node::repeat(operator, of, flags),
            Count::Range(least, most) => Node::Counted { least, most, flags, of },
        };
        if matches!(counts.kind, Count::Range(least, most) if least >= 2 || most.is_some_and(|most| most >= 2))
            && room(&node, MAX_REPEAT) == 0
        {
            return Err(SyntaxError::RepeatSize);
        }
        self.group().parts.push(node);
        Ok(())
    }
}

/// A number of at most nine digits, without leading zeros.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain && text.len() <= 9 { text.parse().ok() } else { None }
}

/// The number of times that the innermost part may still be repeated.
fn room(node: &Node, left: u32) -> u32 {
    match node {
        Node::Counted { least, most, of, .. } => room(of, left / most.unwrap_or(*least).max(1)),
        Node::Repeat { of, .. } | Node::Capture(_, of) => room(of, left),
        Node::Concat(parts) | Node::Alternate(parts) => parts.iter().map(|part| room(part, left)).min().unwrap_or(left),
        _ => left,
    }
}
