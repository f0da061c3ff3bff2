//! Accepts the `:authority` of gRPC's C library, which is the percent-encoded path of the Unix socket. The HTTP library rejects it.
//!
//! The percent signs of plain `:authority` fields are replaced in HEADERS frames. No length changes, so the table of the header
//! compression stays the same on both sides.

/// The index of `:authority` in the static table.
const AUTHORITY: usize = 1;
/// A flag of DATA and HEADERS frames.
pub(crate) const PADDED: u8 = 8;
/// A flag of HEADERS frames.
const PRIORITY: u8 = 32;

/// Replaces percent signs of `:authority` in the payload of a HEADERS frame. Stops at bytes that it cannot read.
pub(crate) fn repair(payload: &mut [u8], flags: u8) {
    let skipped = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let mut at = skipped;
    while let Some(next) = repair_field(payload, at) {
        at = next;
    }
}

/// The position after a field.
fn repair_field(block: &mut [u8], at: usize) -> Option<usize> {
    let first = *block.get(at)?;
    let bits = match first {
        0x80.. => 7,
        0x40.. => 6,
        0x20.. => 5,
        _ => 4,
    };
    let (name, mut at) = integer(block, at, bits)?;
    // An indexed field, or the size of the table.
    if bits == 7 || bits == 5 {
        return Some(at);
    }
    let mut is_authority = name == AUTHORITY;
    if name == 0 {
        let (text, end) = string(block, at)?;
        is_authority = text.is_some_and(|range| &block[range] == b":authority");
        at = end;
    }
    let (text, end) = string(block, at)?;
    if let Some(range) = text.filter(|_| is_authority) {
        block[range].iter_mut().filter(|byte| **byte == b'%').for_each(|byte| *byte = b'-');
    }
    Some(end)
}

/// The place of a string, if it is not compressed, and the position after it.
fn string(block: &[u8], at: usize) -> Option<(Option<std::ops::Range<usize>>, usize)> {
    let is_compressed = block.get(at)? & 0x80 != 0;
    let (length, start) = integer(block, at, 7)?;
    let end = start.checked_add(length).filter(|end| *end <= block.len())?;
    Some(((!is_compressed).then_some(start..end), end))
}

/// An integer whose first byte has this number of bits, and the position after it.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let mask = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    if value < mask {
        return Some((value, at + 1));
    }
    for (index, byte) in block.get(at + 1..)?.iter().take(4).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + index));
        }
    }
    None
}

/// Repairs any bytes, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut repaired = bytes.to_vec();
    repair(&mut repaired, bytes.first().copied().unwrap_or_default());
    assert!(repaired.iter().zip(bytes).all(|(new, old)| new == old || (*old == b'%' && *new == b'-')));
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `:path` by its index and value, a field with a name, and `:authority` in this representation.
    pub(crate) fn block(authority: &[u8]) -> Vec<u8> {
        [&b"\x83\x44\x02%2\x40\x02%a\x01%"[..], authority, b"\x86"].concat()
    }

    #[test]
    fn only_the_authority_is_repaired() {
        for (flags, before, head, value) in [
            (0, &b""[..], &b"\x41\x04"[..], &b"%2Fx"[..]),
            (0, b"", b"\x01\x04", b"%2Fx"),
            (0, b"", b"\x10\x0a:authority\x04", b"%2Fx"),
            (PADDED | PRIORITY, b"\0\0\0\0\0\x10", b"\x41\x04", b"%2Fx"),
        ] {
            let payload = |value: &[u8]| [before, &block(&[head, value].concat())].concat();
            let mut repaired = payload(value);
            repair(&mut repaired, flags);
            assert_eq!(repaired, payload(b"-2Fx"), "{head:?}");
        }
        // A compressed value stays as it is.
        let mut compressed = block(b"\x41\x82%%");
        repair(&mut compressed, 0);
        assert_eq!(compressed, block(b"\x41\x82%%"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            fuzz(&bytes);
        }
    }
}
