//! Response bodies: complete, or line by line.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::poll_fn;
use http_body::Body as _;
use kube::client::Body;
use tokio::time::timeout;

use super::{ANSWER, RequestError, causes};
use crate::kubernetes::event::{self, Line};
use crate::kubernetes::slim::Keep;

/// The maximum size of a page or a line, in bytes.
const LARGEST: usize = 256 << 20;
/// How long a server that sends bookmarks (every minute) may be silent.
const SILENCE: Duration = Duration::from_secs(150);
/// The maximum number of lines handled together.
const TOGETHER: usize = 1000;

async fn frame(body: &mut Pin<Box<Body>>) -> Option<Result<Bytes, RequestError>> {
    loop {
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await?;
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(RequestError::Unavailable(causes(&error)))),
        }
    }
}

pub(super) async fn gather(body: Body) -> Result<Vec<u8>, RequestError> {
    let mut body = Box::pin(body);
    let mut bytes = Vec::new();
    loop {
        let next = timeout(ANSWER, frame(&mut body)).await;
        match next.map_err(|_| RequestError::Unavailable("the answer does not go on".to_owned()))? {
            Some(data) => bytes.extend_from_slice(&data?),
            None => return Ok(bytes),
        }
        if bytes.len() > LARGEST {
            return Err(RequestError::Malformed(format!("more than {LARGEST} bytes")));
        }
    }
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Pin<Box<Body>>,
    buffer: Vec<u8>,
    /// The buffer contains no newline before this position.
    scanned: usize,
    /// Whether the server sends bookmarks, which distinguish a quiet connection from a broken one.
    bookmarks: bool,
    lasts: Duration,
    keep: Arc<Keep>,
}

impl Lines {
    /// The lines of a response that lasts this long.
    pub(super) fn new(body: Body, lasts: Duration, keep: Arc<Keep>) -> Lines {
        Lines { body: Box::pin(body), buffer: Vec::new(), scanned: 0, bookmarks: false, lasts, keep }
    }

    /// Waits for the next lines and returns all that are available. `None` when the watch ended. `listing`: an initial
    /// list is being sent, which must not pause for long.
    pub(crate) async fn next(&mut self, listing: bool) -> Option<Result<Vec<Line>, RequestError>> {
        let patience = match (listing, self.bookmarks) {
            (true, _) => ANSWER,
            (false, true) => SILENCE,
            (false, false) => self.lasts + ANSWER,
        };
        let mut lines = Vec::new();
        while lines.is_empty() {
            let data = match timeout(patience, frame(&mut self.body)).await {
                Err(_) => return Some(Err(RequestError::Unavailable("the connection went silent".to_owned()))),
                Ok(None) => return None,
                Ok(Some(Err(trouble))) => return Some(Err(trouble)),
                Ok(Some(Ok(data))) => data,
            };
            if let Err(trouble) = self.take(&data, &mut lines) {
                return Some(Err(trouble));
            }
        }
        // Lines that have already arrived are returned together; the next call returns an error among them.
        while lines.len() < TOGETHER
            && let Some(Some(Ok(data))) = frame(&mut self.body).now_or_never()
        {
            if let Err(trouble) = self.take(&data, &mut lines) {
                return Some(Err(trouble));
            }
        }
        self.bookmarks |= lines.iter().any(|line| matches!(line, Line::Bookmark { .. }));
        Some(Ok(lines))
    }

    fn take(&mut self, data: &[u8], lines: &mut Vec<Line>) -> Result<(), RequestError> {
        self.buffer.extend_from_slice(data);
        let mut start = 0;
        while let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
            let end = self.scanned + end;
            let bytes = self.buffer[start..end].trim_ascii();
            if !bytes.is_empty() {
                lines.push(event::line(bytes, &self.keep).map_err(RequestError::malformed)?);
            }
            start = end + 1;
            self.scanned = start;
        }
        self.buffer.drain(..start);
        self.scanned = self.buffer.len();
        match self.buffer.len() > LARGEST {
            true => Err(RequestError::Malformed(format!("an event of more than {LARGEST} bytes"))),
            false => Ok(()),
        }
    }
}
