//! Explains a row by its reads, and theirs, down to the inputs.

use std::fmt;

use rustc_hash::FxHashSet;

use crate::Relation;
use crate::engine::Engine;
use crate::schema::Kind;
use crate::show::shown;

/// The default maximum number of nodes in a tree.
const NODES: usize = 1_000;
/// The maximum length of a displayed key, in bytes.
const KEY: usize = 200;

/// A cell and the tree of reads that it was derived from, down to the inputs.
///
/// Reads are in the order in which the rule made them. The first child of a world rule's cell is the cell whose key it
/// exists for; the children of an index row are the rows that it lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The relation's name.
    pub relation: &'static str,
    /// The key as `Debug` shows it, shortened if long; empty for a key set.
    pub key: String,
    /// The state of the cell.
    pub state: WhyState,
    /// Whether the last run panicked: the row is the last good one, the reads are those before the panic.
    pub panicked: bool,
    /// Whether the cell occurs elsewhere in the tree, with its reads.
    pub repeated: bool,
    /// Its reads.
    pub reads: Vec<Why>,
    /// The number of reads that are left out because the tree is full.
    pub omitted: usize,
}

/// The state of a cell in a [`Why`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyState {
    /// The cell has a row.
    Present,
    /// The cell has no row: the key is absent, or its rule returned `None`.
    Absent,
    /// The cell is the key set of the relation.
    KeySet,
    /// The view is not live, so its row is not known.
    NotDerived,
}

impl Engine {
    /// Explains the row of `key` with at most 1,000 nodes.
    pub fn why<R: Relation>(&self, key: &R::Key) -> Why {
        self.why_within::<R>(key, NODES)
    }

    /// Explains the row of `key` with at most `nodes` nodes. Nodes near the root take precedence.
    pub fn why_within<R: Relation>(&self, key: &R::Key, nodes: usize) -> Why {
        let relation = self.registered::<R>();
        if let Some(cell) = self.core.find(relation, key) {
            return self.tree(cell, nodes);
        }
        let view = self.core.schema.relations[relation].kind == Kind::View;
        let state = if view { WhyState::NotDerived } else { WhyState::Absent };
        Why { key: shown(key, KEY), ..Why::new(R::NAME, state) }
    }

    /// Builds the tree breadth first, so that a full tree has everything near the root.
    fn tree(&self, root: u32, limit: usize) -> Why {
        let mut items = vec![Item { node: self.describe(root), cell: root, children: Vec::new() }];
        let mut seen = FxHashSet::from_iter([root]);
        let mut at = 0;
        while at < items.len() {
            if !items[at].node.repeated {
                for cell in self.needed(items[at].cell) {
                    if items.len() >= limit {
                        items[at].node.omitted += 1;
                        continue;
                    }
                    let mut node = self.describe(cell);
                    node.repeated = !seen.insert(cell);
                    let child = items.len();
                    items[at].children.push(child);
                    items.push(Item { node, cell, children: Vec::new() });
                }
            }
            at += 1;
        }
        assemble(items)
    }

    /// The cells that a cell was derived from.
    fn needed(&self, cell: u32) -> Vec<u32> {
        let Some((relation, _)) = self.core.graph.locate(cell) else {
            return Vec::new();
        };
        let node = self.core.graph.node(cell);
        let mut needed = if node.held { self.core.base_cells(relation, cell) } else { Vec::new() };
        let first = needed.clone();
        needed.extend(node.reads.as_slice().iter().filter(|read| !first.contains(read)));
        needed
    }

    fn describe(&self, cell: u32) -> Why {
        let (graph, schema) = (&self.core.graph, &self.core.schema);
        if let Some(relation) = graph.as_key_set(cell) {
            return Why::new(schema.relations[relation].name, WhyState::KeySet);
        }
        let relation = graph.relation(cell);
        let state = if self.core.row(relation, cell).is_some() { WhyState::Present } else { WhyState::Absent };
        let key = self.core.key(relation, cell).map(|key| shown(&key, KEY)).unwrap_or_default();
        let panicked = graph.node(cell).poisoned;
        Why { key, panicked, ..Why::new(schema.relations[relation].name, state) }
    }
}

struct Item {
    node: Why,
    cell: u32,
    children: Vec<usize>,
}

/// Assembles the tree backwards: children come after their parents, so each is complete when its parent needs it.
fn assemble(items: Vec<Item>) -> Why {
    let mut whole: Vec<Option<Why>> = Vec::new();
    whole.resize_with(items.len(), || None);
    let mut root = None;
    for (at, item) in items.into_iter().enumerate().rev() {
        let reads = item.children.iter().filter_map(|child| whole[*child].take()).collect();
        let node = Why { reads, ..item.node };
        if at == 0 {
            root = Some(node);
        } else {
            whole[at] = Some(node);
        }
    }
    root.unwrap_or_else(|| Why::new("", WhyState::Absent))
}

impl Why {
    fn new(relation: &'static str, state: WhyState) -> Self {
        let (panicked, repeated, omitted) = (false, false, 0);
        Self { relation, key: String::new(), state, panicked, repeated, reads: Vec::new(), omitted }
    }

    /// This node and all nodes below it, parents first.
    pub fn nodes(&self) -> Vec<&Self> {
        let mut nodes = vec![self];
        nodes.extend(self.reads.iter().flat_map(Self::nodes));
        nodes
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{:depth$}{}", "", self.relation, depth = depth * 2)?;
        match self.state {
            WhyState::Present => write!(f, " {}", self.key)?,
            WhyState::Absent => write!(f, " {} (absent)", self.key)?,
            WhyState::KeySet => write!(f, " (all keys)")?,
            WhyState::NotDerived => write!(f, " {} (nobody needs it)", self.key)?,
        }
        if self.panicked {
            write!(f, " (panicked; this is the last good row)")?;
        }
        writeln!(f, "{}", if self.repeated { " (see above)" } else { "" })?;
        for read in &self.reads {
            read.write(f, depth + 1)?;
        }
        if self.omitted > 0 {
            writeln!(f, "{:depth$}and {} more", "", self.omitted, depth = depth * 2 + 2)?;
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    /// A line for each node, indented by its depth.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
