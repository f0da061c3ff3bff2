//! A cache of encoded watch events, shared by all watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::media::Form;

/// The key of an encoded event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LineKey {
    pub revision: u64,
    pub key: store::Key,
    pub event: &'static str,
    pub version: &'static str,
    pub form: Form,
}

/// The newest events, up to a maximum size.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Mutex<Kept>>);

struct Kept {
    lines: HashMap<LineKey, Bytes>,
    order: VecDeque<LineKey>,
    bytes: usize,
    limit: usize,
}

impl Lines {
    /// A cache of at most this many bytes.
    pub(crate) fn new(limit: usize) -> Lines {
        Lines(Arc::new(Mutex::new(Kept { lines: HashMap::new(), order: VecDeque::new(), bytes: 0, limit })))
    }

    /// The event for this key, encoded if it is not cached.
    pub(crate) fn get(&self, key: LineKey, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(line) = self.kept().lines.get(&key) {
            return line.clone();
        }
        // Two watchers may encode the same event at the same time because the lock is released meanwhile.
        let line = make();
        self.kept().put(key, line.clone());
        line
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // No operation can leave the cache in an inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, key: LineKey, line: Bytes) {
        let size = line.len();
        if size > self.limit || self.lines.insert(key.clone(), line).is_some() {
            return;
        }
        self.order.push_back(key);
        self.bytes += size;
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.lines.remove(&oldest).map_or(0, |line| line.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_made_once_and_old_ones_go() {
        let lines = Lines::new(25);
        let key = |revision| LineKey {
            revision,
            key: store::Key::new(store::GroupResource::new("", "pods"), "a", "b"),
            event: "ADDED",
            version: "v1",
            form: Form::Whole,
        };
        let first = lines.get(key(1), || Bytes::from(vec![b'x'; 10]));
        let again = lines.get(key(1), || panic!("made twice"));
        assert_eq!(first.as_ptr(), again.as_ptr());
        lines.get(key(2), || Bytes::from(vec![b'x'; 10]));
        lines.get(key(3), || Bytes::from(vec![b'x'; 10]));
        let (count, bytes) = {
            let kept = lines.kept();
            (kept.lines.len(), kept.bytes)
        };
        assert_eq!((count, bytes), (2, 20));
        assert_eq!(lines.get(key(1), || Bytes::from_static(b"new")), "new");
    }
}
