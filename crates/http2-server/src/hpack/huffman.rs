//! The Huffman code of strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and the first one follows the last
//! one of the shorter length. So the lengths define it.

/// The symbol that ends a string. It may not occur.
const END: usize = 256;
/// The longest code, in bits.
const LONGEST: usize = 30;
/// The length of each symbol's code, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; END + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    /// The first code.
    first: u32,
    /// The number of codes.
    count: u32,
    /// The place of the first one's symbol in [`SYMBOLS`].
    at: usize,
}

/// The symbols in the order of their codes, and the codes of each length.
const TABLE: ([u16; END + 1], [Codes; LONGEST + 1]) = table();

const fn table() -> ([u16; END + 1], [Codes; LONGEST + 1]) {
    let mut symbols = [0; END + 1];
    let mut lengths = [Codes { first: 0, count: 0, at: 0 }; LONGEST + 1];
    let (mut length, mut at, mut code) = (1, 0, 0);
    while length <= LONGEST {
        let mut codes = Codes { first: code, count: 0, at };
        let mut symbol = 0;
        while symbol <= END {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
                codes.count += 1;
            }
            symbol += 1;
        }
        lengths[length] = codes;
        code = (code + codes.count) << 1;
        length += 1;
    }
    (symbols, lengths)
}

/// Decodes a string. `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    // The most frequent characters have 5 bits, most others 6 to 8.
    let mut decoded = Vec::with_capacity(bytes.len() * 8 / 5);
    // The last `count` bits of `bits` are not decoded yet. At most 29 bits remain when a byte is added.
    let (mut bits, mut count) = (0u64, 0);
    for byte in bytes {
        bits = bits << 8 | u64::from(*byte);
        count += 8;
        while let Some((symbol, length)) = next(bits, count) {
            decoded.push(u8::try_from(symbol).ok()?);
            count -= length;
        }
    }
    // The rest is the beginning of the end symbol, which has ones only, and shorter than a byte.
    let padding = (1 << count) - 1;
    (count < 8 && bits & padding == padding).then_some(decoded)
}

/// The symbol whose code comes next, and the length of the code.
fn next(bits: u64, count: usize) -> Option<(u16, usize)> {
    let (symbols, lengths) = &TABLE;
    (5..=count.min(LONGEST)).find_map(|length| {
        let code = (bits >> (count - length) & ((1 << length) - 1)) as u32;
        let codes = lengths[length];
        let place = code.wrapping_sub(codes.first);
        (place < codes.count).then(|| (symbols[codes.at + place as usize], length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_complete() {
        let used: u64 = LENGTHS.iter().map(|length| 1 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(used, 1 << LONGEST);
    }

    #[test]
    fn strings_are_decoded() {
        // The examples of RFC 7541, appendix C.4 and C.6.
        let examples: [(&[u8], &str); 4] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ];
        for (bytes, text) in examples {
            assert_eq!(decode(bytes).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn invalid_strings_are_refused() {
        // A zero as padding, a byte of padding, and the end symbol.
        for bytes in [&[0x00u8][..], &[0x64, 0x02, 0xff], &[0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(decode(bytes), None, "{bytes:x?}");
        }
    }
}
