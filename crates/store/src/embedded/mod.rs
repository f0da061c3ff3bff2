//! A durable store in one directory, used by one process. [`format`] describes the files.
//!
//! - One thread writes. It takes all waiting transactions and makes them durable together, so concurrent writers share
//!   one disk sync. A transaction is acknowledged, and becomes visible, when it is on disk.
//! - Current objects and recent history are in memory; lists and watches do not access the disk. Older lists and
//!   histories are read from disk on blocking threads.
//! - History is kept according to [`Options`] and compacted in small steps. The file does not shrink, but freed space
//!   is reused.
//! - If the disk fails or is full, reads continue, and writes resume when possible. A damaged file is not opened and
//!   not changed.
//! - Watches are served from memory: a watch from an older revision ends with [`Error::Compacted`], even if a list at
//!   that revision is still possible.

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

use tokio::sync::{mpsc, oneshot, watch};

use self::backend::Fault;
use self::directory::Directory;
use self::disk::Disk;
use self::writer::{Command, Slot, Writer};
use crate::prepared::Prepared;
use crate::shared::Shared;
use crate::state::read_revision;
use crate::{
    Committed, Error, Key, Limits, List, Query, Revision, Scope, Store, StoreSize, Stored, Transaction, Version, Watch,
};

/// Options of an embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Limits of the history in memory and of object sizes.
    pub limits: Limits,
    /// The number of retained revisions.
    pub keep_revisions: u64,
    /// The age of retained revisions; `None` for no limit.
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

/// An embedded store. Clones share it. The directory is unlocked soon after the last one is dropped, and immediately
/// after [`Store::close`].
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    commands: mpsc::Sender<Command>,
    failure: watch::Receiver<Option<Error>>,
    /// The path of the database.
    file: PathBuf,
}

/// The number of queued writes; further callers wait.
const WAITING: usize = 1024;

impl Embedded {
    /// Opens the store of a directory and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::Locked`]: another process uses it. [`Error::ReadOnly`], [`Error::Full`], [`Error::Damaged`]: nothing
    /// was changed.
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
        let (failure, failing) = watch::channel(None);
        let file = directory.database();
        let writer = Writer {
            shared: shared.clone(),
            slot: slot.clone(),
            directory,
            options,
            fault,
            undecided: Vec::new(),
            compacted,
            failure,
        };
        writer.probe();
        let failed = |error: std::io::Error| Error::Unavailable(format!("the store's thread cannot start: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        thread.spawn(move || runtime.block_on(writer.run(receiver))).map_err(failed)?;
        Ok(Embedded { shared, slot, commands, failure: failing, file })
    }

    /// Reads from disk on a blocking thread.
    async fn on_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Disk) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let slot = self.slot.clone();
        let reading =
            tokio::task::spawn_blocking(move || match &*slot.read().unwrap_or_else(PoisonError::into_inner) {
                Some(disk) => read(disk),
                None => Err(Error::Unavailable("the database could not be opened again after an error".to_owned())),
            });
        match reading.await {
            Ok(result) => result,
            Err(error) => Err(Error::Unavailable(format!("reading was stopped: {error}"))),
        }
    }

    /// Sends a command to the writer thread.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| Error::Closed)?;
        // The thread ended before it answered.
        answered.await.map_err(|_| Error::Unknown("the store was closed before it answered".to_owned()))
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
                let revision = read_revision(query, newest)?;
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
        // Serialized here, because other callers wait for the writer thread.
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
        self.on_disk(move |disk| reader::history(disk, &key, newest, limit)).await
    }

    async fn compact(&self, upto: Revision) -> Result<(), Error> {
        drop(self.shared.open()?);
        self.ask(|answer| Command::Compact(upto, answer)).await?
    }

    fn write_failure(&self) -> watch::Receiver<Option<Error>> {
        self.failure.clone()
    }

    fn size(&self) -> Option<StoreSize> {
        let file = std::fs::metadata(&self.file).ok();
        Some(StoreSize { objects: self.shared.read().counts(), file_bytes: file.map(|file| file.len()) })
    }

    async fn close(&self) {
        // An error means that it is already closed.
        let _ = self.ask(Command::Close).await;
    }
}
