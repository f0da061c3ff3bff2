//! Response bodies: pieces shared with the store, or a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

/// Small pieces are joined up to this size in bytes, to reduce the number of writes for a large list.
const JOIN: usize = 64 * 1024;

/// A response body.
pub struct Body(Inner);

enum Inner {
    Pieces { pieces: VecDeque<Bytes>, left: u64 },
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// A body of one piece.
    pub fn whole(bytes: impl Into<Bytes>) -> Body {
        Body::pieces(vec![bytes.into()])
    }

    /// A body of these pieces.
    pub fn pieces(pieces: Vec<Bytes>) -> Body {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let pieces = pieces.into();
        Body(Inner::Pieces { pieces, left })
    }

    pub(crate) fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body(Inner::Stream(pieces.fuse().boxed()))
    }

    /// The next piece; for a watch, the next event. None at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        let frame = self.frame().await?;
        frame.ok()?.into_data().ok()
    }

    /// Reads the whole body. Must not be used for a watch.
    pub async fn bytes(mut self) -> Bytes {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await {
            all.extend_from_slice(&piece);
        }
        all.freeze()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Pieces { pieces, left } => {
                let joined = join(pieces);
                *left -= joined.as_ref().map_or(0, |piece| piece.len() as u64);
                Poll::Ready(joined.map(|piece| Ok(Frame::data(piece))))
            }
            Inner::Stream(pieces) => pieces.poll_next_unpin(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Pieces { pieces, .. } => pieces.is_empty(),
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Pieces { left, .. } => SizeHint::with_exact(*left),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

/// Joins the next small pieces. A large piece, or the last one, is not copied.
fn join(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = pieces.pop_front()?;
    if pieces.is_empty() || first.len() >= JOIN / 4 {
        return Some(first);
    }
    let mut joined = BytesMut::with_capacity(JOIN);
    joined.extend_from_slice(&first);
    while let Some(piece) = pieces.front() {
        if joined.len() + piece.len() > JOIN {
            break;
        }
        joined.extend_from_slice(piece);
        pieces.pop_front();
    }
    Some(joined.freeze())
}
