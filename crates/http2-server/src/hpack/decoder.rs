//! Decodes the header fields of requests.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::huffman;
use super::static_table::FIELDS;

/// The size of the dynamic table that clients may use. It is the one that they use before they know any setting.
const TABLE_BYTES: usize = 4096;
/// The size of a field beside its name and value, in a table and in a list (RFC 7541, section 4.1; RFC 9113, section 6.5.2).
pub(crate) const FIELD_BYTES: usize = 32;

/// A field of the dynamic table.
struct Field {
    /// Shared: a client may use the long name of one field for many.
    name: Arc<[u8]>,
    value: Box<[u8]>,
}

impl Field {
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_BYTES
    }
}

/// The name of a literal field.
enum Name<'a> {
    Text(Cow<'a, [u8]>),
    /// The name of a field in the dynamic table.
    Shared(Arc<[u8]>),
}

impl Name<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Name::Text(text) => text,
            Name::Shared(name) => name,
        }
    }
}

/// The dynamic table of a connection.
pub(crate) struct Decoder {
    /// The newest field is the first one.
    fields: VecDeque<Field>,
    size: usize,
    limit: usize,
}

/// A header block that cannot be decoded. The connection cannot be used any more.
#[derive(Debug)]
pub(crate) struct Invalid;

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { fields: VecDeque::new(), size: 0, limit: TABLE_BYTES }
    }

    /// Passes the name and value of each field to `each`.
    pub(crate) fn decode(&mut self, block: &[u8], mut each: impl FnMut(&[u8], &[u8])) -> Result<(), Invalid> {
        let mut block = block;
        let mut may_resize = true;
        while let Some(first) = block.first() {
            match first {
                0x80.. => {
                    let (name, value) = self.field(integer(&mut block, 7)?)?;
                    each(name, value);
                }
                0x40.. => {
                    let (name, value) = self.literal(&mut block, 6)?;
                    each(name.bytes(), &value);
                    self.insert(name, &value);
                }
                0x20.. => {
                    let limit = integer(&mut block, 5)?;
                    if !may_resize || limit > TABLE_BYTES {
                        return Err(Invalid);
                    }
                    self.limit = limit;
                    self.shrink(limit);
                    continue;
                }
                _ => {
                    let (name, value) = self.literal(&mut block, 4)?;
                    each(name.bytes(), &value);
                }
            }
            may_resize = false;
        }
        Ok(())
    }

    /// A literal field, the index of whose name has this number of bits.
    fn literal<'a>(&self, block: &mut &'a [u8], bits: u32) -> Result<(Name<'a>, Cow<'a, [u8]>), Invalid> {
        let name = match integer(block, bits)? {
            0 => Name::Text(string(block)?),
            index => match FIELDS.get(index - 1) {
                Some((name, _)) => Name::Text(Cow::Borrowed(name.as_bytes())),
                None => Name::Shared(self.dynamic(index)?.name.clone()),
            },
        };
        Ok((name, string(block)?))
    }

    fn field(&self, index: usize) -> Result<(&[u8], &[u8]), Invalid> {
        match FIELDS.get(index.checked_sub(1).ok_or(Invalid)?) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => self.dynamic(index).map(|field| (&*field.name, &*field.value)),
        }
    }

    /// The field with this index, which is greater than those of the static table.
    fn dynamic(&self, index: usize) -> Result<&Field, Invalid> {
        self.fields.get(index - FIELDS.len() - 1).ok_or(Invalid)
    }

    fn insert(&mut self, name: Name<'_>, value: &[u8]) {
        let size = name.bytes().len() + value.len() + FIELD_BYTES;
        self.shrink(self.limit.saturating_sub(size));
        // A field that is larger than the table only empties it.
        if size <= self.limit {
            let name = match name {
                Name::Text(text) => Arc::from(&*text),
                Name::Shared(name) => name,
            };
            self.size += size;
            self.fields.push_front(Field { name, value: value.into() });
        }
    }

    /// Removes the oldest fields until the table is not larger than this.
    fn shrink(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.fields.pop_back()
        {
            self.size -= oldest.size();
        }
    }
}

