//! Builds the tree from parser events, within limits.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, Tag};

use crate::parse::Limits;
use crate::problem::FieldPath;
use crate::yaml::entries::Entries;
use crate::yaml::node::{Entry, quote};
use crate::yaml::{Document, Node, Position, Scalar, Value};

/// An error that makes a document unreadable.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Position,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// For a duplicate key: its path.
    pub(crate) path: FieldPath,
}

impl SyntaxError {
    /// An error about a document as a whole.
    pub(crate) fn new(at: Position, code: &'static str, message: impl Into<String>) -> SyntaxError {
        SyntaxError { at, code, message: message.into(), path: FieldPath::root() }
    }
}

/// Parses one document. Duplicate keys are reported, and the first is kept.
pub(crate) fn parse_document(document: Document<'_>, limits: &Limits) -> Result<(Node, Vec<SyntaxError>), SyntaxError> {
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    options.set_emit_comments(false);
    let mut builder = Builder {
        first_line: document.first_line,
        limits,
        nodes: 0,
        repeated: 0,
        open: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        duplicates: Vec::new(),
    };
    for event in Parser::new_from_str_with_options(document.text, options) {
        let (event, span) = event.map_err(|e| {
            let at = builder.position(e.marker().line(), e.marker().col());
            error(at, "syntax", e.info())
        })?;
        builder.event(event, span)?;
    }
    let at = builder.position(1, 0);
    let root = builder.root.unwrap_or(Node { value: Value::Plain("".into()), at });
    Ok((root, builder.duplicates))
}

struct Builder<'l> {
    first_line: u32,
    limits: &'l Limits,
    nodes: usize,
    repeated: usize,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    duplicates: Vec<SyntaxError>,
}

/// A list or map that is not complete yet.
struct Open {
    at: Position,
    anchor: usize,
    body: Body,
}

enum Body {
    List(Vec<Node>),
    /// `pair`: a flow mapping of one pair in a list, without braces.
    Map {
        entries: Entries,
        key: Option<(Arc<str>, Position)>,
        merged: Entries,
        pair: bool,
    },
}

