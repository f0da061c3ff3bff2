//! The directory of a store: lock, files and error messages.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Revision};

/// The file name of the database.
const DATABASE: &str = "store.redb";
const LOCK: &str = "store.lock";
const NEWEST: &str = "store.newest";
/// A file that is written to find out whether there is space.
const PROBE: &str = "store.probe";
/// The size of that file, in bytes.
const PROBE_BYTES: usize = 64 << 10;

/// A directory locked by this process until it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The file with the newest revision.
    newest: File,
    _lock: File,
}

impl Directory {
    /// Locks the directory and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Locked`]; or it cannot be written.
    pub(super) fn take(path: &Path) -> Result<Directory, Error> {
        let failed = |error: io::Error| explain(&error, path);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        warn_if_open_to_others(path);
        let lock_path = path.join(LOCK);
        let lock = private().read(true).write(true).create(true).truncate(false).open(&lock_path);
        let mut lock = lock.map_err(|error| explain(&error, &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(path, &mut lock)),
            Err(TryLockError::Error(error)) => return Err(explain(&error, &lock_path)),
        }
        let holder = format!("{}\n", std::process::id());
        // Only for the error message of other processes. A full disk must not prevent opening.
        let _ = lock.set_len(0).and_then(|()| lock.write_all_at(holder.as_bytes(), 0));
        let newest_path = path.join(NEWEST);
        let newest = private().read(true).write(true).create(true).truncate(false).open(&newest_path);
        Ok(Directory {
            path: path.to_owned(),
            newest: newest.map_err(|error| explain(&error, &newest_path))?,
            _lock: lock,
        })
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Opens the database file. If there is none, `create` writes a new one, which is renamed when it is complete.
    pub(super) fn open_database(&self, create: impl FnOnce(File, &Path) -> Result<(), Error>) -> Result<File, Error> {
        let path = self.database();
        let failed = |error: io::Error| explain(&error, &path);
        if !path.try_exists().map_err(failed)? {
            if let Some(newest) = self.noted() {
                return Err(Error::Damaged(format!(
                    "{} is missing, but revision {newest} was written; put the file back, or remove {} to begin with an \
                     empty store",
                    path.display(),
                    self.path.join(NEWEST).display()
                )));
            }
            let new = path.with_extension("new");
            let file = private().read(true).write(true).create(true).truncate(true).open(&new);
            create(file.map_err(failed)?, &path)?;
            fs::rename(&new, &path).map_err(failed)?;
            File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() == 0 {
            return Err(damaged(&path, "it is empty"));
        }
        Ok(file)
    }

    /// Finds out whether there is space for writes.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::ReadOnly`].
    pub(super) fn probe(&self) -> Result<(), Error> {
        let path = self.path.join(PROBE);
        let file = private().write(true).create(true).truncate(true).open(&path);
        let written = file.and_then(|file| {
            file.write_all_at(&[0; PROBE_BYTES], 0)?;
            // Some file systems find out only now.
            file.sync_data()
        });
        let removed = fs::remove_file(&path);
        written.and(removed).map_err(|error| explain(&error, &path))
    }

    /// Records a revision that is about to be acknowledged. It only helps to detect damage, so errors are ignored.
    pub(super) fn note(&self, newest: Revision) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&newest.to_le_bytes());
        bytes[8..].copy_from_slice(&(!newest).to_le_bytes());
        if let Err(error) = self.newest.write_all_at(&bytes, 0) {
            tracing::warn!(%error, directory = %self.path.display(), "the newest revision cannot be noted");
        }
    }

    /// Checks that the database contains every acknowledged revision.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(super) fn check_newest(&self, in_database: Revision) -> Result<(), Error> {
        match self.noted() {
            Some(noted) if noted > in_database => Err(Error::Damaged(format!(
                "{} ends with revision {in_database}, but revision {noted} was written: it is an older copy, or damaged. \
                 Put the right file back, or remove {} to go on with this one",
                self.database().display(),
                self.path.join(NEWEST).display()
            ))),
            _ => Ok(()),
        }
    }

    fn noted(&self) -> Option<Revision> {
        let mut bytes = [0; 16];
        self.newest.read_exact_at(&mut bytes, 0).ok()?;
        let (plain, inverted) = bytes.split_first_chunk::<8>()?;
        let plain = u64::from_le_bytes(*plain);
        (inverted == (!plain).to_le_bytes()).then_some(plain)
    }
}

/// Converts an error of the operating system.
pub(super) fn explain(error: &io::Error, path: &Path) -> Error {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::Full(format!("{text}; writing goes on when there is space again"))
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Error::ReadOnly(format!("{text}; the directory and its files must be writable by this user"))
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => damaged(path, &error.to_string()),
        _ => Error::Unavailable(text),
    }
}

/// The error for a corrupt file.
pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged(format!(
        "{}: {what}. Nothing was changed; put a copy of the file back, or move it and its neighbour store.newest away to \
         begin with an empty store",
        path.display()
    ))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn locked(path: &Path, lock: &mut File) -> Error {
    let mut holder = String::new();
    // Only for the error message.
    let _ = lock.take(32).read_to_string(&mut holder);
    let holder = match holder.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => "another process".to_owned(),
    };
    Error::Locked(format!("{} is in use by {holder}; end it, or take another directory", path.display()))
}

fn warn_if_open_to_others(path: &Path) {
    let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
    if mode & 0o077 != 0 {
        let mode = format!("{:03o}", mode & 0o777);
        tracing::warn!(directory = %path.display(), mode, "others can look into the store's directory; its files are private");
    }
}
