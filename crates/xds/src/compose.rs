//! Encodes responses as ropes: shared resource bodies and the small pieces between them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use model::xds::{Resource, ResourceType};

use crate::Name;
use crate::fragments::Fragments;
use crate::rope::{Rope, Slice};
use protos::wire::{bytes_len, put_bytes, put_head};

/// The resources of a response, in parts of lists that responses share.
pub(crate) type Contents = Arc<[Slice<(Name, Resource)>]>;

/// A response that streams can share.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) rope: Rope,
    pub(crate) version: Arc<str>,
    pub(crate) nonce: Arc<str>,
    pub(crate) resources: usize,
    /// The removed names in it.
    pub(crate) removed: Vec<Name>,
    /// Its resources.
    pub(crate) contents: Contents,
    /// The names of its resources, if they are collections of another type.
    pub(crate) names: Vec<Name>,
    /// The references of its resources.
    pub(crate) fresh: Fresh,
    pub(crate) derived: Derived,
}

/// Properties of a response that are determined when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// The responses in which it is sent, if it is long.
    pub(crate) fragments: OnceLock<Fragments>,
    /// See [`Composed::offsets`].
    pub(crate) offsets: OnceLock<Vec<usize>>,
}

/// The references of the resources in a response.
#[derive(Clone, Debug)]
pub(crate) enum Fresh {
    /// Not determined: the client had no resources of the type.
    All,
    /// These.
    Some(Arc<[Reference]>),
}

impl Fresh {
    pub(crate) fn and(&self, other: &Fresh) -> Fresh {
        match (self, other) {
            (Fresh::Some(some), Fresh::Some(more)) => Fresh::Some(some.iter().chain(more.iter()).cloned().collect()),
            _ => Fresh::All,
        }
    }
}

/// A resource, and the name that it refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    pub(crate) parent: Name,
    pub(crate) child: Name,
}

/// The content of a response.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) resources: Vec<(Name, Resource)>,
    pub(crate) removed: Vec<Name>,
}

/// The parts of a response that are not resources.
pub(crate) struct Envelope<'a> {
    pub(crate) kind: ResourceType,
    pub(crate) delta: bool,
    pub(crate) version: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) identifier: &'a str,
}

/// Bodies shorter than this are copied into the preceding piece, once for all responses, since a separate piece costs
/// more.
const COPIED: usize = 1024;

/// A resource in the form in which responses share it. A resource under another name is encoded for one response only.
fn in_response(kind: ResourceType, name: &Name, resource: &Resource) -> Bytes {
    match name == resource.name() {
        true => resource.framed(|resource| framed(kind, name, resource)).clone(),
        false => framed(kind, name, resource),
    }
}

/// Encodes up to `count` of these resources for all responses, apart from those that are. Returns the name of the last one.
pub(crate) fn encode_some<'a>(
    kind: ResourceType,
    resources: impl Iterator<Item = (&'a Name, &'a Resource)>,
    count: usize,
) -> Option<&'a Name> {
    let left = resources.filter(|(name, resource)| !resource.is_framed() && *name == resource.name());
    let encode = |(name, resource)| {
        in_response(kind, name, resource);
        name
    };
    left.take(count).map(encode).last()
}

/// Encodes a response.
pub(crate) fn encode(envelope: &Envelope<'_>, content: &Content) -> Rope {
    let mut pieces = Vec::with_capacity(content.resources.len() + 1);
    for (name, resource) in &content.resources {
        let framed = in_response(envelope.kind, name, resource);
        pieces.push(match envelope.delta {
            true => framed,
            false => framed.slice(framed.len() - any_field_len(envelope.kind, resource)..),
        });
        pieces.extend_from_slice(separate(resource));
    }
    pieces.extend(encode_removed(&content.removed));
    Rope::new(head(envelope), [pieces.into()])
}

/// The removed names of a delta response; none if there are none.
pub(crate) fn encode_removed(names: &[Name]) -> Option<Bytes> {
    let mut removed = Vec::new();
    names.iter().for_each(|name| put_bytes(&mut removed, 6, name.as_bytes()));
    (!removed.is_empty()).then(|| removed.into())
}

/// The pieces of a body that is not copied.
fn separate(resource: &Resource) -> &[Bytes] {
    if resource.len() < COPIED { &[] } else { resource.pieces() }
}

/// The number of pieces of a resource in a response.
pub(crate) fn count_pieces(resource: &Resource) -> usize {
    1 + separate(resource).len()
}

/// Returns the same response with another nonce.
pub(crate) fn renamed(envelope: &Envelope<'_>, rope: &Rope) -> Rope {
    Rope::new(head(envelope), rope.parts().cloned())
}

pub(crate) fn head(envelope: &Envelope<'_>) -> Vec<u8> {
    let mut head = Vec::with_capacity(192);
    put_bytes(&mut head, 1, envelope.version.as_bytes());
    put_bytes(&mut head, 4, envelope.kind.type_url.as_bytes());
    put_bytes(&mut head, 5, envelope.nonce.as_bytes());
    // `control_plane`, whose field number differs between the two responses.
    put_head(&mut head, if envelope.delta { 7 } else { 6 }, bytes_len(envelope.identifier.len()));
    put_bytes(&mut head, 1, envelope.identifier.as_bytes());
    head
}