type Step = Result<(), SyntaxError>;

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Step {
        let at = self.position(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = Node { value: self.scalar(&text, style, tag.as_deref(), at)?, at };
                self.remember(anchor, &node)?;
                self.place(node, style == ScalarStyle::Plain)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", at)?;
                self.start(Open { at, anchor, body: Body::List(Vec::new()) })
            }
            Event::MappingStart(style, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", at)?;
                // `[fd00::]` is a pair within a list, which has no braces of its own.
                let in_list = matches!(self.open.last(), Some(Open { body: Body::List(_), .. }));
                let pair = in_list && style == StructureStyle::Flow && span.start.index() == span.end.index();
                let body = Body::Map { entries: Entries::default(), key: None, merged: Entries::default(), pair };
                self.start(Open { at, anchor, body })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let node = self.anchors.get(&id).cloned();
                let node = node.ok_or_else(|| error(at, "syntax", "an alias refers to a value that contains it"))?;
                self.count_repeated(size(&node), at)?;
                if self.open.len() + depth(&node) > self.limits.depth {
                    return Err(error(at, "limit", format!("more than {} levels deep", self.limits.depth)));
                }
                self.place(node, false)
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, open: Open) -> Step {
        self.count(1, open.at)?;
        if self.open.len() >= self.limits.depth {
            return Err(error(open.at, "limit", format!("more than {} levels deep", self.limits.depth)));
        }
        if let Some(Open { body: Body::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(error(open.at, "syntax", "a key must be a string"));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Step {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.body {
            Body::List(items) => Value::List(items),
            Body::Map { entries, pair: true, .. } if address(&entries).is_some() => {
                Value::Plain(address(&entries).unwrap_or_default())
            }
            Body::Map { mut entries, merged, .. } => {
                for entry in merged.list {
                    if entries.find(&entry.key).is_none() {
                        entries.push(entry);
                    }
                }
                Value::Map(entries.list)
            }
        };
        let node = Node { value, at: open.at };
        self.remember(open.anchor, &node)?;
        self.place(node, false)
    }

    /// Adds a complete node to the innermost open list or map.
    fn place(&mut self, node: Node, plain: bool) -> Step {
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return Ok(());
        };
        match &mut open.body {
            Body::List(items) => items.push(node),
            Body::Map { entries, key, merged, .. } => match key.take() {
                None => {
                    let text = match node.value {
                        Value::Plain(text) | Value::Quoted(text) | Value::Literal(text) => text,
                        _ => return Err(error(node.at, "syntax", "a key must be a string")),
                    };
                    // A quoted `<<` is an ordinary key.
                    let text = if &*text == "<<" && plain { MERGE.into() } else { text };
                    *key = Some((text, node.at));
                }
                Some((text, at)) if &*text == MERGE => merge(node, at, merged)?,
                Some((text, at)) => match entries.find(&text) {
                    None => entries.push(Entry { key: text, at, value: node }),
                    Some(first) => {
                        let message =
                            format!("the key {} is here twice, first in line {}", quote(&text), first.at.line);
                        let mut twice = error(at, "duplicate-key", message);
                        twice.path = path_of(&self.open).field(text);
                        // Duplicates are assigned to the objects of a list by their places, so all of them must be
                        // kept, or none.
                        if self.duplicates.len() >= MAX_DUPLICATES {
                            return Err(twice);
                        }
                        self.duplicates.push(twice);
                    }
                },
            },
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        at: Position,
    ) -> Result<Value, SyntaxError> {
        self.count(1, at)?;
        let text: Arc<str> = text.into();
        match tag.map(|t| (t, t.core_suffix())) {
            None if style == ScalarStyle::Plain => Ok(Value::Plain(text)),
            None if style == ScalarStyle::Literal => Ok(Value::Literal(text)),
            None | Some((_, Some("str"))) => Ok(Value::Quoted(text)),
            Some((_, Some("null"))) => Ok(Value::Plain("".into())),
            Some((_, Some("bool" | "int" | "float"))) if !matches!(Scalar::resolve(&text), Scalar::Text(_)) => {
                Ok(Value::Plain(text))
            }
            Some((tag, _)) => Err(error(at, "syntax", format!("the tag {} does not fit here", tag.original()))),
        }
    }

    fn check_tag(&self, tag: Option<&Tag>, expected: &str, at: Position) -> Step {
        match tag {
            Some(tag) if tag.core_suffix() != Some(expected) => {
                Err(error(at, "syntax", format!("the tag {} does not fit here", tag.original())))
            }
            _ => Ok(()),
        }
    }

    /// Stores a copy of an anchored value. Copies count as values, because anchors can be nested.
    fn remember(&mut self, anchor: usize, node: &Node) -> Step {
        if anchor != 0 {
            self.count_repeated(size(node), node.at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Step {
        self.nodes += nodes;
        match self.nodes > self.limits.nodes {
            true => Err(error(at, "limit", format!("more than {} values in a document", self.limits.nodes))),
            false => Ok(()),
        }
    }

    /// Every use of an alias counts, so that a few lines cannot expand to millions of nodes.
    fn count_repeated(&mut self, nodes: usize, at: Position) -> Step {
        self.repeated += nodes;
        if self.repeated > self.limits.repeated {
            return Err(error(at, "limit", format!("aliases expand to more than {} values", self.limits.repeated)));
        }
        self.count(nodes, at)
    }

    /// The position in the file, from a line (1-based) of the document and a column (0-based).
    fn position(&self, line: usize, column: usize) -> Position {
        let line = u32::try_from(line).unwrap_or(u32::MAX).saturating_sub(1);
        let column = u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1);
        Position { line: self.first_line.saturating_add(line), column }
    }
}

/// The IPv6 address that a pair without a value is: in YAML 1.2, `[fd00::]` is a list of a map with the key `fd00:`. The
/// parser of Istio and Kubernetes reads a list of a text.
fn address(pair: &Entries) -> Option<Arc<str>> {
    let [entry] = &*pair.list else { return None };
    let text = format!("{}:", entry.key);
    (entry.value.is_null() && text.parse::<std::net::Ipv6Addr>().is_ok()).then(|| text.into())
}

/// Limit of duplicate keys. A document with more is not read.
const MAX_DUPLICATES: usize = 10_000;

/// Placeholder for the merge key while a map is open. No file can contain it, because YAML does not allow the
/// character.
const MERGE: &str = "\u{0}<<";

/// The entries of a merge key: those of a map, or of each map of a list in order.
fn merge(node: Node, at: Position, merged: &mut Entries) -> Step {
    let maps = match node.value {
        Value::Map(entries) => vec![entries],
        Value::List(items) if items.iter().all(|i| matches!(i.value, Value::Map(_))) => {
            items.iter().map(|i| i.entries().to_vec()).collect()
        }
        _ => {
            return Err(error(at, "syntax", "a merge key (<<) takes an object or a list of objects"));
        }
    };
    for entry in maps.into_iter().flatten() {
        if merged.find(&entry.key).is_none() {
            merged.push(entry);
        }
    }
    Ok(())
}

/// The path to the innermost open list or map.
fn path_of(open: &[Open]) -> FieldPath {
    let outer = &open[..open.len().saturating_sub(1)];
    outer.iter().fold(FieldPath::root(), |path, open| match &open.body {
        Body::List(items) => path.index(items.len()),
        Body::Map { key: Some((key, _)), .. } => path.field(key.clone()),
        Body::Map { key: None, .. } => path,
    })
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|e| 1 + size(&e.value)).sum::<usize>(),
        _ => 1,
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|e| depth(&e.value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn error(at: Position, code: &'static str, message: impl Into<String>) -> SyntaxError {
    SyntaxError::new(at, code, message)
}
