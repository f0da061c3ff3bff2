//! Reads files on another thread, because a read of a network mount can hang.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel, sync_channel};
use std::time::Duration;

/// The maximum number of files whose reads hang. When it is reached, no further files are read until one of them ends.
const MAX_HUNG: usize = 16;

/// The number of files that are read ahead.
const AHEAD: usize = 16;

type Outcome = io::Result<Vec<u8>>;

/// Reads files. A read that hangs is left behind on its thread; the file is not read again before it ends.
pub(crate) struct Reads {
    read: fn(&Path) -> Outcome,
    within: Duration,
    /// The reads that hang. The sender is dropped when the thread ends.
    hung: BTreeMap<PathBuf, Receiver<Outcome>>,
    /// The thread that reads; `None` before the first read, and after one that hangs.
    thread: Option<Thread>,
}

/// A thread that reads files: takes them, and returns their contents. It ends when this is dropped.
type Thread = (Sender<Vec<PathBuf>>, Receiver<Outcome>);

fn start(read: fn(&Path) -> Outcome) -> io::Result<Thread> {
    let (files, wanted) = channel::<Vec<PathBuf>>();
    let (sender, outcomes) = sync_channel(AHEAD);
    std::thread::Builder::new().name("read files".into()).spawn(move || {
        for file in wanted.into_iter().flatten() {
            // The receiver is gone, or has left this thread behind.
            if sender.send(read(&file)).is_err() {
                return;
            }
        }
    })?;
    Ok((files, outcomes))
}

impl Reads {
    pub(crate) fn new(read: fn(&Path) -> Outcome, within: Duration) -> Reads {
        Reads { read, within, hung: BTreeMap::new(), thread: None }
    }

    /// Reads these files. The results have the same order.
    pub(crate) fn read(&mut self, paths: Vec<PathBuf>) -> Vec<Outcome> {
        self.hung.retain(|_, receiver| matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
        let mut results: Vec<Option<Outcome>> = Vec::new();
        results.resize_with(paths.len(), || None);
        let mut left: Vec<usize> =
            (0..paths.len()).rev().filter(|index| !self.hung.contains_key(&paths[*index])).collect();
        while !left.is_empty() && self.hung.len() < MAX_HUNG {
            self.read_some(&paths, &mut left, &mut results);
        }
        let hangs = || Err(io::Error::new(io::ErrorKind::TimedOut, "reading it takes too long"));
        results.into_iter().map(|result| result.unwrap_or_else(hangs)).collect()
    }

    /// Reads files on one thread, until all are read or one hangs. Removes them from `left`, which is in reverse order.
    fn read_some(&mut self, paths: &[PathBuf], left: &mut Vec<usize>, results: &mut [Option<Outcome>]) {
        let (files, outcomes) = match self.thread.take().map_or_else(|| start(self.read), Ok) {
            Ok(thread) => thread,
            Err(error) => {
                let failed = || Some(Err(io::Error::new(error.kind(), error.to_string())));
                return left.drain(..).for_each(|index| results[index] = failed());
            }
        };
        // If the thread has ended, no outcome is received.
        let _ = files.send(left.iter().rev().map(|index| paths[*index].clone()).collect());
        while let Some(index) = left.pop() {
            match outcomes.recv_timeout(self.within) {
                Ok(outcome) => results[index] = Some(outcome),
                Err(RecvTimeoutError::Disconnected) => {
                    results[index] = Some(Err(io::Error::other("reading it failed")));
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.hung.insert(paths[index].clone(), outcomes);
                    return;
                }
            }
        }
        self.thread = Some((files, outcomes));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Held while the read of `hangs` hangs.
    static HANGING: Mutex<()> = Mutex::new(());

    fn read(path: &Path) -> Outcome {
        if path == Path::new("hangs") {
            drop(HANGING.lock());
        }
        Ok(path.to_string_lossy().into_owned().into_bytes())
    }

    fn texts(outcomes: Vec<Outcome>) -> Vec<String> {
        let text =
            |outcome: Outcome| outcome.map_or_else(|e| e.to_string(), |b| String::from_utf8_lossy(&b).into_owned());
        outcomes.into_iter().map(text).collect()
    }

    #[test]
    fn a_read_that_hangs_does_not_hold_up_others() {
        let mut reads = Reads::new(read, Duration::from_millis(200));
        let files = || ["a", "hangs", "b"].map(PathBuf::from).to_vec();
        let guard = HANGING.lock().expect("not poisoned");
        assert_eq!(texts(reads.read(files())), ["a", "reading it takes too long", "b"]);
        assert_eq!(texts(reads.read(files())), ["a", "reading it takes too long", "b"]);
        assert_eq!(reads.hung.len(), 1, "the file is not read again before the read ends");
        drop(guard);
        while !reads.hung.is_empty() {
            reads.read(Vec::new());
        }
        assert_eq!(texts(reads.read(files())), ["a", "hangs", "b"]);
    }
}
