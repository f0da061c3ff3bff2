//! Decoding of metadata.

use std::sync::Arc;

use names::dns;

use crate::decode::{Decode, Decoder, Fields, Unknown};
use crate::object::{AssignedAddresses, Kind, Meta, Origin, Owner, StatusPart};
use crate::parse::ParseOptions;
use crate::problem::Segment;
use crate::yaml::{Node, quote};

/// Limit of addresses from a status: two families for the maximum number of hosts of an entry.
const ADDRESSES: usize = 512;

/// Decodes `metadata`. Reports a problem and returns none if the object has no valid name.
pub(super) fn decode(
    root: &Node,
    kind: Kind,
    file: Option<&Arc<str>>,
    options: &ParseOptions,
    cx: &mut Decoder,
) -> Option<Meta> {
    let unknown = std::mem::replace(&mut cx.unknown, Unknown::Ignore);
    let meta = cx.within(Segment::Field("metadata".into()), |cx| fields(root, kind, options, cx));
    cx.unknown = unknown;
    let mut meta = meta?;
    meta.origin = file.map(|file| Origin { file: file.clone(), line: root.at.line });
    Some(meta)
}

fn fields(root: &Node, kind: Kind, options: &ParseOptions, cx: &mut Decoder) -> Option<Meta> {
    let Some(node) = root.get("metadata") else {
        cx.error(root.at, "missing-field", "an object needs metadata with a name".to_owned(), None);
        return None;
    };
    let mut fields = Fields::of(node, cx)?;
    let name: Arc<str> = fields.decode("name", cx).unwrap_or_default();
    let namespace: Option<Arc<str>> = fields.decode("namespace", cx);
    let (valid_name, allowed) = match kind {
        Kind::Service | Kind::Namespace => (dns::is_label(&name), "lower-case letters, digits and dashes"),
        _ => (dns::is_subdomain(&name), "lower-case letters, digits, dashes and dots"),
    };
    if !valid_name {
        let at = node.get("name").map_or(node.at, |n| n.at);
        let message = format!("{} is not the name of a {kind}: {allowed}", quote(&name));
        cx.within(Segment::Field("name".into()), |cx| cx.error(at, "bad-name", message, None));
        return None;
    }
    let namespace = match namespace.filter(|n| !n.is_empty()) {
        _ if !kind.is_namespaced() => "".into(),
        None => options.default_namespace.clone(),
        Some(namespace) => namespace,
    };
    if kind.is_namespaced()
        && let Err(error) = dns::check_namespace(&namespace)
    {
        let at = node.get("namespace").map_or(node.at, |n| n.at);
        cx.within(Segment::Field("namespace".into()), |cx| cx.error(at, "bad-name", error.to_string(), None));
        return None;
    }
    let mut meta = Meta::new(kind, namespace, name);
    meta.labels = fields.decode("labels", cx).unwrap_or_default();
    meta.annotations = fields.decode("annotations", cx).unwrap_or_default();
    meta.creation_timestamp = fields.decode("creationTimestamp", cx);
    meta.deletion_timestamp = fields.decode("deletionTimestamp", cx);
    meta.resource_version = fields.decode("resourceVersion", cx).unwrap_or_default();
    meta.generation = fields.decode("generation", cx).unwrap_or_default();
    meta.uid = fields.decode("uid", cx).unwrap_or_default();
    meta.generate_name = fields.decode("generateName", cx).unwrap_or_default();
    meta.owner = fields.find("ownerReferences", cx).and_then(|(_, owners)| controller(owners));
    Some(meta)
}

/// The owner reference of the controller.
fn controller(owners: &Node) -> Option<Owner> {
    let is_controller = |o: &&Node| o.get("controller").is_some_and(|c| c.to_json() == serde_json::Value::Bool(true));
    let owner = owners.items().iter().find(is_controller)?;
    Some(Owner { kind: owner.get("kind")?.text()?.clone(), name: owner.get("name")?.text()?.clone() })
}

/// The addresses in the status of a ServiceEntry. Controllers write them, so invalid ones are skipped without a
/// diagnostic.
pub(super) fn assigned(root: &Node) -> Option<StatusPart> {
    let addresses = root.get("status")?.get("addresses")?.items().iter();
    let one = |item: &Node| {
        let host = item.get("host")?.text()?.clone();
        Some((host, item.get("value")?.text()?.parse().ok()?))
    };
    let found: AssignedAddresses = addresses.filter_map(one).take(ADDRESSES).collect();
    (!found.is_empty()).then_some(StatusPart::Addresses(found))
}

/// The condition `Healthy` in the status of a WorkloadEntry. Controllers write it, so an invalid one is skipped without a
/// diagnostic.
pub(super) fn healthy(root: &Node) -> Option<StatusPart> {
    let text = |condition: &Node, field| condition.get(field)?.text().cloned();
    let conditions = root.get("status")?.get("conditions")?.items().iter();
    let status =
        conditions.filter(|one| text(one, "type").as_deref() == Some("Healthy")).find_map(|one| text(one, "status"));
    match &*status? {
        "True" => Some(StatusPart::Healthy(true)),
        "False" => Some(StatusPart::Healthy(false)),
        _ => None,
    }
}

/// Decodes one field of the root, such as `spec`.
pub(super) fn part<T: Decode>(root: &Node, name: &'static str, cx: &mut Decoder) -> Option<T> {
    let node = root.get(name).filter(|n| !n.is_null())?;
    cx.within(Segment::Field(name.into()), |cx| T::decode(node, cx))
}
