//! A directory of YAML and JSON files, read once or watched.
//!
//! Files below the directory whose names end in `.yaml`, `.yml` or `.json` are read, each with any number of documents.
//! Hidden files and folders are left out: editors keep their copies there, and so does Kubernetes the real files of a
//! mounted ConfigMap (the visible names are links to them, which are followed).
//!
//! Watching trusts events only as a hint that something happened: after each the directory is listed again and files whose
//! size or time differ are read; what they hold counts only where its hash differs. Renames, replaced links and lost
//! events then need no thought of their own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::ParseOptions;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecursiveMode, Watcher};

use crate::Change;
use crate::pending::Pending;
use crate::reader::Reader;

/// How often the directory is listed although no event came: some file systems (network mounts) have none.
const RESCAN: Duration = Duration::from_secs(10);
/// How long a file that is being written is left alone when nobody says that it was closed.
const WRITE_GRACE: Duration = Duration::from_secs(5);

/// Why a directory cannot be a source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be listed.
    #[error("cannot read the directory {}: {error}", dir.display())]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It cannot be watched.
    #[error("cannot watch the directory {}: {error}", dir.display())]
    Unwatchable {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        error: notify::Error,
    },
}

/// A directory that is being watched. Dropping it ends the watch.
pub struct Watch {
    pending: Arc<Pending>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pending.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a directory once.
///
/// # Errors
/// The directory cannot be listed. Files that cannot be read are diagnostics.
pub fn load(dir: &Path, options: &ParseOptions) -> Result<Change, Error> {
    let mut reader = Reader::new(dir, options.clone());
    scan(&mut reader, &Pending::default())
}

/// Reads a directory and watches it. The first change, which may be empty, is given to `sink` before this returns and
/// holds everything; later ones come from a thread of the watch. `sink` may block: changes gather meanwhile.
///
/// # Errors
/// The directory cannot be listed or watched at the start. Later troubles are logged, and what was there stays.
pub fn watch(
    dir: &Path,
    options: &ParseOptions,
    mut sink: impl FnMut(Change) + Send + 'static,
) -> Result<Watch, Error> {
    let pending = Arc::new(Pending::default());
    let unwatchable = |error| Error::Unwatchable {
        dir: dir.to_owned(),
        error,
    };
    let unreadable = |error| Error::Unreadable {
        dir: dir.to_owned(),
        error,
    };
    // The system's words, which are better than the watcher's.
    std::fs::read_dir(dir).map_err(unreadable)?;
    let noted = pending.clone();
    let mut watcher = notify::recommended_watcher(move |event| note(&noted, event)).map_err(unwatchable)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(unwatchable)?;
    // Watched before it is read: what is written in between is noted.
    let mut reader = Reader::new(dir, options.clone());
    sink(scan(&mut reader, &pending)?);
    let follower = pending.clone();
    let spawned = std::thread::Builder::new().name("files".into()).spawn(move || {
        let _watcher = watcher;
        follow(&mut reader, &follower, &mut sink);
    });
    let thread = spawned.map_err(unreadable)?;
    Ok(Watch {
        pending,
        thread: Some(thread),
    })
}

/// Takes down what an event means.
fn note(pending: &Pending, event: notify::Result<notify::Event>) {
    let event = match event {
        Ok(event) => event,
        Err(error) => {
            tracing::warn!(%error, "an event of the config directory was lost; it is listed again");
            return pending.poke();
        }
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => pending.closed(&event.paths),
        EventKind::Access(_) => {}
        EventKind::Modify(ModifyKind::Data(_)) => pending.written(&event.paths, Instant::now()),
        _ => pending.poke(),
    }
}

fn follow(reader: &mut Reader, pending: &Pending, sink: &mut impl FnMut(Change)) {
    let mut failing = false;
    while pending.wait(RESCAN, WRITE_GRACE) {
        match scan(reader, pending) {
            Ok(change) => {
                failing = false;
                if !change.is_empty() {
                    sink(change);
                }
            }
            // Said once; what was there stays in force.
            Err(error) if !failing => {
                failing = true;
                tracing::error!(%error, "the config directory cannot be read; its objects stay as they are");
            }
            Err(_) => {}
        }
    }
}

/// One look at the directory.
fn scan(reader: &mut Reader, pending: &Pending) -> Result<Change, Error> {
    let writing = pending.being_written(Instant::now(), WRITE_GRACE);
    let unreadable = |error| Error::Unreadable {
        dir: reader.dir().to_owned(),
        error,
    };
    let listed = reader.list().map_err(unreadable)?;
    let mut contents = reader.read(&listed, &writing);
    // A file that somebody began to write while it was read may have been read by halves.
    let writing: BTreeSet<PathBuf> = pending.being_written(Instant::now(), WRITE_GRACE);
    contents.retain(|content| !writing.contains(&content.path));
    Ok(reader.apply(&listed, contents))
}
