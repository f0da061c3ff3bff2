//! `FieldsV1`: sets of fields as JSON.

use serde_json::{Map, Value as Json};

use crate::fields::{Element, Set};

/// Maximum nesting of a parsed set.
const MAX_DEPTH: usize = 128;

/// Formats a set as `FieldsV1`.
pub(crate) fn encode(set: &Set) -> Json {
    encode_node(false, set)
}

fn encode_node(member: bool, children: &Set) -> Json {
    let mut out = Map::new();
    if member && !children.is_empty() {
        out.insert(".".into(), Json::Object(Map::new()));
    }
    for (element, member, below) in children.steps() {
        out.insert(element.encode(), encode_node(member, below));
    }
    Json::Object(out)
}

/// Parses `FieldsV1`; none if it is invalid.
pub(crate) fn decode(json: &Json) -> Option<Set> {
    decode_node(json, MAX_DEPTH).map(|(_, set)| set)
}

/// Whether the element itself is a member, and its children.
fn decode_node(json: &Json, depth: usize) -> Option<(bool, Set)> {
    let depth = depth.checked_sub(1)?;
    let object = json.as_object()?;
    let mut member = object.is_empty();
    let mut set = Set::default();
    for (name, below) in object {
        if name == "." {
            member = true;
            continue;
        }
        let (is_member, children) = decode_node(below, depth)?;
        set.attach(Element::decode(name)?, is_member, children);
    }
    Some((member, set))
}
