//! The database: opening, loading, writing batches, compaction. All functions block on the disk.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::backend::{Backend, Fault};
use super::directory::{Directory, damaged, explain};
use super::format::{
    Entry, FORMAT, LOG, META, META_COMPACTED, META_FORMAT, VERSIONS, decode_key, decode_log, encode_key, encode_log,
    encode_place, split_place,
};
use crate::ring::Batch;
use crate::state::State;
use crate::{Change, Error, Limits, Revision, Stored};

pub(super) struct Disk {
    pub(super) database: Database,
    pub(super) path: PathBuf,
    retired: Arc<AtomicBool>,
}

/// The size of redb's page cache, in bytes. Current objects are in memory anyway.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

impl Disk {
    /// Opens the database of a directory and verifies it.
    ///
    /// # Errors
    /// It is damaged or has another format, or the disk fails.
    pub(super) fn open(directory: &Directory, fault: Option<Fault>) -> Result<Disk, Error> {
        let file = directory.open_database(|file, path| {
            let disk = Disk::over(Backend::new(file, fault.clone()), path.to_owned())?;
            disk.guarded(|| disk.initialise())
        })?;
        let disk = Disk::over(Backend::new(file, fault), directory.database())?;
        let format = disk.guarded(|| disk.number(META_FORMAT))?;
        if format != FORMAT {
            return Err(Error::Damaged(format!(
                "{} has format {format}, and this program reads format {FORMAT}; use the program that wrote it",
                disk.path.display()
            )));
        }
        directory.check_newest(disk.newest()?)?;
        Ok(disk)
    }

