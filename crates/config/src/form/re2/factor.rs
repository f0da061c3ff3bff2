//! Factors common prefixes of alternatives: `ABC|ABD|AEF` becomes `A(?:B[CD]|EF)`.

use super::class::Class;
use super::{Assertion, Node};

/// Factors alternatives in three rounds: literals, first parts, and single bytes.
pub(super) fn factor(alternatives: Vec<Node>) -> Vec<Node> {
    let alternatives = round(alternatives, common_text, |node, prefix: &Text| without_text(node, prefix.bytes.len()));
    let alternatives = round(alternatives, common_part, |node, _: &Node| without_part(node));
    classes(alternatives)
}

/// Replaces each run of alternatives with a common prefix by the prefix and the factored rests.
fn round<P>(
    alternatives: Vec<Node>,
    common: impl Fn(Option<P>, &Node) -> (Option<P>, bool),
    rest: impl Fn(Node, &P) -> Node,
) -> Vec<Node>
where
    Node: From<P>,
{
    let mut out = Vec::new();
    let mut run: Vec<Node> = Vec::new();
    let mut prefix: Option<P> = None;
    let mut finish = |run: Vec<Node>, prefix: Option<P>| match prefix {
        Some(prefix) if run.len() > 1 => {
            let rests = run.into_iter().map(|node| rest(node, &prefix)).collect();
            out.push(Node::Concat(vec![prefix.into(), Node::alternate(factor(rests))]));
        }
        _ => out.extend(run),
    };
    for node in alternatives {
        let (next, same) = common(prefix.take(), &node);
        if same {
            prefix = next;
        } else {
            // `common` returns the prefix of the run and not that of the node.
            finish(std::mem::take(&mut run), next);
            prefix = common(None, &node).0;
        }
        run.push(node);
    }
    finish(run, prefix);
    out
}

/// Literal bytes at the beginning.
struct Text {
    bytes: Vec<u8>,
    fold: bool,
}

impl From<Text> for Node {
    fn from(text: Text) -> Node {
        Node::Literal { bytes: text.bytes, fold: text.fold }
    }
}

fn leading_text(node: &Node) -> Option<Text> {
    match node {
        Node::Concat(parts) => leading_text(parts.first()?),
        Node::Literal { bytes, fold } => Some(Text { bytes: bytes.clone(), fold: *fold }),
        _ => None,
    }
}

/// The prefix of a run with this node, and true; or the prefix without it, and false.
fn common_text(prefix: Option<Text>, node: &Node) -> (Option<Text>, bool) {
    let own = leading_text(node);
    match (prefix, own) {
        (None, own) => (own, false),
        (Some(prefix), Some(own)) if prefix.fold == own.fold => {
            let same = prefix.bytes.iter().zip(&own.bytes).take_while(|(a, b)| a == b).count();
            match same {
                0 => (Some(prefix), false),
                same => (Some(Text { bytes: own.bytes[..same].to_vec(), fold: own.fold }), true),
            }
        }
        (prefix, _) => (prefix, false),
    }
}

/// The node without this many leading bytes.
fn without_text(node: Node, count: usize) -> Node {
    match node {
        Node::Literal { bytes, .. } if bytes.len() <= count => Node::Empty,
        Node::Literal { bytes, fold } => Node::Literal { bytes: bytes[count..].to_vec(), fold },
        Node::Concat(mut parts) if !parts.is_empty() => match without_text(parts.remove(0), count) {
            Node::Empty => Node::concat(parts),
            first => {
                parts.insert(0, first);
                Node::Concat(parts)
            }
        },
        other => other,
    }
}

fn leading_part(node: &Node) -> Option<&Node> {
    match node {
        Node::Empty => None,
        Node::Concat(parts) if parts.len() > 1 => parts.first().filter(|first| **first != Node::Empty),
        other => Some(other),
    }
}

/// The same for first parts. Parts whose repetition varies are not factored.
fn common_part(prefix: Option<Node>, node: &Node) -> (Option<Node>, bool) {
    let own = leading_part(node);
    let Some(prefix) = prefix else { return (own.cloned(), false) };
    let fixed = match &prefix {
        Node::Assert(
            Assertion::BeginLine
            | Assertion::EndLine
            | Assertion::WordBoundary
            | Assertion::NotWordBoundary
            | Assertion::BeginText
            | Assertion::EndText { .. },
        )
        | Node::Class(_)
        | Node::AnyChar
        | Node::AnyByte => true,
        Node::Counted { least, most, of, .. } => Some(*least) == *most && of.is_one(),
        _ => false,
    };
    let same = fixed && own.is_some_and(|own| is_same(&prefix, own));
    (Some(prefix), same)
}

/// Whether two parts match the same. Of the flags of repetitions, only the preference counts.
fn is_same(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (
            Node::Counted { least, most, flags, of },
            Node::Counted { least: least_b, most: most_b, flags: flags_b, of: of_b },
        ) => (least, most, flags.lazy, of) == (least_b, most_b, flags_b.lazy, of_b),
        _ => a == b,
    }
}

fn without_part(node: Node) -> Node {
    match node {
        Node::Concat(mut parts) if parts.len() > 1 && parts[0] != Node::Empty => {
            parts.remove(0);
            Node::concat(parts)
        }
        Node::Concat(_) | Node::Empty => node,
        _ => Node::Empty,
    }
}

/// Merges runs of bytes and classes into one class.
fn classes(alternatives: Vec<Node>) -> Vec<Node> {
    let of = |node: &Node| match node {
        Node::Class(class) => Some(*class),
        Node::Literal { bytes, fold } if bytes.len() == 1 => {
            let class = Class::of(&[(bytes[0], bytes[0])]);
            Some(if *fold { class.folded() } else { class })
        }
        _ => None,
    };
    let mut out: Vec<Node> = Vec::new();
    for node in alternatives {
        match (out.last().and_then(of), of(&node)) {
            (Some(last), Some(class)) => {
                out.pop();
                out.push(Node::Class(last.union(class)));
            }
            _ => out.push(node),
        }
    }
    out
}
