//! Compiles an expression to instructions.

use super::{Assertion, Node, Operator};

/// An instruction: only what its place in the program depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    Fail,
    /// Matches a byte; `any` if every byte.
    Byte {
        any: bool,
    },
    Capture,
    Assert,
    /// Two ways to go on.
    Alt,
    /// The same, where one way matches the rest of the text.
    AltMatch,
    Nop,
    Match,
}

/// An instruction and its successors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inst {
    pub(super) code: Code,
    pub(super) out: usize,
    pub(super) other: usize,
}

/// The instructions, the first of which fails, and where they start.
pub(super) struct Program {
    pub(super) insts: Vec<Inst>,
    /// The first instruction of a match at the first byte.
    pub(super) start: usize,
    /// The first instruction of a match anywhere.
    pub(super) unanchored: usize,
}

/// An expression without the literal text that must be at its beginning, which RE2 compares before it runs a program.
pub(super) fn without_prefix(node: Node) -> Node {
    let Node::Concat(parts) = &node else { return node };
    let anchors = parts.iter().take_while(|part| **part == Node::Assert(Assertion::BeginText)).count();
    match parts.get(anchors) {
        Some(Node::Literal { .. }) if anchors > 0 => Node::concat(parts[anchors + 1..].to_vec()),
        _ => node,
    }
}

/// Compiles a simplified expression.
pub(super) fn compile(mut node: Node) -> Program {
    let anchored = unanchor(&mut node, false, 0);
    unanchor(&mut node, true, 0);
    let mut compiler = Compiler { insts: vec![Inst { code: Code::Fail, out: 0, other: 0 }] };
    let all = compiler.node(&node);
    let last = compiler.add(Code::Match, 0, 0);
    let all = compiler.cat(all, Frag { begin: last, ends: Vec::new(), nullable: false });
    let start = all.begin;
    let unanchored = if anchored {
        start
    } else {
        let byte = compiler.leaf(Code::Byte { any: true });
        let any = compiler.star(byte, true);
        compiler.cat(any, all).begin
    };
    Program { insts: compiler.insts, start, unanchored }
}

/// Removes the assertion that an expression begins or ends with the text. Whether there was one.
fn unanchor(node: &mut Node, end: bool, depth: usize) -> bool {
    if depth >= 4 {
        return false;
    }
    match node {
        Node::Assert(Assertion::BeginText) if !end => {
            *node = Node::Empty;
            true
        }
        Node::Assert(Assertion::EndText { .. }) if end => {
            *node = Node::Empty;
            true
        }
        Node::Capture(_, of) => unanchor(std::rc::Rc::make_mut(of), end, depth + 1),
        Node::Concat(parts) => {
            let part = if end { parts.last_mut() } else { parts.first_mut() };
            part.is_some_and(|part| unanchor(part, end, depth + 1))
        }
        _ => false,
    }
}

/// Instructions that are not connected to the rest yet.
struct Frag {
    /// The first instruction; 0 if nothing matches.
    begin: usize,
    /// Successors to set: an instruction, and whether its second one.
    ends: Vec<(usize, bool)>,
    nullable: bool,
}

impl Frag {
    const NOTHING: Frag = Frag { begin: 0, ends: Vec::new(), nullable: false };
}

struct Compiler {
    insts: Vec<Inst>,
}

impl Compiler {
    fn add(&mut self, code: Code, out: usize, other: usize) -> usize {
        self.insts.push(Inst { code, out, other });
        self.insts.len() - 1
    }

    fn leaf(&mut self, code: Code) -> Frag {
        let id = self.add(code, 0, 0);
        Frag { begin: id, ends: vec![(id, false)], nullable: !matches!(code, Code::Byte { .. }) }
    }

    fn patch(&mut self, ends: &[(usize, bool)], to: usize) {
        for (id, second) in ends {
            let inst = &mut self.insts[*id];
            *(if *second { &mut inst.other } else { &mut inst.out }) = to;
        }
    }

    fn cat(&mut self, a: Frag, b: Frag) -> Frag {
        if a.begin == 0 || b.begin == 0 {
            return Frag::NOTHING;
        }
        self.patch(&a.ends, b.begin);
        let nop = self.insts[a.begin].code == Code::Nop && a.ends == [(a.begin, false)];
        if nop {
            return b;
        }
        Frag { begin: a.begin, ends: b.ends, nullable: a.nullable && b.nullable }
    }

