//! Small responses for tests.

use bytes::{Bytes, BytesMut};
use test_harness::run::Protocol;

use crate::facts::{CLUSTERS, LISTENERS, ROUTES, TYPES};
use crate::wire;

/// A message with these fields.
pub(crate) fn nested(fields: &[(u64, &[u8])]) -> BytesMut {
    let mut out = BytesMut::new();
    fields.iter().for_each(|(number, value)| wire::put(&mut out, *number, value));
    out
}

/// The field of a response with a resource. Its version is its name after `v-`.
pub(crate) fn resource(protocol: Protocol, kind: usize, name: &str, content: &[u8]) -> BytesMut {
    let any = nested(&[(1, TYPES[kind].as_bytes()), (2, content)]);
    match protocol {
        Protocol::Sotw => nested(&[(2, &any)]),
        Protocol::Delta => {
            nested(&[(2, &nested(&[(1, format!("v-{name}").as_bytes()), (2, &any), (3, name.as_bytes())]))])
        }
    }
}

pub(crate) fn cluster(protocol: Protocol, name: &str, is_discovered: bool) -> BytesMut {
    let content = match is_discovered {
        true => nested(&[(1, name.as_bytes()), (3, b"")]),
        false => nested(&[(1, name.as_bytes()), (4, b"\x01")]),
    };
    resource(protocol, CLUSTERS, name, &content)
}

pub(crate) fn listener(protocol: Protocol, name: &str, routes: &[&str]) -> BytesMut {
    let mut content = nested(&[(1, name.as_bytes())]);
    for route in routes {
        let manager = nested(&[(3, &nested(&[(2, route.as_bytes())]))]);
        let any = nested(&[(1, b"type.googleapis.com/x.HttpConnectionManager"), (2, &manager)]);
        wire::put(&mut content, 3, &nested(&[(3, &nested(&[(4, &any)]))]));
    }
    resource(protocol, LISTENERS, name, &content)
}

pub(crate) fn route_table(protocol: Protocol, name: &str, discovers: bool) -> BytesMut {
    let mut content = nested(&[(1, name.as_bytes())]);
    wire::put(&mut content, if discovers { 9 } else { 2 }, b"");
    resource(protocol, ROUTES, name, &content)
}

/// The field of a delta response with a removed name.
pub(crate) fn removed(name: &str) -> BytesMut {
    nested(&[(6, name.as_bytes())])
}

/// A response in a frame. The type comes after the resources.
pub(crate) fn response(protocol: Protocol, kind: usize, fields: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    if protocol == Protocol::Sotw {
        wire::put(&mut out, 1, b"version");
    }
    out.extend_from_slice(fields);
    wire::put(&mut out, 4, TYPES[kind].as_bytes());
    wire::put(&mut out, 5, b"nonce");
    wire::frame(&out)
}
