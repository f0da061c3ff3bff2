//! Reads a whole HTTP request, to forward it.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::run::Result;

/// The maximum size of a request's head, in bytes.
const LARGEST_HEAD: usize = 64 << 10;
/// The maximum size of a request's body, in bytes.
const LARGEST_BODY: usize = 64 << 20;

/// A complete request.
pub(super) struct Request {
    /// `METHOD PATH`.
    pub(super) line: String,
    /// The bytes to send to the server: the request with `Connection: close`.
    pub(super) bytes: Vec<u8>,
}

impl Request {
    /// Reads a request. A body requires a `Content-Length`.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Request> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if bytes.len() > LARGEST_HEAD || from.read_buf(&mut bytes).await? == 0 {
                return Err("no request came to its end".into());
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = length(&head).unwrap_or(0);
        if length > LARGEST_BODY {
            return Err("the request is too large".into());
        }
        let whole = end + 4 + length;
        while bytes.len() < whole {
            if from.read_buf(&mut bytes).await? == 0 {
                return Err("no request came to its end".into());
            }
        }
        let body = &bytes[end + 4..whole];
        let sent = [head.as_bytes(), b"\r\nconnection: close\r\n\r\n", body].concat();
        let line = head.lines().next().unwrap_or_default();
        let line = line.rsplit_once(' ').map_or(line, |(line, _)| line).to_owned();
        Ok(Request { line, bytes: sent })
    }
}

fn length(head: &str) -> Option<usize> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_read_to_its_end_and_no_further() {
        let sent = b"PATCH /apis/a/status?x=1 HTTP/1.1\r\nhost: h\r\nContent-Length: 3\r\n\r\nabcGET /";
        let request = Request::read(&mut &sent[..]).await.unwrap();
        assert_eq!(request.line, "PATCH /apis/a/status?x=1");
        let text = String::from_utf8(request.bytes).unwrap();
        assert!(text.ends_with("\r\nconnection: close\r\n\r\nabc"), "{text}");
        for cut in [5, sent.len() - 7] {
            assert!(Request::read(&mut &sent[..cut]).await.is_err(), "{cut}");
        }
    }
}
