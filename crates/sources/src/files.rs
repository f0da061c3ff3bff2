//! A directory of YAML and JSON files, read once or watched.
//!
//! Files whose names end in `.yaml`, `.yml` or `.json` are read recursively; each may contain any number of documents.
//! Hidden files and directories are skipped: editors store temporary files there, and a mounted ConfigMap has its real
//! files there (the visible names are symbolic links, which are followed).
//!
//! Events are only hints: after each one the directory is listed, and files whose size or times changed are read and
//! compared by hash. So renames, replaced links and lost events need no special handling. Only if files were written, created,
//! replaced or removed and nothing else happened, these files are checked without listing the others.
//!
//! Only regular files are opened. A file or folder that cannot be read keeps its objects. If a folder cannot be read at the
//! start, nothing is sent before it can.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use config::{ChangeSet, ParseOptions};
use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind, RemoveKind, RenameMode};
use notify::{RecursiveMode, Watcher};

use crate::file_events::{FileEvents, ScanScope};
use crate::reader::{Inode, Reader};

/// The interval of scans without events. Some file systems, such as network mounts, send none.
const RESCAN: Duration = Duration::from_secs(10);
/// The maximum time between a scan and the next one, if there are events, and the time under a stream of events: a scan of one file
/// costs hardly less than that of several. It is the usual limit of the time between commits (`--commit-delay`), so that what a scan
/// found rarely waits for its commit.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// The longest time from a scan to the next one of the same stream of events.
const STREAM_GAP: Duration = Duration::from_millis(150);
/// How long a file that is being written is not read, if no close event arrives.
const WRITE_GRACE: Duration = Duration::from_secs(5);
/// The time for which the end of a watch waits for its thread.
const END_WITHIN: Duration = Duration::from_secs(1);
/// The interval of attempts to read folders that could not be read at the start.
const RETRY: Duration = Duration::from_secs(1);

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
    /// Its sender is dropped when the thread ends.
    ended: Receiver<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pending.stop();
        // A thread that hangs in a system call is left behind.
        let _ = self.ended.recv_timeout(END_WITHIN);
    }
}

/// Reads a directory once. Objects with errors are refused as a whole, unless the options degrade them.
///
/// # Errors
/// The directory cannot be listed. Unreadable files are reported as diagnostics.
pub fn load(dir: &Path, options: &ParseOptions) -> Result<ChangeSet, Error> {
    let mut reader = Reader::new(dir, options.clone());
    Ok(scan(&mut reader, &FileEvents::default(), &ScanScope::All)?.change)
}

/// Reads a directory and watches it. `sink` receives the complete initial state, which may be empty, before this
/// function returns, unless a folder cannot be read; later changes come from another thread. Parts of objects that have
/// errors are left out. `sink` may block: changes accumulate meanwhile.
///
/// # Errors
/// The directory cannot be listed or watched initially. Later errors are logged, and the last state stays in effect.
pub fn watch(
    dir: &Path,
    options: &ParseOptions,
    mut sink: impl FnMut(ChangeSet) + Send + 'static,
) -> Result<Watch, Error> {
    let pending = Arc::new(FileEvents::default());
    let unreadable = |error| Error::Unreadable { dir: dir.to_owned(), error };
    // Events have absolute paths, which are compared with this one.
    let dir = &std::path::absolute(dir).map_err(unreadable)?;
    // This error is clearer than the watcher's.
    std::fs::read_dir(dir).map_err(unreadable)?;
    // The watch starts before the first scan, so no change in between is lost.
    let mut watched = Watched::start(dir, &pending)?;
    let options = options.clone().degrading();
    let mut reader = Reader::new(dir, options.clone());
    let first = scan(&mut reader, &pending, &ScanScope::All)?;
    let complete = first.unreadable.is_empty();
    watched.root = first.root;
    match complete {
        true => sink(first.change),
        false => log_incomplete(&first.unreadable),
    }
    let follower = pending.clone();
    let (running, ended) = channel();
    let spawned = std::thread::Builder::new().name("files".into()).spawn(move || {
        let _running: Sender<()> = running;
        if !complete {
            let Some((complete, change)) = wait_until_complete(&mut watched, &options, &follower) else { return };
            reader = complete;
            sink(change);
        }
        follow(&mut reader, &mut watched, &mut sink);
    });
    spawned.map_err(unreadable)?;
    Ok(Watch { pending, ended })
}

