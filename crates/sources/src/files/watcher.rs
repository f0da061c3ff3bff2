//! The thread that waits for reports of the file system.
//!
//! Reports are hints: what counts is what a look at the files shows. Reports about single files lead to a look at these,
//! all others to a look at everything. A file that somebody is writing to is left alone until it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind, RemoveKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use resources::{Diagnostic, Severity};

use crate::files::directory::{Content, Directory, about_file};
use crate::files::scan::{Scan, Scanner, identity, is_candidate};
use crate::files::{Change, Event, Options};

/// How long a file is left alone after a write whose end is not reported. Linux reports the end of every write but for
/// the rarest kinds; elsewhere a short silence has to do.
const SETTLE: Duration = if cfg!(target_os = "linux") { Duration::from_secs(10) } else { Duration::from_millis(200) };

/// How often a directory that cannot be read is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How many reports may wait; when there are more, everything is looked at instead.
const REPORTS: usize = 4096;

/// A watched directory. Dropping it ends the watch.
#[derive(Debug)]
pub struct FileSource {
    stopped: Arc<AtomicBool>,
    wake: SyncSender<Report>,
}

impl Drop for FileSource {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Where the channel is full, a report wakes the thread anyway.
        let _ = self.wake.try_send(Report::Wake);
    }
}

#[derive(Debug)]
enum Report {
    Files(notify::Result<notify::Event>),
    Wake,
}

