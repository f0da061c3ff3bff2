//! Reads and writes protobuf without generated types, for the few messages whose cost matters.

use std::ops::Range;

use bytes::Bytes;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5, which none of these messages uses.
    Fixed,
}

/// The bytes are not a protobuf message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a field is truncated or invalid")]
pub struct Malformed;

/// Reads a message field by field. Rejects groups, which are deprecated.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first field of a message.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// Returns the next field's number and value; `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a protobuf message.
    pub fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok(Some((number, value)))
    }

    /// The bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a number without a key, of a packed list.
    ///
    /// # Errors
    /// The bytes end, or the number has more than 64 bits.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit.
            if index == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// A field of a message, as ranges of the bytes that contain the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// All of it.
    pub whole: Range<usize>,
    /// The content of a message, string or bytes; `None` for numbers.
    pub content: Option<Range<usize>>,
}

/// The fields of the message at this place. `None` if there is none.
pub fn fields(bytes: &[u8], at: Range<usize>) -> Option<Vec<Field>> {
    let (mut reader, mut fields) = (Reader::new(&bytes[at.clone()]), Vec::new());
    loop {
        let start = at.end - reader.rest().len();
        let Some((number, value)) = reader.field().ok()? else {
            return Some(fields);
        };
        let end = at.end - reader.rest().len();
        let content = match value {
            Value::Bytes(bytes) => Some(end - bytes.len()..end),
            _ => None,
        };
        fields.push(Field { number, whole: start..end, content });
    }
}

/// Returns the slice of `outer` that `inner` refers to, sharing its memory.
pub fn share(outer: &Bytes, inner: &[u8]) -> Bytes {
    outer.slice_ref(inner)
}

/// The encoded length of a varint, in bytes.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The encoded length of a length-delimited field, including its key, for field numbers below 16.
pub fn bytes_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Writes a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes the key and length of a length-delimited field.
pub fn put_head(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    put_varint(out, length as u64);
}

/// Writes a length-delimited field.
pub fn put_bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    put_head(out, field, value.len());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = vec![8];
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), 1 + varint_len(value), "{value}");
            let Ok(Some((1, Value::Varint(read)))) = Reader::new(&bytes).field() else { panic!("{value}") };
            assert_eq!(read, value);
        }
    }

    #[test]
    fn fields_are_ranges_of_the_message() {
        let field = |number, whole, content| Field { number, whole, content };
        let both = [8, 1, 18, 2, 7, 7];
        assert_eq!(fields(&both, 0..6), Some(vec![field(1, 0..2, None), field(2, 2..6, Some(4..6))]));
        assert_eq!(fields(&both, 2..6), Some(vec![field(2, 2..6, Some(4..6))]));
        assert_eq!(fields(&[], 0..0), Some(Vec::new()));
        assert_eq!(fields(&both, 0..5), None);
    }

    #[test]
    fn truncated_fields_and_unknown_wire_types_are_rejected() {
        const OVERFLOW: [u8; 11] = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        for bytes in [&[8][..], &[8, 0x80], &[10, 5, 1], &[9, 0], &[11], &[0xff; 12], &OVERFLOW] {
            assert!(Reader::new(bytes).field().is_err(), "{bytes:?}");
        }
    }
}
