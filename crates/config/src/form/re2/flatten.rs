//! Size of a program after its instructions are written as lists.
//!
//! Each list holds the instructions that are reached from its root without consuming text. A root is what follows an
//! instruction, and what several lists share.

use super::compile::{Code, Inst, Program};

/// The number of instructions in all lists.
pub(super) fn size(mut program: Program) -> u32 {
    if program.start == 0 && program.unanchored == 0 {
        return 1;
    }
    optimize(&mut program);
    let count = program.insts.len();
    let mut walk =
        Walk { program, roots: vec![false; count], before: vec![Vec::new(); count], seen: vec![0; count], turn: 0 };
    walk.successors();
    let first: Vec<usize> = (1..count).rev().filter(|id| walk.roots[*id]).collect();
    for root in first {
        if root != walk.program.start && root != walk.program.unanchored {
            walk.shared(root);
        }
    }
    let roots: Vec<usize> = (0..count).filter(|id| walk.roots[*id]).collect();
    roots.into_iter().map(|root| walk.list(root)).sum()
}

/// Skips instructions without effect, and marks loops that match the rest of the text.
fn optimize(program: &mut Program) {
    let insts = &mut program.insts;
    let after = |insts: &[Inst], mut id: usize| {
        while id != 0 && insts[id].code == Code::Nop {
            id = insts[id].out;
        }
        id
    };
    let mut queue = Queue::new(insts.len(), program.start);
    while let Some(id) = queue.next() {
        insts[id].out = after(insts, insts[id].out);
        queue.add(insts[id].out);
        if insts[id].code == Code::Alt {
            insts[id].other = after(insts, insts[id].other);
            queue.add(insts[id].other);
        }
    }
    let matches = |insts: &[Inst], mut id: usize| loop {
        match insts[id].code {
            Code::Match => break true,
            Code::Nop | Code::Capture => id = insts[id].out,
            _ => break false,
        }
    };
    let mut queue = Queue::new(insts.len(), program.start);
    while let Some(id) = queue.next() {
        let inst = insts[id];
        queue.add(inst.out);
        if !matches!(inst.code, Code::Alt) {
            continue;
        }
        queue.add(inst.other);
        let loops = |byte: usize| insts[byte].code == Code::Byte { any: true } && insts[byte].out == id;
        let ends = |rest: usize| matches(insts, rest);
        if (loops(inst.out) && ends(inst.other)) || (ends(inst.out) && loops(inst.other)) {
            insts[id].code = Code::AltMatch;
        }
    }
}

/// Instructions in the order in which they are found, each once.
struct Queue {
    found: Vec<usize>,
    known: Vec<bool>,
    next: usize,
}

impl Queue {
    fn new(count: usize, start: usize) -> Queue {
        let mut queue = Queue { found: Vec::new(), known: vec![false; count], next: 0 };
        queue.add(start);
        queue
    }

    fn add(&mut self, id: usize) {
        if id != 0 && !std::mem::replace(&mut self.known[id], true) {
            self.found.push(id);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let id = self.found.get(self.next).copied();
        self.next += 1;
        id
    }
}

struct Walk {
    program: Program,
    roots: Vec<bool>,
    /// For each instruction, the branches that lead to it.
    before: Vec<Vec<usize>>,
    /// The turn in which an instruction was last seen.
    seen: Vec<u32>,
    turn: u32,
}

impl Walk {
    fn begin(&mut self) {
        self.turn += 1;
    }

    /// Whether this turn sees an instruction for the first time.
    fn is_new(&mut self, id: usize) -> bool {
        std::mem::replace(&mut self.seen[id], self.turn) != self.turn
    }

    /// Marks the starts, and what follows an instruction that consumes or checks text.
    fn successors(&mut self) {
        self.begin();
        let starts = [0, self.program.unanchored, self.program.start];
        starts.iter().for_each(|id| self.roots[*id] = true);
        let mut stack = vec![self.program.unanchored];
        while let Some(id) = stack.pop() {
            if !self.is_new(id) {
                continue;
            }
            let inst = self.program.insts[id];
            match inst.code {
                Code::Alt | Code::AltMatch => {
                    for next in [inst.out, inst.other] {
                        self.before[next].push(id);
                    }
                    stack.extend([inst.other, inst.out]);
                }
                Code::Byte { .. } | Code::Capture | Code::Assert => {
                    self.roots[inst.out] = true;
                    stack.push(inst.out);
                }
                Code::Nop => stack.push(inst.out),
                Code::Match | Code::Fail => {}
            }
        }
    }

    /// The instructions of the list of a root, without those of other lists, and the roots of others that it leads to.
    fn reached(&mut self, root: usize) -> (Vec<usize>, Vec<usize>) {
        self.begin();
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            if !self.is_new(id) {
                continue;
            }
            if id != root && self.roots[id] {
                others.push(id);
                continue;
            }
            own.push(id);
            let inst = self.program.insts[id];
            match inst.code {
                Code::Alt | Code::AltMatch => stack.extend([inst.other, inst.out]),
                Code::Nop => stack.push(inst.out),
                _ => {}
            }
        }
        (own, others)
    }

    /// Makes roots of the instructions of a list that other lists lead to as well.
    fn shared(&mut self, root: usize) {
        let (own, others) = self.reached(root);
        for id in own.into_iter().chain(others) {
            if self.before[id].iter().any(|before| self.seen[*before] != self.turn) {
                self.roots[id] = true;
            }
        }
    }

    /// The length of a list.
    fn list(&mut self, root: usize) -> u32 {
        let (own, others) = self.reached(root);
        let counted = own.iter().filter(|id| !matches!(self.program.insts[**id].code, Code::Alt | Code::Nop)).count();
        u32::try_from(counted + others.len()).unwrap_or(u32::MAX)
    }
}
