//! Divides a resource into the parts that a client may reject one by one: the virtual hosts of a route table.

use std::ops::Range;

use bytes::Bytes;
use model::xds::{Resource, ResourceType, Version};
use protos::wire::{Reader, Value, fields, put_bytes};

use crate::Name;

/// A part of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: Name,
    pub(crate) version: Version,
    /// The message.
    pub(crate) body: Bytes,
}

/// The parts of a resource; none if its type has none, or the bytes are not a message.
pub(crate) fn parts_of(kind: ResourceType, resource: &Resource) -> Vec<Part> {
    let Some(field) = kind.parts else {
        return Vec::new();
    };
    let body = resource.body();
    let fields = fields(&body, 0..body.len()).unwrap_or_default();
    let parts = fields.into_iter().filter(|one| one.number == field);
    parts.filter_map(|one| part(&body, one.content?)).collect()
}

/// The resource with some of its parts replaced. `replace` returns the body of the new part, an empty one to leave the part
/// out, or nothing to keep it. `None` if all are kept.
pub(crate) fn with_parts(
    kind: ResourceType,
    resource: &Resource,
    mut replace: impl FnMut(Version) -> Option<Bytes>,
) -> Option<Resource> {
    let field = kind.parts?;
    let number = u8::try_from(field).ok()?;
    let body = resource.body();
    let (mut pieces, mut kept, mut changed) = (Vec::new(), 0, false);
    for one in fields(&body, 0..body.len())?.into_iter().filter(|one| one.number == field) {
        let Some(new) = one.content.and_then(|value| replace(Version::of(&body[value]))) else {
            continue;
        };
        changed = true;
        pieces.push(body.slice(kept..one.whole.start));
        kept = one.whole.end;
        if !new.is_empty() {
            let mut out = Vec::with_capacity(new.len() + 8);
            put_bytes(&mut out, number, &new);
            pieces.push(out.into());
        }
    }
    pieces.push(body.slice(kept..));
    pieces.retain(|piece| !piece.is_empty());
    changed.then(|| Resource::in_pieces(resource.name().clone(), pieces))
}

fn part(body: &Bytes, at: Range<usize>) -> Option<Part> {
    let body = body.slice(at);
    let name = match Reader::new(&body).field() {
        Ok(Some((1, Value::Bytes(name)))) => std::str::from_utf8(name).ok()?.into(),
        _ => Name::default(),
    };
    Some(Part { name, version: Version::of(&body), body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy::types::{CLUSTER, ROUTE};
    use protos::Message;
    use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

    fn table(hosts: &[&str]) -> Resource {
        let host = |name: &&str| VirtualHost {
            name: (*name).to_owned(),
            domains: vec![format!("{name}.test")],
            ..VirtualHost::default()
        };
        let table = RouteConfiguration {
            name: "80".to_owned(),
            virtual_hosts: hosts.iter().map(host).collect(),
            internal_only_headers: vec!["x-behind".to_owned()],
            ..RouteConfiguration::default()
        };
        Resource::new("80", table.encode_to_vec())
    }

    fn shown(resource: &Resource) -> Vec<String> {
        let table = RouteConfiguration::decode(resource.body()).unwrap();
        assert_eq!((table.name.as_str(), table.internal_only_headers.len()), ("80", 1), "the rest stays");
        table.virtual_hosts.into_iter().map(|host| host.name).collect()
    }

    #[test]
    fn parts_are_found_replaced_and_left_out() {
        let (all, other) = (table(&["a", "b", "c"]), table(&["d"]));
        let parts = parts_of(ROUTE, &all);
        assert_eq!(parts.iter().map(|part| &*part.name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(parts_of(CLUSTER, &all).is_empty());
        assert!(with_parts(ROUTE, &all, |_| None).is_none());
        let without = with_parts(ROUTE, &all, |version| (version == parts[1].version).then(Bytes::new)).unwrap();
        assert_eq!(shown(&without), ["a", "c"]);
        let d = parts_of(ROUTE, &other).remove(0).body;
        let with = with_parts(ROUTE, &all, |version| (version == parts[0].version).then(|| d.clone())).unwrap();
        assert_eq!(shown(&with), ["d", "b", "c"]);
        assert!(parts_of(ROUTE, &Resource::new("80", vec![0xff])).is_empty());
    }
}
