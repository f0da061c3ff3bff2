//! The writer thread: takes all waiting transactions, makes them durable together, and acknowledges them.
//!
//! After a failed write the database is opened again at once to find out whether the group was written; it is atomic.
//! If that fails too, the outcome is unknown until the next successful opening, before any other write. Reads are
//! served from memory meanwhile.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};

use super::Options;
use super::backend::Fault;
use super::directory::Directory;
use super::disk::Disk;
use crate::prepared::Prepared;
use crate::ring::Batch;
use crate::shared::Shared;
use crate::state::Draft;
use crate::{Committed, Error, Revision};

/// The database, shared with readers; `None` if it could not be opened again after a failure.
pub(super) type Slot = RwLock<Option<Disk>>;

/// A command for the thread.
pub(super) enum Command {
    Commit(Prepared, oneshot::Sender<Result<Committed, Error>>),
    Compact(Revision, oneshot::Sender<Result<(), Error>>),
    Close(oneshot::Sender<()>),
}

/// The state of the thread.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Arc<Slot>,
    pub(super) directory: Directory,
    pub(super) options: Options,
    pub(super) fault: Option<Fault>,
    /// Batches with unknown outcome.
    pub(super) undecided: Vec<Batch>,
    /// The log on disk contains all later revisions.
    pub(super) compacted: Revision,
    /// The reason for which nothing can be written.
    pub(super) failure: watch::Sender<Option<Error>>,
}

/// The maximum number of transactions per group.
const GROUP: usize = 256;
/// How long to wait for more transactions when several arrived together the last time. Shorter than a disk sync.
const GATHER: Duration = Duration::from_micros(200);
/// The number of revisions compacted in one step, which blocks writes.
const COMPACT_STEP: u64 = 256;
/// The interval of compaction by age.
const AGE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which a store that cannot be written is checked.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

type Waiting = (Prepared, oneshot::Sender<Result<Committed, Error>>);