/// An integer whose first byte has this number of bits (RFC 7541, section 5.1).
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, Invalid> {
    let mask = (1 << bits) - 1;
    let mut value = usize::from(next(block)?) & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next(block)?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Invalid)
}

fn next(block: &mut &[u8]) -> Result<u8, Invalid> {
    let (first, rest) = block.split_first().ok_or(Invalid)?;
    *block = rest;
    Ok(*first)
}

/// A string (RFC 7541, section 5.2).
fn string<'a>(block: &mut &'a [u8]) -> Result<Cow<'a, [u8]>, Invalid> {
    let is_compressed = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Invalid)?;
    *block = rest;
    match is_compressed {
        true => huffman::decode(text).map(Cow::Owned).ok_or(Invalid),
        false => Ok(Cow::Borrowed(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<String> {
        let mut text = String::new();
        let each = |name: &[u8], value: &[u8]| {
            text += &format!("{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        };
        decoder.decode(block, each).ok().map(|()| text)
    }

    #[test]
    fn fields_are_decoded_in_every_representation() {
        let mut decoder = Decoder::new();
        let blocks: [(&[u8], &str); 6] = [
            (b"\x83\x44\x02/a", ":method=POST;:path=/a;"),
            // The newest field is the first one after the static table.
            (b"\x40\x01n\x01v\xbe\xbf", "n=v;n=v;:path=/a;"),
            // A name of the dynamic table; neither is added.
            (b"\x0f\x2f\x01w\x1f\x2f\x01x", "n=w;n=x;"),
            (b"\x00\x81\x1f\x82\x64\x02", "a=302;"),
            // The table is emptied, and its limit set again.
            (b"\x20\x3f\xe1\x1f\x82", ":method=GET;"),
            (b"\x40\x01n\x01w\xbe", "n=w;n=w;"),
        ];
        for (block, expected) in blocks {
            assert_eq!(decode(&mut decoder, block).as_deref(), Some(expected), "{block:x?}");
        }
    }

    #[test]
    fn the_oldest_fields_are_removed() {
        let mut decoder = Decoder::new();
        let field = |name: u8| [&[0x40, 1, name, 0x7f, 0x83, 0x0f], &[b'v'; 2050][..]].concat();
        // Two fields of about 2 KiB do not fit.
        for name in *b"abc" {
            assert!(decode(&mut decoder, &field(name)).is_some());
        }
        assert!(decode(&mut decoder, b"\xbe").is_some_and(|field| field.starts_with("c=")));
        assert_eq!(decoder.fields.len(), 1);
        assert_eq!(decode(&mut decoder, b"\xbf"), None);
        // One that is larger than the table.
        let large = [&b"\x40\x01d\x7f\x81\x1f"[..], &[b'v'; 4096]].concat();
        assert!(decode(&mut decoder, &large).is_some_and(|field| field.starts_with("d=")));
        assert!(decoder.fields.is_empty() && decoder.size == 0);
    }

    #[test]
    fn invalid_blocks_are_refused() {
        let blocks: [(&[u8], &str); 9] = [
            (b"\x80", "index 0"),
            (b"\xbe", "an index beyond the table"),
            (b"\x44", "no value"),
            (b"\x44\x05/a", "a value that is cut off"),
            (b"\x44\x81\x00", "padding of zeros"),
            (b"\x82\x20", "a new size after a field"),
            (b"\x3f\xe2\x1f", "a size above the limit"),
            (b"\xff\x80\x80\x80\x80\x01", "an integer that is too long"),
            (b"\xff", "an integer that is cut off"),
        ];
        for (block, why) in blocks {
            assert_eq!(decode(&mut Decoder::new(), block), None, "{why}");
        }
    }
}
