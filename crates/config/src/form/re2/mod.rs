//! RE2's syntax of regular expressions, and the size of the program that RE2 compiles an expression to.
//!
//! Envoy matches with RE2 in its Latin-1 mode: an expression is a sequence of bytes, and so is the text. It refuses an
//! expression that RE2 cannot parse, and one whose program is larger than the limit of the proxy (`re2.max_program_size`
//! in its runtime). It then refuses the whole resource that contains the expression. So the size is computed exactly, by
//! the same steps: parse, factor alternatives, simplify repetitions, compile, and flatten the instructions.
//!
//! ```text
//!  text ─► parse ─► Node ─► simplify ─► Node ─► compile ─► instructions ─► flatten ─► size
//!            └ class: sets of bytes and their names        └ factor: common prefixes of alternatives
//! ```

mod bracket;
mod class;
mod compile;
mod error;
mod factor;
mod flatten;
mod parse;
mod simplify;

use std::rc::Rc;

use class::Class;
pub(crate) use error::SyntaxError;

/// Number of instructions of the program that Envoy compiles a regular expression to. `None` if there are more than
/// [`MOST`].
pub(crate) fn program_size(text: &str) -> Result<Option<u32>, SyntaxError> {
    let tree = parse::parse(text.as_bytes())?;
    let tree = compile::without_prefix(tree);
    if tree.expanded() > u64::from(MOST) {
        return Ok(None);
    }
    let program = compile::compile(simplify::simplify(tree));
    Ok(Some(flatten::size(program)))
}

/// Whether an expression is valid, and has at most this many bytes and ranges of classes after all repetitions are written out. Much
/// cheaper than [`program_size`], which compiles.
pub(crate) fn fits(text: &str, limit: u32) -> Result<bool, SyntaxError> {
    Ok(parse::parse(text.as_bytes())?.expanded() <= u64::from(limit))
}

/// The largest program whose size is computed. Larger than all limits that proxies have by default.
pub(crate) const MOST: u32 = 40_000;

/// Flags that are in force at a place of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Flags {
    /// `i`: case-insensitive.
    fold: bool,
    /// `m`: `^` and `$` match at lines.
    lines: bool,
    /// `s`: `.` matches line breaks.
    dot_all: bool,
    /// `U`: repetitions prefer fewer.
    lazy: bool,
}

/// An operator for repetition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Star,
    Plus,
    Quest,
}

/// Conditions that match no text of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Assertion {
    BeginLine,
    EndLine,
    BeginText,
    /// The end of the text, written as `$` or as `\z`.
    EndText {
        dollar: bool,
    },
    WordBoundary,
    NotWordBoundary,
}

/// A parsed expression. Shared parts are cheap to repeat.
#[derive(Clone, PartialEq, Debug)]
enum Node {
    Nothing,
    Empty,
    /// Literal bytes, at least one.
    Literal {
        bytes: Vec<u8>,
        fold: bool,
    },
    Class(Class),
    AnyChar,
    AnyByte,
    Assert(Assertion),
    /// A group with its number.
    Capture(usize, Rc<Node>),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Repeat {
        operator: Operator,
        flags: Flags,
        of: Rc<Node>,
    },
    /// `{least,most}`; no `most` means no limit.
    Counted {
        least: u32,
        most: Option<u32>,
        flags: Flags,
        of: Rc<Node>,
    },
    /// `(x(x(…last)?)?)?` with this many `x`.
    Optional {
        times: u32,
        flags: Flags,
        of: Rc<Node>,
        last: Rc<Node>,
    },
}

impl Node {
    /// A concatenation; of one part it is the part.
    fn concat(mut parts: Vec<Node>) -> Node {
        match parts.len() {
            0 => Node::Empty,
            1 => parts.remove(0),
            _ => Node::Concat(parts),
        }
    }

    /// An alternation; of one alternative it is the alternative.
    fn alternate(mut parts: Vec<Node>) -> Node {
        match parts.len() {
            0 => Node::Nothing,
            1 => parts.remove(0),
            _ => Node::Alternate(parts),
        }
    }

    /// A repetition. Repetitions of repetitions with the same flags are one.
    fn repeat(operator: Operator, of: Rc<Node>, flags: Flags) -> Node {
        match of.repetition() {
            Some((inner, same, _)) if inner == operator && same == flags => (*of).clone(),
            Some((_, same, base)) if same == flags => Node::Repeat { operator: Operator::Star, flags, of: base },
            _ => Node::Repeat { operator, flags, of },
        }
    }

    /// The operator of a repetition, its flags, and what it repeats.
    fn repetition(&self) -> Option<(Operator, Flags, Rc<Node>)> {
        match self {
            Node::Repeat { operator, flags, of } => Some((*operator, *flags, of.clone())),
            Node::Optional { times, flags, of, last } => {
                let rest = match times {
                    0 | 1 => (**last).clone(),
                    _ => Node::Optional { times: times - 1, flags: *flags, of: of.clone(), last: last.clone() },
                };
                Some((Operator::Quest, *flags, Rc::new(Node::Concat(vec![(**of).clone(), rest]))))
            }
            _ => None,
        }
    }

    /// A literal of one byte.
    fn is_byte(&self) -> bool {
        matches!(self, Node::Literal { bytes, .. } if bytes.len() == 1)
    }

    /// A byte, class or any character.
    fn is_one(&self) -> bool {
        self.is_byte() || matches!(self, Node::Class(_) | Node::AnyChar | Node::AnyByte)
    }

    /// Number of bytes and ranges of classes after all repetitions are written out. The program is not much smaller.
    fn expanded(&self) -> u64 {
        match self {
            Node::Literal { bytes, .. } => bytes.len() as u64,
            Node::Class(class) => class.ranges().max(1) as u64,
            Node::Nothing | Node::Empty | Node::AnyChar | Node::AnyByte | Node::Assert(_) => 1,
            Node::Capture(_, of) => of.expanded() + 1,
            Node::Concat(parts) | Node::Alternate(parts) => parts.iter().map(Node::expanded).sum(),
            Node::Repeat { of, .. } => of.expanded(),
            Node::Counted { least, most, of, .. } => u64::from(most.unwrap_or(*least).max(1)) * of.expanded(),
            Node::Optional { times, of, last, .. } => u64::from(*times) * of.expanded() + last.expanded(),
        }
    }
}

#[cfg(test)]
mod tests;
