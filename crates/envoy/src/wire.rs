//! Writes protobuf directly into one buffer, for performance-critical messages.
//!
//! The bytes equal prost's encoding of the same message: fields in ascending order, without proto3 defaults, lengths in
//! their shortest form.

use std::fmt::{self, Write};
use std::net::Ipv4Addr;

use bytes::Bytes;
use protos::wire::{Reader, Value};

/// Wire type of integers.
const VARINT: u32 = 0;
/// Wire type of strings, bytes and messages.
const LENGTH_DELIMITED: u32 = 2;

/// A message under construction. The caller writes its fields in ascending order.
#[derive(Default)]
pub(crate) struct Writer {
    buffer: Vec<u8>,
}

impl Writer {
    /// A writer with room for `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Writer {
        Writer { buffer: Vec::with_capacity(capacity) }
    }

    /// The bytes written so far.
    pub(crate) fn finish(self) -> Bytes {
        self.buffer.into()
    }

    /// An integer, enumeration or boolean. Zero is not written.
    #[inline]
    pub(crate) fn uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field << 3 | VARINT));
            self.varint(value);
        }
    }

    /// A `google.protobuf.UInt32Value` (or another wrapper of an integer), present even if zero.
    #[inline]
    pub(crate) fn wrapped(&mut self, field: u32, value: u64) {
        self.message(field, |w| w.uint(1, value));
    }

    /// A string. An empty one is not written.
    #[inline]
    pub(crate) fn text(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.bytes(field, value.as_bytes());
        }
    }

    /// A string that is formatted in place. It is written even if empty, as in a `oneof`.
    pub(crate) fn display(&mut self, field: u32, value: impl fmt::Display) {
        self.message(field, |w| {
            // Writing to memory cannot fail, nor can the formatters of addresses and numbers.
            let _ = write!(w, "{value}");
        });
    }

    /// Bytes, a string or an encoded message, written even if empty.
    #[inline]
    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field << 3 | LENGTH_DELIMITED));
        self.varint(value.len() as u64);
        self.buffer.extend_from_slice(value);
    }

    /// A message whose fields `fill` writes, written even if empty.
    #[inline]
    pub(crate) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Writer)) {
        self.varint(u64::from(field << 3 | LENGTH_DELIMITED));
        // Most messages are short: one byte is reserved for the length, and longer ones are moved to make room.
        let at = self.buffer.len();
        self.buffer.push(0);
        fill(self);
        let body = at + 1;
        let length = self.buffer.len() - body;
        if length < 0x80 {
            self.buffer[at] = length as u8;
            return;
        }
        let (digits, width) = digits(length as u64);
        let end = self.buffer.len();
        self.buffer.resize(end + width - 1, 0);
        self.buffer.copy_within(body..end, at + width);
        self.buffer[at..at + width].copy_from_slice(&digits[..width]);
    }

    /// An IPv4 address in dotted form, as a string. Endpoints consist mostly of these, and formatting would be half of
    /// the work.
    pub(crate) fn ipv4(&mut self, field: u32, address: Ipv4Addr) {
        self.message(field, |w| {
            for (position, octet) in address.octets().into_iter().enumerate() {
                if position > 0 {
                    w.buffer.push(b'.');
                }
                if octet >= 100 {
                    w.buffer.push(b'0' + octet / 100);
                }
                if octet >= 10 {
                    w.buffer.push(b'0' + octet / 10 % 10);
                }
                w.buffer.push(b'0' + octet % 10);
            }
        });
    }

    /// A map entry from a string to a message.
    #[inline]
    pub(crate) fn entry(&mut self, field: u32, key: &str, fill: impl FnOnce(&mut Writer)) {
        self.message(field, |w| {
            w.text(1, key);
            w.message(2, fill);
        });
    }

    /// Encoded fields, unchanged.
    #[inline]
    pub(crate) fn raw(&mut self, fields: &[u8]) {
        self.buffer.extend_from_slice(fields);
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            return self.buffer.push(value as u8);
        }
        let (digits, width) = digits(value);
        self.buffer.extend_from_slice(&digits[..width]);
    }
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.buffer.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The content of the first field, a message or string.
pub(crate) fn enter_field(fields: &[u8]) -> Option<&[u8]> {
    match Reader::new(fields).field() {
        Ok(Some((_, Value::Bytes(content)))) => Some(content),
        _ => None,
    }
}

/// The bytes after the first field.
pub(crate) fn skip_field(fields: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(fields);
    reader.field().ok()??;
    Some(reader.rest())
}

/// The base-128 digits of an integer, and their number.
fn digits(mut value: u64) -> ([u8; 10], usize) {
    let mut digits = [0; 10];
    let mut width = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            digits[width] = low;
            return (digits, width + 1);
        }
        digits[width] = low | 0x80;
        width += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protos::Message;
    use protos::envoy::config::core::v3::{Locality, Metadata};

    #[test]
    fn integers_have_their_shortest_form() {
        for (value, want) in [
            (1, &[8, 1][..]),
            (127, &[8, 127]),
            (128, &[8, 128, 1]),
            (300, &[8, 172, 2]),
            (u64::MAX, &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut w = Writer::default();
            w.uint(1, value);
            assert_eq!(&w.finish()[..], want);
        }
        let mut w = Writer::default();
        w.uint(1, 0);
        w.text(2, "");
        assert!(w.finish().is_empty());
    }

    #[test]
    fn messages_of_every_length_can_be_decoded() {
        for length in [0, 1, 100, 124, 125, 126, 127, 128, 129, 130, 16_380, 16_384, 16_390, 70_000, 2_100_000] {
            let region = "r".repeat(length);
            let mut w = Writer::default();
            w.text(1, &region);
            w.text(2, "z");
            let locality = Locality { region, zone: "z".into(), ..Locality::default() };
            assert_eq!(w.finish(), locality.encode_to_vec(), "{length}");
        }
    }

    #[test]
    fn addresses_equal_their_display_form() {
        for text in ["0.0.0.0", "10.0.0.1", "127.0.0.1", "192.168.10.100", "255.255.255.255", "1.20.99.101"] {
            let mut w = Writer::default();
            w.ipv4(2, text.parse().unwrap());
            let bytes = w.finish();
            assert_eq!(&bytes[2..], text.as_bytes());
            assert_eq!(usize::from(bytes[1]), text.len());
        }
    }

    #[test]
    fn fields_can_be_split() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut w = Writer::default();
            w.message(2, |w| {
                w.bytes(1, &vec![b'n'; length]);
                w.text(2, "rest");
            });
            let field = w.finish();
            let inner = enter_field(&field).unwrap();
            assert_eq!(skip_field(inner).unwrap(), b"\x12\x04rest");
            assert_eq!(skip_field(&field), Some(&[][..]));
            assert_eq!(enter_field(&field[..field.len() - 1]), None);
        }
        for broken in [
            &[][..],
            &[8, 1],
            &[0x12],
            &[0x12, 0x80],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(enter_field(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn nested_messages_and_maps_equal_prost() {
        use protos::{Struct, Value, value::Kind};
        let text = "x".repeat(500);
        let mut w = Writer::default();
        w.entry(1, "istio", |w| w.entry(1, "workload", |w| w.display(3, &text)));
        let value = Value { kind: Some(Kind::StringValue(text.clone())) };
        let fields = Struct { fields: [("workload".to_owned(), value)].into() };
        let metadata = Metadata { filter_metadata: [("istio".to_owned(), fields)].into(), ..Metadata::default() };
        assert_eq!(w.finish(), metadata.encode_to_vec());
    }
}