/// A resource as a field of a delta response (`envoy.service.discovery.v3.Resource`), without a body that is not
/// copied. The body is the last field, with the number that resources have in a SotW response, so that such a response
/// can use the end of this.
fn framed(kind: ResourceType, name: &str, resource: &Resource) -> Bytes {
    let (version, len) = (resource.version().to_string(), resource.len());
    let copied = if len < COPIED { resource.pieces() } else { &[] };
    let names = bytes_len(name.len()) + bytes_len(version.len());
    let any_len = any_len(kind, len);
    let length = names + bytes_len(any_len);
    let mut out = Vec::with_capacity(bytes_len(length) - if copied.is_empty() { len } else { 0 });
    put_head(&mut out, 2, length);
    put_bytes(&mut out, 3, name.as_bytes());
    put_bytes(&mut out, 1, version.as_bytes());
    put_head(&mut out, 2, any_len);
    put_bytes(&mut out, 1, kind.type_url.as_bytes());
    put_head(&mut out, 2, len);
    copied.iter().for_each(|piece| out.extend_from_slice(piece));
    out.into()
}

/// `google.protobuf.Any`, without key and length.
fn any_len(kind: ResourceType, body: usize) -> usize {
    bytes_len(kind.type_url.len()) + bytes_len(body)
}

/// The length of the `Any` field within [`framed`].
fn any_field_len(kind: ResourceType, resource: &Resource) -> usize {
    let len = resource.len();
    let elsewhere = if len < COPIED { 0 } else { len };
    bytes_len(any_len(kind, len)) - elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy::types;
    use protos::Message;
    use protos::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

    fn content() -> Content {
        let resource = |name: &str, body: Vec<u8>| (name.into(), Resource::new(name, body));
        Content {
            resources: vec![
                resource("small", vec![1; 10]),
                resource("large", vec![2; 5000]),
                resource("empty", vec![]),
                resource("edge", vec![3; COPIED]),
                ("pieces".into(), Resource::in_pieces("pieces", [vec![4; 9].into(), vec![5; COPIED].into()])),
                ("crumbs".into(), Resource::in_pieces("crumbs", [vec![6; 9].into(), vec![7; 9].into()])),
            ],
            removed: vec!["gone".into()],
        }
    }

    fn envelope(kind: ResourceType, delta: bool) -> Envelope<'static> {
        Envelope { kind, delta, version: "v", nonce: "n", identifier: "me" }
    }

    fn flat(rope: &Rope) -> Vec<u8> {
        let bytes = rope.pieces().fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(piece);
            all
        });
        assert_eq!(bytes.len(), rope.len());
        bytes
    }

    #[test]
    fn prost_decodes_delta_responses() {
        let envelope = envelope(types::CLUSTER, true);
        let content = content();
        let rope = encode(&envelope, &content);
        let read = DeltaDiscoveryResponse::decode(flat(&rope).as_slice()).unwrap();
        assert_eq!((read.system_version_info.as_str(), read.nonce.as_str()), ("v", "n"));
        assert_eq!(read.type_url, types::CLUSTER.type_url);
        assert_eq!(read.control_plane.unwrap().identifier, "me");
        assert_eq!(read.removed_resources, ["gone"]);
        for (resource, (name, sent)) in read.resources.iter().zip(&content.resources) {
            assert_eq!((&*resource.name, &*resource.version), (&**name, &*sent.version().to_string()));
            let any = resource.resource.as_ref().unwrap();
            assert_eq!((any.type_url.as_str(), &any.value), (types::CLUSTER.type_url, &sent.body()));
        }
        assert_eq!(read.resources.len(), 6);
        let large = rope.pieces().find(|piece| piece.len() == 5000).unwrap();
        assert_eq!(large.as_ptr(), content.resources[1].1.body().as_ptr(), "a large body is shared, not copied");
        // Other responses share the copy of a small body, too.
        let again = encode(&envelope, &content);
        let places = |rope: &Rope| rope.pieces().skip(1).map(|piece| piece.as_ptr()).take(4).collect::<Vec<_>>();
        assert_eq!(places(&rope), places(&again));
    }

    #[test]
    fn a_resource_under_another_name_is_encoded_separately() {
        let content =
            Content { resources: vec![("other".into(), content().resources[0].1.clone())], removed: Vec::new() };
        let envelope = envelope(types::CLUSTER, true);
        encode(&envelope, &self::content());
        let read = DeltaDiscoveryResponse::decode(flat(&encode(&envelope, &content)).as_slice()).unwrap();
        assert_eq!(read.resources[0].name, "other");
    }

    #[test]
    fn prost_decodes_sotw_responses_and_the_nonce_can_change() {
        let envelope = envelope(types::ROUTE, false);
        let content = Content { removed: Vec::new(), ..content() };
        let rope = encode(&envelope, &content);
        let rope = renamed(&Envelope { nonce: "other", ..envelope }, &rope);
        let read = DiscoveryResponse::decode(flat(&rope).as_slice()).unwrap();
        assert_eq!((read.version_info.as_str(), read.nonce.as_str()), ("v", "other"));
        assert_eq!(read.control_plane.unwrap().identifier, "me");
        let bodies: Vec<Bytes> = read.resources.iter().map(|any| any.value.clone()).collect();
        assert_eq!(bodies, content.resources.iter().map(|(_, resource)| resource.body()).collect::<Vec<_>>());
    }
}
