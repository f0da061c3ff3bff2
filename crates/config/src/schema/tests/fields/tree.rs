//! The tables of the page: one for each kind and for each message that is used at several places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Kind;
use crate::effects::{CODE, ELSEWHERE_CODE, KINDS_NOT_YET};
use crate::problem::Severity;
use crate::schema::{Check, Fields, Schema, Shape};

/// Whether a field has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Yes,
    /// Some of the fields below it have none yet.
    InPart,
    NotYet,
    None,
    /// Objects with the field are rejected.
    Rejected,
}

/// A field.
pub(super) struct Row {
    /// The path from `spec`, or from the message. `[]` means every item of a list, `*` every key of a map.
    pub(super) path: String,
    pub(super) schema: Arc<Schema>,
    pub(super) required: bool,
    pub(super) effect: Effect,
    /// The message that has a table of its own, if the field has such a message.
    pub(super) message: Option<&'static str>,
}

/// The fields of a kind or message.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The kind; none if this is a message.
    pub(super) kind: Option<Kind>,
    pub(super) schema: Arc<Schema>,
    pub(super) rows: Vec<Row>,
}

/// The kinds of the page.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| kind.is_istio() || kind.is_setting())
}

/// The innermost schema of nested lists and maps, and the text that a path has for them.
fn inner(schema: &Arc<Schema>) -> (Arc<Schema>, String) {
    let (inside, step) = match &schema.shape {
        Shape::List(items, ..) => (items, "[]"),
        Shape::Map(values, _) => (values, ".*"),
        _ => return (schema.clone(), String::new()),
    };
    let (innermost, rest) = inner(inside);
    (innermost, format!("{step}{rest}"))
}

/// Identifies a message: by its name, and by its first field, because two messages can have one name.
type Identity = (&'static str, Option<*const Schema>);

fn identity(fields: &Fields) -> Identity {
    (fields.message, fields.fields.first().map(|(_, field)| Arc::as_ptr(field)))
}

/// Messages with their numbers of places.
type Messages = BTreeMap<Identity, (Arc<Schema>, usize)>;

/// Counts the places of each message. The contents of a message that may get a table count once.
fn count(schema: &Arc<Schema>, found: &mut Messages) {
    let Some(fields) = schema.fields() else { return };
    let (_, places) = found.entry(identity(fields)).or_insert_with(|| (schema.clone(), 0));
    *places += 1;
    if *places == 1 || fields.fields.len() == 1 {
        for (_, field) in &fields.fields {
            count(&inner(field).0, found);
        }
    }
}

/// All tables: kinds in their order, then messages by name. A message with one field is part of the tables that use it.
pub(super) fn tables() -> Vec<Table> {
    let mut found = Messages::new();
    for kind in kinds() {
        count(&kind.content_schema(), &mut found);
    }
    found.retain(|_, (schema, places)| *places > 1 && schema.fields().is_some_and(|fields| fields.fields.len() > 1));
    // A message has an effect if it has one at any of its places, which may be in other messages.
    let mut effective = BTreeSet::new();
    loop {
        let tables = build(&found, &effective);
        let rows = tables.iter().flat_map(|table| &table.rows);
        let more: BTreeSet<&str> = rows.filter(|row| row.effect == Effect::Yes).filter_map(|row| row.message).collect();
        if more == effective {
            return tables;
        }
        effective = more;
    }
}

fn build(messages: &Messages, effective: &BTreeSet<&str>) -> Vec<Table> {
    let of = |name, kind, schema: Arc<Schema>, effect| {
        let mut rows = Vec::new();
        collect(&schema, "", effect, messages, &mut rows);
        Table { name, kind, schema, rows }
    };
    let tables = kinds().map(|kind| {
        let effect = if KINDS_NOT_YET.contains(&kind) { Effect::NotYet } else { Effect::Yes };
        of(kind.name(), Some(kind), kind.content_schema(), effect)
    });
    let is_kind = |id: &Identity| kinds().any(|kind| kind.content_schema().fields().map(identity) == Some(*id));
    let others = messages.iter().filter(|(id, _)| !is_kind(id)).map(|((name, _), (schema, _))| {
        let effect = if effective.contains(name) { Effect::Yes } else { Effect::NotYet };
        of(name, None, schema.clone(), effect)
    });
    tables.chain(others).collect()
}

/// Adds the fields of a schema and of the messages in it.
fn collect(schema: &Arc<Schema>, above: &str, effect: Effect, messages: &Messages, rows: &mut Vec<Row>) {
    let Some(fields) = schema.fields() else { return };
    for (name, field) in &fields.fields {
        let path = if above.is_empty() { (*name).to_owned() } else { format!("{above}.{name}") };
        let (innermost, steps) = inner(field);
        let message = innermost.fields().map(identity).filter(|id| messages.contains_key(id)).map(|(name, _)| name);
        let effect = if effect == Effect::Yes { declared(field) } else { effect };
        let required =
            fields.required.contains(name) || field.checks.iter().any(|check| matches!(check, Check::Needed));
        let position = rows.len();
        rows.push(Row { path: path.clone(), schema: field.clone(), required, effect, message });
        if message.is_none() {
            collect(&innermost, &format!("{path}{steps}"), effect, messages, rows);
        }
        if effect == Effect::Yes && rows[position + 1..].iter().any(|row| row.effect == Effect::NotYet) {
            rows[position].effect = Effect::InPart;
        }
    }
}

/// The effect that the checks of a field declare.
fn declared(schema: &Schema) -> Effect {
    let unwanted = schema.checks.iter().find_map(|check| match check {
        Check::Unwanted(severity, code, _) => Some((*severity, *code)),
        _ => None,
    });
    match unwanted {
        Some((Severity::Error, _)) => Effect::Rejected,
        Some((_, CODE)) => Effect::NotYet,
        Some((_, ELSEWHERE_CODE | "no-effect" | "unsupported")) => Effect::None,
        _ => Effect::Yes,
    }
}