impl Writer {
    /// Executes commands until all senders are dropped or the store is closed. Returns the senders to notify when the
    /// directory is unlocked.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let (mut ended, mut together) = (None, false);
        while ended.is_none() {
            let interval = if self.failure.borrow().is_some() { PROBE_INTERVAL } else { AGE_INTERVAL };
            let first = match tokio::time::timeout(interval, commands.recv()).await {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(_) => {
                    if interval == PROBE_INTERVAL {
                        self.probe();
                    }
                    self.retain();
                    continue;
                }
            };
            if together {
                // Callers that were just acknowledged are about to write again: wait to share one disk sync.
                std::thread::sleep(GATHER);
            }
            let (mut group, mut next) = (Vec::new(), Some(first));
            while let Some(command) = next.take() {
                match command {
                    Command::Commit(transaction, answer) => group.push((transaction, answer)),
                    Command::Compact(upto, answer) => {
                        self.commit(std::mem::take(&mut group));
                        // The caller may have gone.
                        let _ = answer.send(self.compact(upto));
                    }
                    Command::Close(answer) => ended = Some(answer),
                }
                if group.len() < GROUP && ended.is_none() {
                    next = commands.try_recv().ok();
                }
            }
            together = group.len() > 1;
            self.commit(group);
            self.retain_count();
        }
        self.shared.close();
        commands.close();
        while let Ok(command) = commands.try_recv() {
            match command {
                Command::Commit(_, answer) => drop(answer.send(Err(Error::Closed))),
                Command::Compact(_, answer) => drop(answer.send(Err(Error::Closed))),
                Command::Close(answer) => drop(answer.send(())),
            }
        }
        drop(self.slot.write().unwrap_or_else(PoisonError::into_inner).take());
        drop(self);
        if let Some(answer) = ended {
            let _ = answer.send(());
        }
    }

    /// Makes transactions durable, applies them in memory, then acknowledges them.
    fn commit(&mut self, group: Vec<Waiting>) {
        if group.is_empty() {
            return;
        }
        if let Err(error) = self.ready() {
            for (_, answer) in group {
                let _ = answer.send(Err(error.clone()));
            }
            return;
        }
        let mut draft = Draft::new(&self.shared.read(), self.shared.limits());
        let time = SystemTime::now();
        let mut results = Vec::with_capacity(group.len());
        for (transaction, answer) in group {
            results.push((draft.add(&self.shared.read(), transaction, time), answer));
        }
        let outcome = self.write(draft.batches);
        for (result, answer) in results {
            // A transaction that was rejected stays rejected, unless the rejection depends on the failed ones.
            let _ = answer.send(outcome.clone().and(result));
        }
    }

    /// Writes batches and applies them in memory.
    fn write(&mut self, batches: Vec<Batch>) -> Result<(), Error> {
        let Some(newest) = batches.last().map(|batch| batch.revision) else {
            return Ok(());
        };
        let written = match &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
            Some(disk) => disk.write(&batches),
            None => Err(Error::Unavailable("the database is not open".to_owned())),
        };
        self.note_outcome(written.as_ref().err());
        let Err(error) = written else {
            self.happen(batches, newest);
            return Ok(());
        };
        tracing::error!(%error, "a write failed; opening the database again");
        self.undecided = batches;
        match self.reopen() {
            Ok(()) if self.shared.read().revision() == newest => Ok(()),
            Ok(()) => Err(error),
            Err(second) => {
                tracing::error!(error = %second, "the database cannot be opened; only current objects can be read");
                Err(Error::Unknown(format!("{error}; and opening the database again failed: {second}")))
            }
        }
    }

    /// Checks whether there is space for writes.
    pub(super) fn probe(&self) {
        let result = self.directory.probe();
        self.note_outcome(result.err().as_ref());
    }

    /// Notes whether writes work. A change is logged.
    fn note_outcome(&self, error: Option<&Error>) {
        let changed = self.failure.send_if_modified(|failure| {
            let changed = failure.is_some() != error.is_some();
            *failure = error.cloned();
            changed
        });
        match error {
            Some(error) if changed => {
                tracing::error!(%error, "the store is read-only: nothing can be written until this is resolved");
            }
            None if changed => tracing::info!("the store can be written again"),
            _ => {}
        }
    }

    /// Checks that the database is writable, and opens it again if necessary.
    fn ready(&mut self) -> Result<(), Error> {
        if self.slot.read().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        self.reopen()
    }

    /// Opens the database again and resolves batches with unknown outcome.
    fn reopen(&mut self) -> Result<(), Error> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(disk) = slot.take() {
            disk.retire();
        }
        let disk = Disk::open(&self.directory, self.fault.clone())?;
        let (on_disk, known) = (disk.newest()?, self.shared.read().revision());
        *slot = Some(disk);
        drop(slot);
        let undecided = std::mem::take(&mut self.undecided);
        match undecided.last().map(|batch| batch.revision) {
            Some(newest) if newest == on_disk => self.happen(undecided, newest),
            _ if on_disk == known => {}
            _ => {
                self.slot.write().unwrap_or_else(PoisonError::into_inner).take();
                let path = self.directory.database();
                return Err(super::directory::damaged(
                    &path,
                    &format!("it ends with revision {on_disk}, and {known} was expected"),
                ));
            }
        }
        Ok(())
    }

    fn happen(&self, batches: Vec<Batch>, newest: Revision) {
        self.directory.note(newest);
        self.shared.write(|_| (batches, ()));
    }

    /// Compacts on disk and in memory.
    fn compact(&mut self, upto: Revision) -> Result<(), Error> {
        let newest = self.shared.read().revision();
        if upto > newest {
            let requested = upto;
            return Err(Error::Future { requested, newest });
        }
        self.ready()?;
        while self.compacted < upto {
            self.step(upto)?;
        }
        self.shared.forget(upto);
        Ok(())
    }

    /// Compacts revisions beyond the maximum number in small steps, so that writes hardly wait.
    fn retain_count(&mut self) {
        let keep = self.options.keep_revisions.saturating_add(COMPACT_STEP);
        let newest = self.shared.read().revision();
        if newest.saturating_sub(self.compacted) > keep
            && let Err(error) = self.step(newest - self.options.keep_revisions)
        {
            tracing::warn!(%error, "old revisions cannot be compacted now");
        }
    }

    /// Compacts revisions beyond the maximum age.
    fn retain(&mut self) {
        let Some(time) = self.options.keep_age.and_then(|age| SystemTime::now().checked_sub(age)) else {
            return;
        };
        let due = match &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
            Some(disk) => disk.last_before(time),
            None => return,
        };
        let result = due.and_then(|due| match due {
            Some(due) if due > self.compacted => self.step(due),
            _ => Ok(()),
        });
        if let Err(error) = result {
            tracing::warn!(%error, "old revisions cannot be compacted now");
        }
    }

    fn step(&mut self, upto: Revision) -> Result<(), Error> {
        let result = match &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
            Some(disk) => disk.compact(upto, COMPACT_STEP),
            None => Err(Error::Unavailable("the database is not open".to_owned())),
        };
        match result {
            Ok(compacted) => {
                self.compacted = compacted;
                Ok(())
            }
            Err(error) => {
                // The handle is unusable after an error. Its operation happened or not; both are harmless.
                self.reopen()?;
                if let Some(disk) = &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
                    self.compacted = disk.compacted()?;
                }
                Err(error)
            }
        }
    }
}