    /// Stops all writes to the file.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(super) fn newest(&self) -> Result<Revision, Error> {
        self.guarded(|| {
            let log = self.database.begin_read()?.open_table(LOG)?;
            match log.last()? {
                Some((revision, _)) => Ok(revision.value()),
                None => self.number(META_COMPACTED),
            }
        })
    }

    /// The log contains all later revisions.
    pub(super) fn compacted(&self) -> Result<Revision, Error> {
        self.guarded(|| self.number(META_COMPACTED))
    }

    /// Writes batches durably and atomically.
    ///
    /// # Errors
    /// The disk fails. Whether the batches were written is known when the database is opened again.
    pub(super) fn write(&self, batches: &[Batch]) -> Result<(), Error> {
        self.guarded(|| {
            let transaction = self.begin()?;
            {
                let mut log = transaction.open_table(LOG)?;
                let mut versions = transaction.open_table(VERSIONS)?;
                for batch in batches {
                    let keys: Vec<Vec<u8>> = batch.changes.iter().map(|change| encode_key(&change.key)).collect();
                    for (key, change) in keys.iter().zip(&batch.changes) {
                        let value = encode_version(batch.time, change);
                        versions.insert(&encode_place(key, batch.revision)[..], &value[..])?;
                    }
                    let entry = encode_log(batch.time, keys.iter().map(Vec::as_slice));
                    log.insert(batch.revision, &entry[..])?;
                }
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Loads the current state, with as much history in its ring as fits.
    ///
    /// # Errors
    /// The content is inconsistent.
    pub(super) fn load(&self, limits: &Limits) -> Result<State, Error> {
        let newest = self.newest()?;
        self.guarded(|| {
            let compacted = self.number(META_COMPACTED)?;
            let reader = self.database.begin_read()?;
            if reader.open_table(LOG)?.len()? != newest.wrapping_sub(compacted) {
                return Err(Failure::Damaged(format!("revisions between {compacted} and {newest} are missing")));
            }
            let ring = u64::try_from(limits.ring_revisions).unwrap_or(u64::MAX);
            let mut past = Past::new(compacted.max(newest.saturating_sub(ring)), limits.ring_bytes);
            let (mut objects, mut last) = (Vec::new(), None::<(Vec<u8>, Option<Stored>)>);
            for item in reader.open_table(VERSIONS)?.iter()? {
                let (place, value) = item?;
                let (encoded, revision) = split_place(place.value()).ok_or_else(unreadable)?;
                let entry = Entry::decode(value.value()).ok_or_else(unreadable)?;
                let key = decode_key(encoded).ok_or_else(unreadable)?;
                let before = match last.take() {
                    Some((same, before)) if same == encoded => before,
                    Some((_, object)) => {
                        objects.extend(object);
                        None
                    }
                    None => None,
                };
                let after = entry.object(&key, revision).map_err(|error| Failure::Damaged(error.to_string()))?;
                last = Some((encoded.to_vec(), after.clone()));
                past.add(Change::new(key, revision, before, after), entry.time);
            }
            objects.extend(last.and_then(|(_, object)| object));
            past.finish(limits, newest, objects)
        })
    }

    /// Compacts at most `most` revisions up to `upto`: removes them from the log, and the versions that they replaced.
    /// Returns the oldest retained revision.
    ///
    /// # Errors
    /// The disk fails.
    pub(super) fn compact(&self, upto: Revision, most: u64) -> Result<Revision, Error> {
        self.guarded(|| {
            let transaction = self.begin()?;
            let end = {
                let mut meta = transaction.open_table(META)?;
                let compacted = meta.get(META_COMPACTED)?.ok_or_else(unreadable)?.value();
                let end = upto.min(compacted.saturating_add(most));
                if end <= compacted {
                    return Ok(compacted);
                }
                let mut log = transaction.open_table(LOG)?;
                let mut touched = Vec::new();
                for item in log.range(..=end)? {
                    let (_, entry) = item?;
                    let (_, keys) = decode_log(entry.value()).ok_or_else(unreadable)?;
                    touched.extend(keys.into_iter().map(<[u8]>::to_vec));
                }
                log.retain_in(..=end, |_, _| false)?;
                touched.sort();
                touched.dedup();
                let mut versions = transaction.open_table(VERSIONS)?;
                for key in touched {
                    forget_replaced(&mut versions, &key, end)?;
                }
                meta.insert(META_COMPACTED, end)?;
                end
            };
            transaction.commit()?;
            Ok(end)
        })
    }

    /// The last revision in the log that was written before a time.
    pub(super) fn last_before(&self, time: SystemTime) -> Result<Option<Revision>, Error> {
        self.guarded(|| {
            let log = self.database.begin_read()?.open_table(LOG)?;
            let (Some((first, _)), Some((last, _))) = (log.first()?, log.last()?) else {
                return Ok(None);
            };
            let (first, last) = (first.value(), last.value());
            // Clocks mostly go forward. If one went back, a few more or fewer revisions are kept.
            let (mut low, mut high) = (first, last + 1);
            while low < high {
                let middle = low + (high - low) / 2;
                let entry = log.get(middle)?.ok_or_else(unreadable)?;
                let (written, _) = decode_log(entry.value()).ok_or_else(unreadable)?;
                if written < time {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            Ok((low > first).then_some(low - 1))
        })
    }

    /// Runs an operation on the database. Errors name the file; a panic is reported as damage.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Error> {
        let result = catch_unwind(AssertUnwindSafe(work));
        let failure = match result {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Damaged("reading it failed".to_owned()),
        };
        Err(failure.explain(&self.path))
    }

    fn over(backend: Backend, path: PathBuf) -> Result<Disk, Error> {
        let retired = backend.retirement();
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
            builder.create_with_backend(backend).map_err(Failure::from)
        }));
        match opened {
            Ok(Ok(database)) => Ok(Disk { database, path, retired }),
            Ok(Err(failure)) => Err(failure.explain(&path)),
            Err(_) => Err(damaged(&path, "reading it failed")),
        }
    }

    fn initialise(&self) -> Result<(), Failure> {
        let transaction = self.begin()?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_FORMAT, FORMAT)?;
            meta.insert(META_COMPACTED, State::FIRST)?;
            transaction.open_table(LOG)?;
            transaction.open_table(VERSIONS)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Starts a transaction that is on disk when it is committed. In two phases: the header never points at pages that
    /// are not on disk, so a failed verification means damage, not a torn write.
    fn begin(&self) -> Result<redb::WriteTransaction, Failure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }

    fn number(&self, name: &str) -> Result<u64, Failure> {
        let meta = self.database.begin_read()?.open_table(META)?;
        let number = meta.get(name)?;
        number.map(|number| number.value()).ok_or_else(unreadable)
    }
}

