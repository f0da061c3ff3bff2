//! Parts that many listeners have in common are in memory once.
//!
//! The inbound listeners of workloads differ in few bytes: names, ports and routes. Most of each is the HTTP filters, access logs and
//! TLS settings of its filter chains, which are the same for all workloads with the same policies.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flow::Reads;
use model::xds::Resource;
use protos::wire::{Field, fields};

use crate::Pieces;

/// The minimum length of a part, in bytes. Each costs about 300 bytes once, and 50 in each listener.
const SHORTEST: usize = 256;

/// Numbers of fields in `envoy.config.listener.v3`.
const FILTER_CHAINS: u32 = 3;
const DEFAULT_FILTER_CHAIN: u32 = 25;
const LISTENER_ACCESS_LOG: u32 = 22;
const CHAIN_FILTERS: u32 = 3;
const CHAIN_TRANSPORT_SOCKET: u32 = 6;
const FILTER_CONFIG: u32 = 4;
/// The number of `value` in `google.protobuf.Any`.
const ANY_VALUE: u32 = 2;
/// The number of `http_filters` in an HTTP connection manager. Fields with lower numbers are the prefix of statistics and the
/// routes. TCP proxies have their cluster and weights before it, and are short.
const HTTP_FILTERS: u32 = 5;

flow::rule! {
    /// Parts of encoded listeners. The row has the bytes of the key.
    pub EqualParts: EqualPart => Bytes = "equal parts of listeners", derive_equal_parts;
}

/// A part of an encoded listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EqualPart(Bytes);

impl fmt::Debug for EqualPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

fn derive_equal_parts(_: &Reads<'_>, key: &EqualPart) -> Option<Bytes> {
    Some(key.0.clone())
}

/// The listener of this name whose encoding is `body`, which shares memory with listeners that have equal parts.
pub fn listener(cx: &Reads<'_>, name: Arc<str>, body: &[u8]) -> Resource {
    let (mut pieces, mut at) = (Pieces::default(), 0);
    // A listener may have thousands of equal chains.
    let mut known: BTreeMap<&[u8], Bytes> = BTreeMap::new();
    for part in parts(body) {
        pieces.copy(&body[at..part.start]);
        at = part.end;
        let shared = known.entry(&body[part]).or_insert_with_key(|bytes| {
            let key = EqualPart(Bytes::copy_from_slice(bytes));
            cx.get::<EqualParts>(&key).map_or(key.0, |part| (*part).clone())
        });
        pieces.share_any(shared.clone());
    }
    pieces.copy(&body[at..]);
    Resource::in_pieces(name, pieces.finish())
}

/// The parts of a listener that others are likely to have as well, ascending.
fn parts(listener: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for field in fields_in(listener, 0..listener.len()) {
        match (field.number, field.content) {
            (FILTER_CHAINS | DEFAULT_FILTER_CHAIN, Some(chain)) => of_chain(listener, chain, &mut found),
            (LISTENER_ACCESS_LOG, _) => found.push(field.whole),
            _ => {}
        }
    }
    found.retain(|part| part.len() >= SHORTEST);
    found
}

fn of_chain(listener: &[u8], chain: Range<usize>, found: &mut Vec<Range<usize>>) {
    for field in fields_in(listener, chain) {
        match (field.number, field.content) {
            (CHAIN_FILTERS, Some(filter)) => {
                let config = within(listener, filter, FILTER_CONFIG);
                let value = config.and_then(|config| within(listener, config, ANY_VALUE));
                found.extend(value.and_then(|value| end_of_manager(listener, value)));
            }
            (CHAIN_TRANSPORT_SOCKET, _) => found.push(field.whole),
            _ => {}
        }
    }
}

/// The fields of an HTTP connection manager from the HTTP filters on.
fn end_of_manager(listener: &[u8], manager: Range<usize>) -> Option<Range<usize>> {
    let end = manager.end;
    let mut fields = fields_in(listener, manager);
    fields.find(|field| field.number >= HTTP_FILTERS).map(|first| first.whole.start..end)
}

/// The content of the first field with this number in a message.
fn within(listener: &[u8], message: Range<usize>, number: u32) -> Option<Range<usize>> {
    fields_in(listener, message).find(|field| field.number == number)?.content
}

/// The fields of a message within the listener. None if it is not a message.
fn fields_in(listener: &[u8], at: Range<usize>) -> impl Iterator<Item = Field> {
    fields(listener, at).into_iter().flatten()
}
