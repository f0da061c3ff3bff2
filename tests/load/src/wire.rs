//! Reads and writes the few protobuf messages that a simulated proxy needs.

use anyhow::{Result, bail};
use bytes::{BufMut, Bytes, BytesMut};

/// The length of the prefix of gRPC: whether the message is compressed, and its length.
pub(crate) const PREFIX: usize = 5;

/// The position of the first field of a message.
#[derive(Debug)]
pub(crate) struct Head {
    /// Its number.
    pub(crate) number: u64,
    /// The begin of its bytes, if it is length-delimited.
    begin: Option<usize>,
    /// Its end; the bytes until there may not have arrived yet.
    pub(crate) end: usize,
}

impl Head {
    /// The bytes of a length-delimited field.
    pub(crate) fn value<'f>(&self, field: &'f [u8]) -> Option<&'f [u8]> {
        field.get(self.begin?..self.end)
    }
}

/// Reads the head of the field that these bytes begin with. `None` if the head is incomplete.
///
/// # Errors
/// The bytes are invalid.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Head>> {
    let mut rest = bytes;
    let Some(tag) = whole(&mut rest)? else { return Ok(None) };
    let (is_text, length) = match tag & 7 {
        0 => (false, whole(&mut rest)?.map(|_| 0)),
        1 => (false, Some(8)),
        2 => (true, whole(&mut rest)?),
        5 => (false, Some(4)),
        kind => bail!("a field of kind {kind}"),
    };
    let Some(length) = length else { return Ok(None) };
    let (number, begin) = (tag >> 3, bytes.len() - rest.len());
    let end = usize::try_from(length).ok().and_then(|length| begin.checked_add(length));
    match end {
        Some(end) if number > 0 => Ok(Some(Head { number, begin: is_text.then_some(begin), end })),
        Some(_) => bail!("a field with the number 0"),
        None => bail!("a field of {length} bytes"),
    }
}

/// A varint; `None` if it is incomplete.
fn whole(bytes: &mut &[u8]) -> Result<Option<u64>> {
    let has_all = bytes.len() >= 10;
    match varint(bytes) {
        None if has_all => bail!("a number of more than ten bytes"),
        number => Ok(number),
    }
}

/// The fields of a message in order: the number, and the bytes of length-delimited ones (others are skipped). Ends at
/// the first invalid byte.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let head = head(message).ok()??;
            let (field, rest) = message.split_at_checked(head.end)?;
            message = rest;
            if let Some(value) = head.value(field) {
                return Some((head.number, value));
            }
        }
    })
}

/// The first field with this number; empty if there is none.
pub fn field(message: &[u8], number: u64) -> &[u8] {
    fields(message).find(|(n, _)| *n == number).map(|(_, value)| value).unwrap_or_default()
}

/// Appends a length-delimited field.
pub fn put(out: &mut BytesMut, number: u64, value: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, value.len() as u64);
    out.put_slice(value);
}

/// Appends a field with two texts: a message with the fields 1 and 2.
pub(crate) fn put_pair(out: &mut BytesMut, number: u64, texts: [&[u8]; 2]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, pair_size(texts) as u64);
    put(out, 1, texts[0]);
    put(out, 2, texts[1]);
}

/// The number of bytes of a field with two texts, without its tag and length.
pub(crate) fn pair_size(texts: [&[u8]; 2]) -> usize {
    size(1, texts[0].len()) + size(2, texts[1].len())
}

/// The number of bytes of a length-delimited field.
pub(crate) fn size(number: u64, length: usize) -> usize {
    varint_size(number << 3) + varint_size(length as u64) + length
}

/// An empty message with space for the prefix of gRPC, and for this number of bytes.
pub(crate) fn begun(size: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(PREFIX + size);
    out.put_bytes(0, PREFIX);
    out
}

/// Completes the prefix of a message that was `begun`.
pub(crate) fn ended(mut message: BytesMut) -> Bytes {
    let length = u32::try_from(message.len().saturating_sub(PREFIX)).unwrap_or(u32::MAX);
    if let Some(prefix) = message.first_chunk_mut::<PREFIX>() {
        prefix[1..].copy_from_slice(&length.to_be_bytes());
    }
    message.freeze()
}

/// A message with the five-byte prefix of gRPC.
pub fn frame(message: &[u8]) -> Bytes {
    let mut out = begun(message.len());
    out.put_slice(message);
    ended(out)
}

/// A sidecar.
pub struct Workload {
    /// Its name, unique in the mesh.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its label `app`.
    pub app: String,
    /// Its address.
    pub ip: String,
    /// The name of its node.
    pub node: String,
}

/// The node message of a sidecar.
pub fn node(Workload { name, namespace, app, ip, node }: &Workload) -> Bytes {
    message("sidecar", ip, name, namespace, node, &[("app", app)])
}

