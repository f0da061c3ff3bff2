//! Objects on disk: durable, one directory, one process. What is on disk is described in [`format`].
//!
//! - One thread writes. It takes all transactions that wait and makes them durable together, so that writers who come at
//!   once share the wait for the disk. A transaction is answered when it is on disk, and seen by others only then.
//! - Current objects and the recent past are in memory; lists and watches do not touch the disk. Older lists and
//!   histories are read from it on threads that may wait.
//! - The past is kept as [`Options`] say and compacted a little at a time. The file does not shrink: space that is freed
//!   is used again.
//! - When the disk fails or is full the store goes on answering reads, and writes again when it can. A file that is
//!   damaged is not opened, and not changed.
//! - Watches are served from memory: one from a revision that is older than what is there ends with
//!   [`Error::Compacted`], though a list as of it may still be answered.

mod backend;
mod directory;
mod disk;
pub mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::backend::Fault;
use self::directory::Directory;
use self::disk::Disk;
use self::writer::{Command, Slot, Writer};
use crate::prepared::Prepared;
use crate::shared::Shared;
use crate::state::wanted;
use crate::{Committed, Error, Key, Limits, List, Query, Revision, Scope, Store, Stored, Transaction, Version, Watch};

/// How a directory is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is held in memory, and the size of objects.
    pub limits: Limits,
    /// How many revisions are kept.
    pub keep_revisions: u64,
    /// For how long revisions are kept, if they are not too many; none: for ever.
    pub keep_age: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            keep_revisions: 100_000,
            keep_age: Some(Duration::from_secs(30 * 24 * 60 * 60)),
        }
    }
}

/// A durable home in a directory. Clones share it; when the last one is dropped the directory is free again soon after,
/// and after [`Store::close`] at once.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    commands: mpsc::Sender<Command>,
}

/// So many writes may wait; further ones wait to wait.
const WAITING: usize = 1024;

impl Embedded {
    /// Opens the store of a directory; makes it if there is none.
    ///
    /// # Errors
    /// [`Error::Locked`]: another process has it. [`Error::ReadOnly`], [`Error::Full`], [`Error::Damaged`]: as they say;
    /// nothing was changed.
    pub async fn open(directory: impl AsRef<Path>, options: Options) -> Result<Embedded, Error> {
        Embedded::open_with(directory.as_ref().to_owned(), options, None).await
    }

    async fn open_with(path: PathBuf, options: Options, fault: Option<Fault>) -> Result<Embedded, Error> {
        let opening = tokio::task::spawn_blocking(move || Embedded::start(&path, options, fault));
        match opening.await {
            Ok(result) => result,
            Err(error) => Err(Error::Unavailable(format!("opening the store was stopped: {error}"))),
        }
    }

    fn start(path: &Path, options: Options, fault: Option<Fault>) -> Result<Embedded, Error> {
        let directory = Directory::take(path)?;
        let disk = Disk::open(&directory, fault.clone())?;
        let compacted = disk.compacted()?;
        let state = disk.load(&options.limits)?;
        let shared = Arc::new(Shared::new(state, options.limits.clone()));
        let slot = Arc::new(RwLock::new(Some(disk)));
        let (commands, receiver) = mpsc::channel(WAITING);
        let writer = Writer {
            shared: shared.clone(),
            slot: slot.clone(),
            directory,
            options,
            fault,
            undecided: Vec::new(),
            compacted,
        };
        let failed = |error: std::io::Error| Error::Unavailable(format!("the store's thread cannot start: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(failed)?;
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        thread
            .spawn(move || runtime.block_on(writer.run(receiver)))
            .map_err(failed)?;
        Ok(Embedded { shared, slot, commands })
    }

    /// Reads from the disk on a thread that may wait.
    async fn on_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Disk) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let slot = self.slot.clone();
        let reading =
            tokio::task::spawn_blocking(move || match &*slot.read().unwrap_or_else(PoisonError::into_inner) {
                Some(disk) => read(disk),
                None => Err(Error::Unavailable(
                    "the database could not be opened again after an error".to_owned(),
                )),
            });
        match reading.await {
            Ok(result) => result,
            Err(error) => Err(Error::Unavailable(format!("reading was stopped: {error}"))),
        }
    }

    /// Asks the thread for something.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| Error::Closed)?;
        // The thread ended between taking it and answering.
        answered
            .await
            .map_err(|_| Error::Unknown("the store was closed meanwhile".to_owned()))
    }
}

#[async_trait::async_trait]
impl Store for Embedded {
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        Ok(self.shared.open()?.get(key).cloned())
    }

    async fn list(&self, query: &Query) -> Result<List, Error> {
        let (answer, newest) = {
            let state = self.shared.open()?;
            (state.list(query), state.revision())
        };
        match answer {
            Err(Error::Compacted { .. }) => {
                let revision = wanted(query, newest)?;
                let query = query.clone();
                self.on_disk(move |disk| reader::list(disk, &query, revision)).await
            }
            answer => answer,
        }
    }

    async fn snapshot(&self, scope: &Scope) -> Result<List, Error> {
        Ok(self.shared.open()?.snapshot(scope))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        drop(self.shared.open()?);
        // The text is made here and not by the thread, for which others wait.
        let transaction = Prepared::new(transaction)?;
        self.ask(|answer| Command::Commit(transaction, answer)).await?
    }

    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error> {
        self.shared.watch(scope, after)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.open()?.revision())
    }

    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error> {
        let newest = self.shared.open()?.revision();
        let key = key.clone();
        self.on_disk(move |disk| reader::history(disk, &key, newest, limit))
            .await
    }

    async fn compact(&self, upto: Revision) -> Result<(), Error> {
        drop(self.shared.open()?);
        self.ask(|answer| Command::Compact(upto, answer)).await?
    }

    async fn close(&self) {
        // Closed already is closed.
        let _ = self.ask(Command::Close).await;
    }
}
