//! Rewrites counted repetitions by simpler ones.

use std::rc::Rc;

use super::{Flags, Node, Operator};

/// Rewrites an expression without counted repetitions.
pub(super) fn simplify(node: Node) -> Node {
    simpler(coalesced(node)).0
}

/// Joins neighbors that repeat the same: `a+a*aa` becomes `a{3,}`.
fn coalesced(node: Node) -> Node {
    let inner = |of: Rc<Node>| Rc::new(coalesced((*of).clone()));
    match node {
        Node::Capture(number, of) => Node::Capture(number, inner(of)),
        Node::Alternate(parts) => Node::Alternate(parts.into_iter().map(coalesced).collect()),
        Node::Repeat { operator, flags, of } => Node::Repeat { operator, flags, of: inner(of) },
        Node::Counted { least, most, flags, of } => Node::Counted { least, most, flags, of: inner(of) },
        Node::Concat(parts) => {
            let mut parts: Vec<Node> = parts.into_iter().map(coalesced).collect();
            let mut any = false;
            for second in 1..parts.len() {
                if let Some((a, b)) = joined(&parts[second - 1], &parts[second]) {
                    (parts[second - 1], parts[second]) = (a, b);
                    any = true;
                }
            }
            if any {
                parts.retain(|part| *part != Node::Empty);
            }
            Node::Concat(parts)
        }
        other => other,
    }
}

/// The repeated part, with the bounds and flags.
fn repetition(node: &Node) -> Option<(&Rc<Node>, u32, Option<u32>, Flags)> {
    match node {
        Node::Repeat { operator: Operator::Star, flags, of } => Some((of, 0, None, *flags)),
        Node::Repeat { operator: Operator::Plus, flags, of } => Some((of, 1, None, *flags)),
        Node::Repeat { operator: Operator::Quest, flags, of } => Some((of, 0, Some(1), *flags)),
        Node::Counted { least, most, flags, of } => Some((of, *least, *most, *flags)),
        _ => None,
    }
}

/// Two neighbors as one repetition; what is left of them is before or after it.
fn joined(first: &Node, second: &Node) -> Option<(Node, Node)> {
    let (of, least, most, flags) = repetition(first)?;
    if !of.is_one() {
        return None;
    }
    let times = |more: u32, most_more: Option<u32>| Node::Counted {
        least: least + more,
        most: most.zip(most_more).map(|(most, more)| most + more),
        flags,
        of: of.clone(),
    };
    if let Some((other, more, most_more, other_flags)) = repetition(second)
        && other == of
        && other_flags.lazy == flags.lazy
    {
        return Some((Node::Empty, times(more, most_more)));
    }
    if **of == *second {
        return Some((Node::Empty, times(1, Some(1))));
    }
    match (&**of, second) {
        (Node::Literal { bytes: byte, fold }, Node::Literal { bytes, fold: same })
            if fold == same && bytes.first() == byte.first() =>
        {
            let count = bytes.iter().take_while(|other| Some(*other) == byte.first()).count();
            let more = u32::try_from(count).unwrap_or(u32::MAX);
            let repeated = times(more, Some(more));
            if count == bytes.len() {
                return Some((Node::Empty, repeated));
            }
            Some((repeated, Node::Literal { bytes: bytes[count..].to_vec(), fold: *fold }))
        }
        _ => None,
    }
}

/// The simplified node, and whether it differs.
fn simpler(node: Node) -> (Node, bool) {
    match node {
        Node::Class(class) if class.is_empty() => (Node::Nothing, true),
        Node::Concat(parts) => {
            let (parts, changed) = each(parts);
            (Node::Concat(parts), changed)
        }
        Node::Alternate(parts) => {
            let (parts, changed) = each(parts);
            (Node::Alternate(parts), changed)
        }
        Node::Capture(number, of) => {
            let (of, changed) = simpler((*of).clone());
            (Node::Capture(number, Rc::new(of)), changed)
        }
        Node::Repeat { operator, flags, of } => match simpler((*of).clone()) {
            (Node::Empty, _) => (Node::Empty, true),
            (of, changed) => {
                let same = of.repetition().is_some_and(|(inner, of_inner, _)| inner == operator && of_inner == flags);
                let node = if changed && same { of } else { Node::Repeat { operator, flags, of: Rc::new(of) } };
                (node, changed)
            }
        },
        Node::Counted { least, most, flags, of } => match simpler((*of).clone()).0 {
            Node::Empty => (Node::Empty, true),
            of => (written_out(of, least, most, flags), true),
        },
        other => (other, false),
    }
}

fn each(parts: Vec<Node>) -> (Vec<Node>, bool) {
    let mut changed = false;
    let simplify = |part| {
        let (part, differs) = simpler(part);
        changed |= differs;
        part
    };
    let parts = parts.into_iter().map(simplify).collect();
    (parts, changed)
}

/// A counted repetition without counts.
fn written_out(of: Node, mut least: u32, mut most: Option<u32>, flags: Flags) -> Node {
    let empty = |node: &Node| matches!(node, Node::Assert(_));
    if empty(&of) || matches!(&of, Node::Concat(parts) | Node::Alternate(parts) if parts.iter().all(empty)) {
        least = least.min(1);
        most = most.map(|most| most.min(1));
    }
    let copies = |count: u32| std::iter::repeat_n(of.clone(), count as usize);
    let shared = Rc::new(of.clone());
    let Some(most) = most else {
        let operator = if least == 0 { Operator::Star } else { Operator::Plus };
        let last = Node::repeat(operator, shared, flags);
        return Node::concat(copies(least.saturating_sub(1)).chain([last]).collect());
    };
    let optional = (most > least).then(|| {
        let last = Node::repeat(Operator::Quest, shared.clone(), flags);
        match most - least - 1 {
            0 => last,
            times => Node::Optional { times, flags, of: shared, last: Rc::new(last) },
        }
    });
    match (least, optional) {
        (0, None) => Node::Empty,
        (0, Some(optional)) => optional,
        (least, None) => Node::concat(copies(least).collect()),
        (least, Some(optional)) => Node::Concat(vec![Node::concat(copies(least).collect()), optional]),
    }
}