    fn alt(&mut self, a: Frag, b: Frag) -> Frag {
        if a.begin == 0 {
            return b;
        }
        if b.begin == 0 {
            return a;
        }
        let begin = self.add(Code::Alt, a.begin, b.begin);
        let mut ends = a.ends;
        ends.extend(b.ends);
        Frag { begin, ends, nullable: a.nullable || b.nullable }
    }

    /// An alternative between `begin` and what follows.
    fn branch(&mut self, begin: usize, lazy: bool) -> (usize, (usize, bool)) {
        let id = if lazy { self.add(Code::Alt, 0, begin) } else { self.add(Code::Alt, begin, 0) };
        (id, (id, !lazy))
    }

    fn plus(&mut self, a: Frag, lazy: bool) -> Frag {
        let (id, end) = self.branch(a.begin, lazy);
        self.patch(&a.ends, id);
        Frag { begin: a.begin, ends: vec![end], nullable: a.nullable }
    }

    fn star(&mut self, a: Frag, lazy: bool) -> Frag {
        if a.nullable {
            let plus = self.plus(a, lazy);
            return self.quest(plus, lazy);
        }
        let (id, end) = self.branch(a.begin, lazy);
        self.patch(&a.ends, id);
        Frag { begin: id, ends: vec![end], nullable: true }
    }

    fn quest(&mut self, a: Frag, lazy: bool) -> Frag {
        if a.begin == 0 {
            return self.leaf(Code::Nop);
        }
        let (id, end) = self.branch(a.begin, lazy);
        let mut ends = a.ends;
        ends.push(end);
        Frag { begin: id, ends, nullable: true }
    }

    /// Alternatives of single bytes or ranges.
    fn ranges(&mut self, count: usize) -> Frag {
        let mut out = self.leaf(Code::Byte { any: false });
        for _ in 1..count {
            let next = self.leaf(Code::Byte { any: false });
            out = self.alt(out, next);
        }
        out
    }

    fn concat(&mut self, frags: Vec<Frag>) -> Frag {
        let mut frags = frags.into_iter();
        let first = frags.next().unwrap_or(Frag::NOTHING);
        frags.fold(first, |all, next| self.cat(all, next))
    }

    fn node(&mut self, node: &Node) -> Frag {
        match node {
            Node::Nothing | Node::Counted { .. } => Frag::NOTHING,
            Node::Empty => self.leaf(Code::Nop),
            Node::Literal { bytes, .. } => {
                let frags = bytes.iter().map(|_| self.leaf(Code::Byte { any: false })).collect();
                self.concat(frags)
            }
            Node::Class(class) if *class == super::Class::ALL => self.leaf(Code::Byte { any: true }),
            Node::Class(class) => self.ranges(class.ranges()),
            Node::AnyChar | Node::AnyByte => self.leaf(Code::Byte { any: true }),
            Node::Assert(_) => self.leaf(Code::Assert),
            Node::Capture(_, of) => {
                let inner = self.node(of);
                self.capture(inner)
            }
            Node::Concat(parts) => {
                let frags = parts.iter().map(|part| self.node(part)).collect();
                self.concat(frags)
            }
            Node::Alternate(parts) => {
                let frags: Vec<Frag> = parts.iter().map(|part| self.node(part)).collect();
                let mut frags = frags.into_iter();
                let first = frags.next().unwrap_or(Frag::NOTHING);
                frags.fold(first, |all, next| self.alt(all, next))
            }
            Node::Repeat { operator, flags, of } => {
                let inner = self.node(of);
                match operator {
                    Operator::Star => self.star(inner, flags.lazy),
                    Operator::Plus => self.plus(inner, flags.lazy),
                    Operator::Quest => self.quest(inner, flags.lazy),
                }
            }
            Node::Optional { times, flags, of, last } => {
                let copies: Vec<Frag> = (0..*times).map(|_| self.node(of)).collect();
                let last = self.node(last);
                copies.into_iter().rev().fold(last, |rest, copy| {
                    let both = self.cat(copy, rest);
                    self.quest(both, flags.lazy)
                })
            }
        }
    }

    fn capture(&mut self, inner: Frag) -> Frag {
        if inner.begin == 0 {
            return Frag::NOTHING;
        }
        let id = self.add(Code::Capture, inner.begin, 0);
        let end = self.add(Code::Capture, 0, 0);
        self.patch(&inner.ends, end);
        Frag { begin: id, ends: vec![(end, false)], nullable: inner.nullable }
    }
}
