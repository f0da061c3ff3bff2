//! Encoded messages in pieces that messages share.

use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

/// A part of a list that others share.
#[derive(Clone, Debug)]
pub(crate) struct Slice<T> {
    all: Arc<[T]>,
    range: Range<usize>,
}

impl<T> Slice<T> {
    /// A part of this one.
    pub(crate) fn part(&self, range: Range<usize>) -> Slice<T> {
        let start = self.range.start;
        Slice { all: self.all.clone(), range: start + range.start..start + range.end }
    }
}

impl<T> From<Vec<T>> for Slice<T> {
    fn from(all: Vec<T>) -> Slice<T> {
        Slice { range: 0..all.len(), all: all.into() }
    }
}

impl<T> Deref for Slice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.all.get(self.range.clone()).unwrap_or_default()
    }
}

/// An encoded message in pieces. Clones share the pieces. It is as small as a pointer, because a queue of them has room for
/// many.
#[derive(Clone, Debug)]
pub struct Rope(Arc<Pieces>);

#[derive(Debug)]
struct Pieces {
    head: Bytes,
    runs: Box<[Run]>,
    len: usize,
}

/// Pieces that ropes share.
#[derive(Debug)]
struct Run {
    pieces: Slice<Bytes>,
    /// The number of pieces up to here, without the head.
    end: usize,
}

impl Rope {
    /// A message that begins with `head`. The other pieces are in parts of lists that messages share.
    pub(crate) fn new(head: Vec<u8>, parts: impl IntoIterator<Item = Slice<Bytes>>) -> Rope {
        let (mut len, mut end) = (head.len(), 0);
        let runs = parts.into_iter().filter(|pieces| !pieces.is_empty()).map(|pieces| {
            len += pieces.iter().map(Bytes::len).sum::<usize>();
            end += pieces.len();
            Run { pieces, end }
        });
        let runs = runs.collect();
        Rope(Arc::new(Pieces { head: head.into(), runs, len }))
    }

    /// A rope of these pieces.
    pub fn from_pieces(pieces: Vec<Bytes>) -> Rope {
        Rope::new(Vec::new(), [pieces.into()])
    }

    /// The parts of lists that it has after its head.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Slice<Bytes>> {
        self.0.runs.iter().map(|run| &run.pieces)
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces_from(0)
    }

    /// The pieces in order, from the one with this index on.
    pub fn pieces_from(&self, index: usize) -> impl Iterator<Item = &Bytes> {
        let head = (index == 0).then_some(&self.0.head);
        let skipped = index.saturating_sub(1);
        let first = self.0.runs.partition_point(|run| run.end <= skipped);
        let rest = self.0.runs[first..].iter().flat_map(move |run| {
            let start = run.end - run.pieces.len();
            run.pieces[skipped.saturating_sub(start)..].iter()
        });
        head.into_iter().chain(rest)
    }

    /// The length of the message in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_found_by_index_in_all_parts() {
        let all: Slice<Bytes> = ["a", "b", "c", "d"].map(Bytes::from).to_vec().into();
        let parts = [all.part(1..3), all.part(0..0), all.part(3..4), all.part(0..4).part(1..2)];
        let rope = Rope::new(b"head".to_vec(), parts);
        let all = ["head", "b", "c", "d", "b"];
        assert!(rope.pieces().eq(all));
        for index in 0..=all.len() {
            assert!(rope.pieces_from(index).eq(&all[index..]), "from {index}");
        }
        assert_eq!(rope.len(), 8);
    }
}