fn message(kind: &str, ip: &str, name: &str, namespace: &str, node: &str, all: &[(&str, &str)]) -> Bytes {
    let mut metadata = BytesMut::new();
    let texts =
        [("NAMESPACE", namespace), ("CLUSTER_ID", "Kubernetes"), ("ISTIO_VERSION", "1.32.0"), ("NODE_NAME", node)];
    for (key, value) in texts {
        put(&mut metadata, 1, &text_entry(key, value));
    }
    let mut labels = BytesMut::new();
    for (name, value) in all {
        put(&mut labels, 1, &text_entry(name, value));
    }
    let mut value = BytesMut::new();
    put(&mut value, 5, &labels);
    let mut entry = BytesMut::new();
    put(&mut entry, 1, b"LABELS");
    put(&mut entry, 2, &value);
    put(&mut metadata, 1, &entry);
    let mut node = BytesMut::new();
    put(&mut node, 1, format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local").as_bytes());
    put(&mut node, 2, b"load");
    put(&mut node, 3, &metadata);
    put(&mut node, 6, b"envoy");
    let mut version = BytesMut::new();
    for (field, number) in [(1, 1), (2, 40)] {
        put_varint(&mut version, field << 3);
        put_varint(&mut version, number);
    }
    let mut build = BytesMut::new();
    put(&mut build, 1, &version);
    put(&mut node, 8, &build);
    node.freeze()
}

/// The node message of a gateway: with the label `istio: ingressgateway`, and of the Gateway `edge` of the Gateway API.
pub fn gateway() -> Bytes {
    let [ip, name, namespace] = ["192.0.2.200", "load-gateway", "istio-system"];
    let labels = [("istio", "ingressgateway"), ("gateway.networking.k8s.io/gateway-name", "edge")];
    message("router", ip, name, namespace, "node-0", &labels)
}

/// A string entry of a `google.protobuf.Struct`.
fn text_entry(key: &str, value: &str) -> BytesMut {
    let mut text = BytesMut::new();
    put(&mut text, 3, value.as_bytes());
    let mut entry = BytesMut::new();
    put(&mut entry, 1, key.as_bytes());
    put(&mut entry, 2, &text);
    entry
}

/// The names of the route configurations that a listener references.
pub fn route_names(listener: &[u8]) -> Vec<String> {
    let chains = fields(listener).filter(|(n, _)| *n == 3 || *n == 25).map(|(_, chain)| chain);
    let filters = chains.flat_map(|chain| fields(chain).filter(|(n, _)| *n == 3).map(|(_, filter)| filter));
    // Filter.typed_config → Any.value → HttpConnectionManager.rds → Rds.route_config_name
    let names = filters.map(|filter| {
        let any = field(filter, 4);
        let is_http = field(any, 1).ends_with(b"HttpConnectionManager");
        if is_http { field(field(field(any, 2), 3), 2) } else { &[] }
    });
    names.filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// The names of the virtual hosts in a resource of a delta response: of a route table, or the one that a resource of VHDS is.
pub fn host_names(resource: &[u8]) -> impl Iterator<Item = &[u8]> {
    let any = field(resource, 2);
    let (kind, content) = (field(any, 1), field(any, 2));
    let table = if kind.ends_with(b"RouteConfiguration") { content } else { &[] };
    let alone = kind.ends_with(b"VirtualHost").then(|| field(content, 1).rsplit(|byte| *byte == b'/').next());
    fields(table).filter(|(number, _)| *number == 2).map(|(_, host)| field(host, 1)).chain(alone.flatten())
}

/// Whether a cluster's endpoints are discovered: it has an `eds_cluster_config`.
pub fn has_discovered_endpoints(cluster: &[u8]) -> bool {
    fields(cluster).any(|(n, _)| n == 3)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fields_can_be_read() {
        let mut message = BytesMut::new();
        put(&mut message, 1, b"one");
        put(&mut message, 300, &[7; 200]);
        assert_eq!(fields(&message).collect::<Vec<_>>(), [(1, &b"one"[..]), (300, &[7; 200][..])]);
    }

    #[test]
    fn sizes_are_those_of_what_is_written() {
        for length in [0, 1, 127, 128, 300, 1 << 14] {
            let value = vec![b'x'; length];
            let mut out = BytesMut::new();
            put(&mut out, 16, &value);
            assert_eq!(out.len(), size(16, length));
            let mut pair = BytesMut::new();
            put_pair(&mut pair, 5, [&value, b"version"]);
            assert_eq!(pair.len(), size(5, pair_size([&value, b"version"])));
            assert_eq!(field(field(&pair, 5), 1), value);
            assert_eq!(field(field(&pair, 5), 2), b"version");
        }
    }

    #[test]
    fn numbers_are_skipped_and_invalid_bytes_end_the_message() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x01, b'x', 0x12, 0xff];
        assert_eq!(fields(&message).collect::<Vec<_>>(), [(2, &b"x"[..])]);
    }

    #[test]
    fn the_route_name_of_a_listener_is_found() {
        let nest = |path: &[(u64, &[u8])]| {
            let mut out = BytesMut::new();
            path.iter().for_each(|(number, value)| put(&mut out, *number, value));
            out
        };
        let manager = nest(&[(3, &nest(&[(2, b"80")]))]);
        let any = nest(&[(1, b"type.googleapis.com/x.HttpConnectionManager"), (2, &manager)]);
        let listener = nest(&[(1, b"0.0.0.0_80"), (3, &nest(&[(3, &nest(&[(4, &any)]))]))]);
        assert_eq!(route_names(&listener), ["80"]);
    }
}