fn log_incomplete(folders: &BTreeMap<Arc<str>, String>) {
    for (folder, reason) in folders {
        tracing::error!(folder = %folder, %reason, "a folder of the config directory cannot be read; waiting until it can");
    }
}

/// Scans until all folders can be read, so that no proxy receives a partial mesh. `None` when stopped.
fn wait_until_complete(
    watched: &mut Watched,
    options: &ParseOptions,
    pending: &FileEvents,
) -> Option<(Reader, ChangeSet)> {
    loop {
        pending.wait(RETRY, WRITE_GRACE)?;
        let mut reader = Reader::new(&watched.dir, options.clone());
        if let Ok(scanned) = scan(&mut reader, pending, &ScanScope::All)
            && scanned.unreadable.is_empty()
        {
            watched.keep_up(scanned.root);
            return Some((reader, scanned.change));
        }
        pending.rest(LONGEST_REST);
    }
}

/// The watcher of a directory, which follows the path: another directory may take its place.
struct Watched {
    dir: PathBuf,
    pending: Arc<FileEvents>,
    watcher: notify::RecommendedWatcher,
    /// The watched directory; `None` before the first scan.
    root: Option<Inode>,
    /// Whether a directory was removed. A new one may get the inode number of the old one.
    removed: Arc<AtomicBool>,
}

impl Watched {
    fn start(dir: &Path, pending: &Arc<FileEvents>) -> Result<Watched, Error> {
        let unwatchable = |error| Error::Unwatchable { dir: dir.to_owned(), error };
        let removed = Arc::default();
        let watcher = watcher(dir, pending, &removed).map_err(unwatchable)?;
        Ok(Watched { dir: dir.to_owned(), pending: pending.clone(), watcher, root: None, removed })
    }

    /// Watches the directory anew if it is another one than before.
    fn keep_up(&mut self, root: Option<Inode>) {
        if root.is_none() || (!self.removed.swap(false, Ordering::AcqRel) && root == self.root) {
            return;
        }
        if self.root.is_some() {
            match watcher(&self.dir, &self.pending, &self.removed) {
                Ok(watcher) => self.watcher = watcher,
                Err(error) => {
                    tracing::warn!(%error, "the config directory cannot be watched; it is scanned every {RESCAN:?}");
                    return;
                }
            }
            tracing::info!(directory = %self.dir.display(), "the config directory was replaced");
            // Something may have changed before the new watch.
            self.pending.poke();
        }
        self.root = root;
    }
}

/// Watches a directory, and the folders that contain it or its target, in which it can be replaced.
fn watcher(
    dir: &Path,
    pending: &Arc<FileEvents>,
    removed: &Arc<AtomicBool>,
) -> notify::Result<notify::RecommendedWatcher> {
    let target = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let (noted, places) = (pending.clone(), [dir.to_owned(), target]);
    let containing: BTreeSet<PathBuf> = places.iter().filter_map(|place| containing(place)).collect();
    let names = places.clone().map(|place| place.file_name().map(OsStr::to_owned));
    let (own, removed, roots) = (dir.to_owned(), removed.clone(), places);
    let concerns = move |path: &PathBuf| {
        path.starts_with(&own) || path.file_name().is_some_and(|name| names.iter().flatten().any(|own| own == name))
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.as_ref().is_ok_and(|event| !event.paths.is_empty() && !event.paths.iter().any(&concerns)) {
            return;
        }
        if let Ok(event) = &event
            && matches!(event.kind, EventKind::Remove(_))
            && event.paths.iter().any(|path| roots.contains(path))
        {
            removed.store(true, Ordering::Release);
        }
        note(&noted, event);
        noted.hold();
    })?;
    watcher.watch(dir, RecursiveMode::Recursive)?;
    for folder in containing {
        // Without permission, the directory is only scanned at intervals after it was replaced.
        let _ = watcher.watch(&folder, RecursiveMode::NonRecursive);
    }
    Ok(watcher)
}

