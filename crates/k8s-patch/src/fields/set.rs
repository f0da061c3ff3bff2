//! Sets of fields and their operations.

use std::collections::BTreeMap;

use config::schema::{Schema, Shape};

use crate::fields::Element;

/// A set of fields.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Set {
    nodes: BTreeMap<Element, Node>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Node {
    member: bool,
    children: Set,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether an element is a member.
    pub(crate) fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// The fields below an element.
    pub(crate) fn below(&self, element: &Element) -> Option<&Set> {
        self.nodes.get(element).map(|node| &node.children).filter(|set| !set.is_empty())
    }

    /// Adds a path. The empty path is ignored.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Adds the fields below an element of another set. Empty children are not kept.
    pub(crate) fn attach(&mut self, element: Element, member: bool, children: Set) {
        if !member && children.is_empty() {
            return;
        }
        let node = self.nodes.entry(element).or_default();
        node.member |= member;
        node.children.extend(&children);
    }

    /// Adds all members of another set.
    pub(crate) fn extend(&mut self, other: &Set) {
        for (element, theirs) in &other.nodes {
            let node = self.nodes.entry(element.clone()).or_default();
            node.member |= theirs.member;
            node.children.extend(&theirs.children);
        }
    }

    /// The intersection.
    pub(crate) fn intersection(&self, other: &Set) -> Set {
        self.combine(other, |mine, theirs| mine && theirs, false)
    }

    /// The difference.
    pub(crate) fn difference(&self, other: &Set) -> Set {
        self.combine(other, |mine, theirs| mine && !theirs, true)
    }

    /// Removes an element and everything below it.
    pub(crate) fn remove_tree(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let element = Element::field(first);
        if rest.is_empty() {
            self.nodes.remove(&element);
        } else if let Some(node) = self.nodes.get_mut(&element) {
            node.children.remove_tree(rest);
            if !node.member && node.children.is_empty() {
                self.nodes.remove(&element);
            }
        }
    }

    /// Keeps only a field and everything below it.
    pub(crate) fn retain_tree(&mut self, name: &str) {
        let element = Element::field(name);
        self.nodes.retain(|other, _| *other == element);
    }

    /// Adds declared fields that have members below them.
    ///
    /// An applier of `spec.strategy.type` also owns `spec.strategy`, although its set does not contain it.
    pub(crate) fn with_parents(&self, schema: Option<&Schema>) -> Set {
        let mut nodes = BTreeMap::new();
        for (element, node) in &self.nodes {
            let (child, declared) = match element {
                Element::Field(name) => {
                    let declared = schema.and_then(Schema::fields).is_some_and(|fields| fields.get(name).is_some());
                    (schema.and_then(|schema| schema.field(name)), declared)
                }
                _ => (schema.and_then(Schema::items), false),
            };
            // Declared lists and maps with owned items are owned, too.
            let implied = declared && !node.children.is_empty();
            let children = node.children.with_parents(child.map(|schema| &**schema).filter(known));
            nodes.insert(element.clone(), Node { member: node.member || implied, children });
        }
        Set { nodes }
    }

    /// Calls a function for the path of every member, in order.
    pub(crate) fn each(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for (element, node) in &self.nodes {
            path.push(element.clone());
            if node.member {
                visit(path);
            }
            node.children.each(path, visit);
            path.pop();
        }
    }

    /// The elements in order, each with its membership and children.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (&Element, bool, &Set)> {
        self.nodes.iter().map(|(element, node)| (element, node.member, &node.children))
    }

    /// Combines two sets; `alone` determines whether elements that only one set has are kept.
    fn combine(&self, other: &Set, member: fn(bool, bool) -> bool, alone: bool) -> Set {
        let mut nodes = BTreeMap::new();
        for (element, mine) in &self.nodes {
            let node = match other.nodes.get(element) {
                Some(theirs) => Node {
                    member: member(mine.member, theirs.member),
                    children: mine.children.combine(&theirs.children, member, alone),
                },
                None if alone => mine.clone(),
                None => continue,
            };
            if node.member || !node.children.is_empty() {
                nodes.insert(element.clone(), node);
            }
        }
        Set { nodes }
    }
}

/// Whether a schema declares fields.
fn known(schema: &&Schema) -> bool {
    !matches!(schema.shape, Shape::Any)
}