/// Reads the directory and starts the thread.
pub(super) fn start(dir: &Path, options: Options) -> io::Result<(FileSource, Receiver<Event>)> {
    let (reports, inbox) = sync_channel(REPORTS);
    let (events, receiver) = sync_channel(options.queue.max(2));
    let missed = Arc::new(AtomicBool::new(false));
    let stopped = Arc::new(AtomicBool::new(false));
    let (sender, overflow) = (reports.clone(), missed.clone());
    let watcher = notify::recommended_watcher(move |report: notify::Result<notify::Event>| {
        // Reading files reports itself; such reports would only crowd out others.
        let idle = |e: &notify::Event| {
            matches!(e.kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
        };
        if !report.as_ref().is_ok_and(idle) && sender.try_send(Report::Files(report)).is_err() {
            overflow.store(true, Ordering::Release);
        }
    });
    let mut worker = Worker {
        watcher: watcher.map_err(io::Error::other)?,
        watched: BTreeMap::new(),
        scanner: Scanner::new(dir, &options),
        directory: Directory::new(options.parse.clone()),
        writing: BTreeMap::new(),
        said: BTreeMap::new(),
        root: dir.to_owned(),
        poll: options.poll,
        broken: false,
    };
    let first = worker.look_at_all()?;
    let source = FileSource { stopped: stopped.clone(), wake: reports };
    let body = move || worker.run(first, &inbox, &events, &missed, &stopped);
    std::thread::Builder::new().name("file-source".to_owned()).spawn(body)?;
    Ok((source, receiver))
}

/// What the reports so far ask to look at.
#[derive(Default)]
struct Dirty {
    files: BTreeSet<PathBuf>,
    all: bool,
}

struct Worker {
    watcher: RecommendedWatcher,
    /// The directories that are watched, and which they were when they were.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    scanner: Scanner,
    directory: Directory,
    /// Files that are being written to, and until when they are left alone at most.
    writing: BTreeMap<PathBuf, Instant>,
    /// What was said about directories.
    said: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    root: PathBuf,
    poll: Option<Duration>,
    /// Whether the root could not be read.
    broken: bool,
}

impl Worker {
    fn run(
        mut self,
        first: Change,
        inbox: &Receiver<Report>,
        events: &SyncSender<Event>,
        missed: &AtomicBool,
        stopped: &AtomicBool,
    ) {
        if events.send(Event::Change(first)).is_err() || events.send(Event::Synced).is_err() {
            return;
        }
        loop {
            let mut dirty = Dirty::default();
            match inbox.recv_timeout(self.patience()) {
                Ok(report) => self.sort(report, &mut dirty),
                Err(RecvTimeoutError::Timeout) => dirty.all = self.poll.is_some() || self.broken,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(report) = inbox.try_recv() {
                self.sort(report, &mut dirty);
            }
            if stopped.load(Ordering::Acquire) {
                return;
            }
            if missed.swap(false, Ordering::AcqRel) {
                // The report that a file was closed may be among those that were missed.
                self.writing.clear();
                dirty.all = true;
            }
            self.give_up_waiting(&mut dirty);
            let change = self.look(dirty);
            if !change.is_empty() && events.send(Event::Change(change)).is_err() {
                return;
            }
        }
    }

    /// How long to wait for a report.
    fn patience(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(3600);
        let settled = self.writing.values().min().map(|until| until.saturating_duration_since(Instant::now()));
        let retry = self.broken.then_some(RETRY);
        [settled, retry, self.poll].into_iter().flatten().min().unwrap_or(LONG)
    }

    /// Files whose writer has been quiet for long are looked at without waiting for the end.
    fn give_up_waiting(&mut self, dirty: &mut Dirty) {
        let now = Instant::now();
        let over: Vec<PathBuf> = self.writing.iter().filter(|(_, until)| **until <= now).map(|(p, _)| p.clone()).collect();
        for path in over {
            self.writing.remove(&path);
            dirty.files.insert(path);
        }
    }

    /// What a report asks to look at.
    fn sort(&mut self, report: Report, dirty: &mut Dirty) {
        let event = match report {
            Report::Wake => return,
            Report::Files(Ok(event)) if !event.need_rescan() => event,
            Report::Files(_) => {
                self.writing.clear();
                dirty.all = true;
                return;
            }
        };
        for path in event.paths {
            match event.kind {
                EventKind::Create(CreateKind::File) if is_candidate(&path) => match is_complete(&path) {
                    true => drop(dirty.files.insert(path)),
                    false => drop(self.writing.insert(path, Instant::now() + SETTLE)),
                },
                EventKind::Modify(ModifyKind::Data(_)) if is_candidate(&path) => {
                    dirty.files.remove(&path);
                    self.writing.insert(path, Instant::now() + SETTLE);
                }
                EventKind::Access(_)
                | EventKind::Remove(RemoveKind::File)
                | EventKind::Modify(ModifyKind::Name(_))
                    if is_candidate(&path) && !self.watched.contains_key(&path) =>
                {
                    self.writing.remove(&path);
                    dirty.files.insert(path);
                }
                EventKind::Modify(ModifyKind::Metadata(_)) if is_candidate(&path) => {
                    if !self.writing.contains_key(&path) {
                        dirty.files.insert(path);
                    }
                }
                _ => dirty.all |= concerns_directories(event.kind, &path, &self.watched),
            }
        }
        // Elsewhere paths may be reported under another name than the one that they are known by.
        dirty.all |= !cfg!(target_os = "linux") && !dirty.files.is_empty();
    }

    fn look(&mut self, dirty: Dirty) -> Change {
        let all = dirty.all || dirty.files.iter().any(|path| path.is_dir());
        if !all {
            let scanner = &mut self.scanner;
            let contents: Vec<(PathBuf, Content)> =
                dirty.files.into_iter().map(|path| (path.clone(), scanner.look(&path))).collect();
            return self.directory.apply(contents);
        }
        // Files that are reported by name may look the same, but for their content.
        for path in &dirty.files {
            self.scanner.forget(path);
        }
        match self.look_at_all() {
            Ok(change) => change,
            Err(error) => {
                self.broken = true;
                let name: Arc<str> = self.root.to_string_lossy().into();
                let message = format!("the directory cannot be read, and what it held stays in force: {error}");
                let problem = about_file(&name, Severity::Error, "unreadable", message);
                let mut change = Change::default();
                self.say(vec![problem], &mut change);
                change
            }
        }
    }

    /// Looks at all files and watches all directories.
    fn look_at_all(&mut self) -> io::Result<Change> {
        self.forget_lost_directories();
        let (watcher, watched, writing) = (&mut self.watcher, &mut self.watched, &self.writing);
        let mut unwatched = Vec::new();
        // A directory is watched before it is listed, so that nothing can appear in between unnoticed.
        let enter = |dir: &Path| unwatched.extend(watch_directory(watcher, watched, dir));
        let Scan { files, mut problems } = self.scanner.scan(enter, |path| writing.contains_key(path))?;
        self.broken = false;
        problems.extend(unwatched);
        let mut change = self.directory.apply(files);
        self.say(problems, &mut change);
        Ok(change)
    }

    /// Ends the watches of directories that are gone, or are others now by the same name.
    fn forget_lost_directories(&mut self) {
        let same = |path: &Path, id: (u64, u64)| std::fs::metadata(path).is_ok_and(|m| m.is_dir() && identity(&m) == id);
        let lost: Vec<PathBuf> =
            self.watched.iter().filter(|(path, id)| !same(path, **id)).map(|(path, _)| path.clone()).collect();
        for path in lost {
            self.watched.remove(&path);
            // The system ends the watch of a deleted directory by itself, which is no error here.
            let _ = self.watcher.unwatch(&path);
        }
    }

    /// Adds what is to be said about directories, where that changed.
    fn say(&mut self, problems: Vec<Diagnostic>, change: &mut Change) {
        let mut said: BTreeMap<Arc<str>, Vec<Diagnostic>> = BTreeMap::new();
        for problem in problems {
            let name = problem.file.clone().unwrap_or_default();
            said.entry(name).or_default().push(problem);
        }
        for name in self.said.keys().filter(|name| !said.contains_key(*name)) {
            change.diagnostics.insert(name.clone(), Vec::new());
        }
        for (name, problems) in said.iter().filter(|(name, problems)| self.said.get(*name) != Some(problems)) {
            change.diagnostics.insert(name.clone(), problems.clone());
        }
        self.said = said;
    }
}

/// Watches a directory, unless it is watched. What goes wrong is to be said.
fn watch_directory(
    watcher: &mut RecommendedWatcher,
    watched: &mut BTreeMap<PathBuf, (u64, u64)>,
    dir: &Path,
) -> Option<Diagnostic> {
    let id = identity(&std::fs::metadata(dir).ok()?);
    if watched.contains_key(dir) {
        return None;
    }
    match watcher.watch(dir, RecursiveMode::NonRecursive) {
        Ok(()) => {
            watched.insert(dir.to_owned(), id);
            None
        }
        Err(error) => {
            let message = format!("changes in the directory go unnoticed: {error}");
            Some(about_file(&dir.to_string_lossy().into(), Severity::Error, "unwatched", message))
        }
    }
}

/// Whether a file that just appeared has its content already, because it is another name of a file.
fn is_complete(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink() || m.nlink() > 1)
    }
    #[cfg(not(unix))]
    {
        std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink())
    }
}

/// Whether a report that is not about a file to read may mean that directories changed: one came, went or was renamed,
/// or one of the hidden links by which Kubernetes swaps the files of a volume.
fn concerns_directories(kind: EventKind, path: &Path, watched: &BTreeMap<PathBuf, (u64, u64)>) -> bool {
    let swapped = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
    match kind {
        EventKind::Access(_) => false,
        EventKind::Create(CreateKind::File) | EventKind::Remove(RemoveKind::File) => swapped,
        EventKind::Modify(ModifyKind::Data(_)) => false,
        EventKind::Modify(ModifyKind::Metadata(_)) => watched.contains_key(path),
        _ => true,
    }
}