/// The folder in which a path is.
fn containing(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
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
        // A file that was renamed from elsewhere may replace another one.
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Create(CreateKind::File)
        | EventKind::Remove(RemoveKind::File)
        | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => pending.touched(&event.paths),
        // This event sums up a renaming whose two ends were events already, as far as they are in watched folders. The other
        // end may be a draft elsewhere.
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {}
        EventKind::Modify(ModifyKind::Data(_)) => pending.written(&event.paths, Instant::now()),
        _ => pending.poke(),
    }
}

fn follow(reader: &mut Reader, watched: &mut Watched, sink: &mut impl FnMut(ChangeSet)) {
    let pending = watched.pending.clone();
    let mut failing = false;
    let mut last: Option<Instant> = None;
    while let Some(scope) = pending.wait(RESCAN, WRITE_GRACE) {
        let begin = Instant::now();
        let is_stream = last.replace(begin).is_some_and(|last| begin.duration_since(last) <= STREAM_GAP);
        match scan(reader, &pending, &scope) {
            Ok(scanned) => {
                failing = false;
                watched.keep_up(scanned.root);
                if !scanned.change.is_empty() {
                    sink(scanned.change);
                }
            }
            // Logged once. The last state stays in effect.
            Err(error) if !failing => {
                failing = true;
                tracing::error!(%error, "the config directory cannot be read; its objects stay in effect");
            }
            Err(_) => {}
        }
        // A scan may cost by the number of files. Under a stream of events it takes a tenth of the time.
        let shortest = if is_stream { LONGEST_REST } else { Duration::ZERO };
        pending.rest((begin.elapsed() * 9).clamp(shortest, LONGEST_REST));
    }
}

/// The result of a scan.
struct Scanned {
    change: ChangeSet,
    /// The directory, if it was listed.
    root: Option<Inode>,
    /// The folders that could not be listed.
    unreadable: BTreeMap<Arc<str>, String>,
}

/// Scans the directory, or a part of it, once.
fn scan(reader: &mut Reader, pending: &FileEvents, scope: &ScanScope) -> Result<Scanned, Error> {
    let writing = pending.being_written(Instant::now(), WRITE_GRACE);
    let listed = reader.list(scope).map_err(|error| Error::Unreadable { dir: reader.dir().to_owned(), error })?;
    let mut contents = reader.read(&listed, &writing);
    // A file whose writing started during the scan may have been read partially.
    let writing: BTreeSet<PathBuf> = pending.being_written(Instant::now(), WRITE_GRACE);
    contents.retain(|content| !writing.contains(&content.path));
    let change = reader.apply(&listed, contents);
    Ok(Scanned { change, root: listed.root, unreadable: listed.unreadable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_that_is_renamed_over_a_file_requests_a_scan_of_this_file_only() {
        let long = Duration::from_secs(3600);
        let [draft, file, other] = ["/tmp/draft", "/tmp/config/a.yaml", "/tmp/config/b.yaml"].map(PathBuf::from);
        let renamed = |mode, paths: &[&PathBuf]| notify::Event {
            paths: paths.iter().map(|path| (*path).clone()).collect(),
            ..notify::Event::new(EventKind::Modify(ModifyKind::Name(mode)))
        };
        let events = FileEvents::default();
        note(&events, Ok(renamed(RenameMode::To, &[&file])));
        note(&events, Ok(renamed(RenameMode::Both, &[&draft, &file])));
        assert_eq!(events.wait(long, long), Some(ScanScope::Files(BTreeSet::from([file.clone()]))));
        // Within the directory, a file is gone.
        note(&events, Ok(renamed(RenameMode::From, &[&file])));
        note(&events, Ok(renamed(RenameMode::To, &[&other])));
        note(&events, Ok(renamed(RenameMode::Both, &[&file, &other])));
        assert_eq!(events.wait(long, long), Some(ScanScope::All));
    }
}
