//! Reads and writes the few protobuf messages that a simulated proxy needs.

use bytes::{BufMut, Bytes, BytesMut};

/// The fields of a message in order: the number, and the bytes of length-delimited ones (others are skipped). Ends at
/// the first invalid byte.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut message)?;
            let length = match tag & 7 {
                0 => {
                    varint(&mut message)?;
                    continue;
                }
                1 => {
                    message = message.get(8..)?;
                    continue;
                }
                2 => usize::try_from(varint(&mut message)?).ok()?,
                5 => {
                    message = message.get(4..)?;
                    continue;
                }
                _ => return None,
            };
            let (value, rest) = message.split_at_checked(length)?;
            message = rest;
            return Some((tag >> 3, value));
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

/// A message with the five-byte prefix of gRPC.
pub fn frame(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
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
    message("sidecar", ip, name, namespace, node, ("app", app))
}

fn message(kind: &str, ip: &str, name: &str, namespace: &str, node: &str, label: (&str, &str)) -> Bytes {
    let mut metadata = BytesMut::new();
    let texts =
        [("NAMESPACE", namespace), ("CLUSTER_ID", "Kubernetes"), ("ISTIO_VERSION", "1.32.0"), ("NODE_NAME", node)];
    for (key, value) in texts {
        put(&mut metadata, 1, &text_entry(key, value));
    }
    let mut labels = BytesMut::new();
    put(&mut labels, 1, &text_entry(label.0, label.1));
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

/// The node message of a gateway with the label `istio: ingressgateway`.
pub fn gateway() -> Bytes {
    let [ip, name, namespace] = ["192.0.2.200", "load-gateway", "istio-system"];
    message("router", ip, name, namespace, "node-0", ("istio", "ingressgateway"))
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
