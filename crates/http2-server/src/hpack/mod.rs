//! Compression of header fields (HPACK, RFC 7541).

mod decoder;
mod encoder;
mod huffman;
mod static_table;

pub(crate) use decoder::{Decoder, FIELD_BYTES};
pub(crate) use encoder::{NO_TABLE, encode};
