//! Encodes the header fields of responses. They are few, so that neither a table nor compression is worth its memory.

use http::{HeaderMap, StatusCode};

use super::static_table::STATUS_OK;

/// Encodes the fields of a response, or trailers, which have no status.
pub(crate) fn encode(status: Option<StatusCode>, headers: &HeaderMap) -> Vec<u8> {
    let mut block = Vec::with_capacity(64);
    match status {
        Some(StatusCode::OK) => block.push(0x80 | STATUS_OK),
        Some(status) => {
            // The name is that of `:status: 200`.
            block.push(STATUS_OK);
            string(&mut block, status.as_str().as_bytes());
        }
        None => {}
    }
    for (name, value) in headers {
        block.push(0);
        string(&mut block, name.as_str().as_bytes());
        string(&mut block, value.as_bytes());
    }
    block
}

/// Sets the size of the table to 0. It is sent once, at the beginning of the first block, so that no setting of the client matters.
pub(crate) const NO_TABLE: u8 = 0x20;

fn string(block: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    if length < 0x7f {
        block.push(length as u8);
    } else {
        block.push(0x7f);
        length -= 0x7f;
        while length > 0x7f {
            block.push(length as u8 | 0x80);
            length >>= 7;
        }
        block.push(length as u8);
    }
    block.extend_from_slice(text);
}
