//! A directory of YAML and JSON files, read once or watched.
//!
//! Files whose names end in `.yaml`, `.yml` or `.json` are read recursively; each may contain any number of documents.
//! Hidden files and directories are skipped: editors store temporary files there, and a mounted ConfigMap has its real
//! files there (the visible names are symbolic links, which are followed).
//!
//! Events are only hints: after each one the directory is listed, and files whose size or time changed are read and
//! compared by hash. So renames, replaced links and lost events need no special handling. Only if known files were written
//! and nothing else happened, these files are checked without listing the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{ChangeSet, ParseOptions};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecursiveMode, Watcher};

use crate::file_events::{FileEvents, ScanScope};
use crate::reader::Reader;

/// The interval of scans without events. Some file systems, such as network mounts, send none.
const RESCAN: Duration = Duration::from_secs(10);
/// The maximum time between a scan and the next one, if there are events.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// How long a file that is being written is not read, if no close event arrives.
const WRITE_GRACE: Duration = Duration::from_secs(5);

/// An error of a directory source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be listed.
    #[error("cannot read the directory {}: {error}", dir.display())]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The directory cannot be watched.
    #[error("cannot watch the directory {}: {error}", dir.display())]
    Unwatchable {
        /// The directory.
        dir: PathBuf,
        /// The error of the watcher.
        error: notify::Error,
    },
}

/// A watched directory. Dropping it ends the watch.
pub struct Watch {
    pending: Arc<FileEvents>,
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
/// The directory cannot be listed. Unreadable files are reported as diagnostics.
pub fn load(dir: &Path, options: &ParseOptions) -> Result<ChangeSet, Error> {
    let mut reader = Reader::new(dir, options.clone());
    scan(&mut reader, &FileEvents::default(), &ScanScope::All)
}

/// Reads a directory and watches it. `sink` receives the complete initial state, which may be empty, before this
/// function returns; later changes come from another thread. `sink` may block: changes accumulate meanwhile.
///
/// # Errors
/// The directory cannot be listed or watched initially. Later errors are logged, and the last state stays in effect.
pub fn watch(
    dir: &Path,
    options: &ParseOptions,
    mut sink: impl FnMut(ChangeSet) + Send + 'static,
) -> Result<Watch, Error> {
    let pending = Arc::new(FileEvents::default());
    let unwatchable = |error| Error::Unwatchable { dir: dir.to_owned(), error };
    let unreadable = |error| Error::Unreadable { dir: dir.to_owned(), error };
    // This error is clearer than the watcher's.
    std::fs::read_dir(dir).map_err(unreadable)?;
    let noted = pending.clone();
    let mut watcher = notify::recommended_watcher(move |event| note(&noted, event)).map_err(unwatchable)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(unwatchable)?;
    // The watch starts before the first scan, so no change in between is lost.
    let mut reader = Reader::new(dir, options.clone());
    sink(scan(&mut reader, &pending, &ScanScope::All)?);
    let follower = pending.clone();
    let spawned = std::thread::Builder::new().name("files".into()).spawn(move || {
        let _watcher = watcher;
        follow(&mut reader, &follower, &mut sink);
    });
    let thread = spawned.map_err(unreadable)?;
    Ok(Watch { pending, thread: Some(thread) })
}

/// Records an event.
fn note(pending: &FileEvents, event: notify::Result<notify::Event>) {
    let event = match event {
        Ok(event) => event,
        Err(error) => {
            tracing::warn!(%error, "an event of the config directory was lost; scanning it again");
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

fn follow(reader: &mut Reader, pending: &FileEvents, sink: &mut impl FnMut(ChangeSet)) {
    let mut failing = false;
    while let Some(scope) = pending.wait(RESCAN, WRITE_GRACE) {
        let begin = Instant::now();
        match scan(reader, pending, &scope) {
            Ok(change) => {
                failing = false;
                if !change.is_empty() {
                    sink(change);
                }
            }
            // Logged once. The last state stays in effect.
            Err(error) if !failing => {
                failing = true;
                tracing::error!(%error, "the config directory cannot be read; its objects stay in effect");
            }
            Err(_) => {}
        }
        // A scan costs by the number of files. Under a stream of events it takes a tenth of the time.
        pending.rest((begin.elapsed() * 9).min(LONGEST_REST));
    }
}

/// Scans the directory, or a part of it, once.
fn scan(reader: &mut Reader, pending: &FileEvents, scope: &ScanScope) -> Result<ChangeSet, Error> {
    let writing = pending.being_written(Instant::now(), WRITE_GRACE);
    let listed = reader.list(scope).map_err(|error| Error::Unreadable { dir: reader.dir().to_owned(), error })?;
    let mut contents = reader.read(&listed, &writing);
    // A file whose writing started during the scan may have been read partially.
    let writing: BTreeSet<PathBuf> = pending.being_written(Instant::now(), WRITE_GRACE);
    contents.retain(|content| !writing.contains(&content.path));
    Ok(reader.apply(&listed, contents))
}