/// An error without the file name.
pub(super) enum Failure {
    Redb(redb::Error),
    Damaged(String),
    Store(Error),
}

impl Failure {
    fn explain(self, path: &std::path::Path) -> Error {
        match self {
            Failure::Store(error) => error,
            Failure::Damaged(what) => damaged(path, &what),
            Failure::Redb(redb::Error::Io(error)) => explain(&error, path),
            Failure::Redb(error @ (redb::Error::PreviousIo | redb::Error::DatabaseClosed)) => {
                Error::Unavailable(format!("{}: {error}", path.display()))
            }
            Failure::Redb(error) => damaged(path, &error.to_string()),
        }
    }
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Redb(error.into())
    }
}

/// The error for entries in an unknown format.
pub(super) fn unreadable() -> Failure {
    Failure::Damaged("it has entries that cannot be read".to_owned())
}

fn encode_version(time: SystemTime, change: &Change) -> Vec<u8> {
    super::format::encode_version(time, change.after.as_ref())
}

/// Removes the versions of an object that were replaced at or before a revision.
fn forget_replaced(versions: &mut redb::Table<'_, &[u8], &[u8]>, key: &[u8], upto: Revision) -> Result<(), Failure> {
    let (start, end) = (encode_place(key, 0), encode_place(key, upto));
    let mut old = Vec::new();
    for item in versions.range(&start[..]..=&end[..])? {
        let (place, value) = item?;
        let deleted = Entry::decode(value.value()).ok_or_else(unreadable)?.json.is_none();
        old.push((place.value().to_vec(), deleted));
    }
    // The last one was current at that revision and stays, unless it is a deletion.
    if old.last().is_some_and(|(_, deleted)| !deleted) {
        old.pop();
    }
    for (place, _) in old {
        versions.remove(&place[..])?;
    }
    Ok(())
}

/// Collects recent changes, which are stored by object, by revision for the ring.
struct Past {
    batches: BTreeMap<Revision, (SystemTime, Vec<Arc<Change>>)>,
    bytes: usize,
    max_bytes: usize,
    /// Only later revisions are collected.
    oldest: Revision,
}

impl Past {
    fn new(oldest: Revision, max_bytes: usize) -> Past {
        Past { batches: BTreeMap::new(), bytes: 0, max_bytes, oldest }
    }

    fn add(&mut self, change: Change, time: SystemTime) {
        if change.revision <= self.oldest {
            return;
        }
        self.bytes += change.bytes();
        let (_, changes) = self.batches.entry(change.revision).or_insert_with(|| (time, Vec::new()));
        changes.push(Arc::new(change));
        while self.bytes > self.max_bytes
            && let Some((revision, (_, changes))) = self.batches.pop_first()
        {
            self.bytes -= changes.iter().map(|change| change.bytes()).sum::<usize>();
            self.oldest = revision;
        }
    }

    fn finish(self, limits: &Limits, newest: Revision, objects: Vec<Stored>) -> Result<State, Failure> {
        let mut state = State::of(limits, self.oldest, objects);
        for (revision, (time, changes)) in self.batches {
            if revision != state.revision() + 1 {
                return Err(Failure::Damaged(format!("revision {} is missing", state.revision() + 1)));
            }
            state.ring.push(Batch { revision, time, changes });
        }
        if state.revision() != newest {
            return Err(Failure::Damaged(format!("revision {newest} is missing")));
        }
        Ok(state)
    }
}
