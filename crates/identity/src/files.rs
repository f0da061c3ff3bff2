//! Secrets of files: reads them when somebody uses them, and again when they change.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, watch};

use crate::metrics::Metrics;
use crate::name::FileName;
use crate::pem;
use crate::secret::{Content, Entry, Pair, Secret, Table};
use crate::settings::Settings;
use crate::wanted::Wanted;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The most links that are followed on a path.
const MAX_LINKS: usize = 40;
/// The time after which files are read again if they cannot be watched.
const RETRY: Duration = Duration::from_secs(10);

/// Reads and watches the files that are used.
pub(crate) struct Files {
    pub(crate) settings: Arc<Settings>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) table: Arc<watch::Sender<Table>>,
    pub(crate) metrics: Metrics,
}

impl Files {
    /// Reads and watches, forever. Where the operating system watches no files, they are read at intervals.
    pub(crate) async fn run(self) {
        let mut watcher: Option<Watcher> = None;
        let mut known = BTreeSet::new();
        loop {
            if watcher.is_none() {
                let created = Watcher::new();
                watcher =
                    created.inspect_err(|error| tracing::warn!(%error, "cannot watch files of certificates")).ok();
            }
            let names: BTreeSet<FileName> = self.wanted.names().into_iter().collect();
            // The files are watched before they are read, so that no change is missed.
            let failures = watcher.as_mut().map_or(1, |watcher| watcher.watch(names.iter().flat_map(FileName::paths)));
            self.metrics.watch_failures.inc_by(failures);
            self.read(&names, &known).await;
            known = names;
            tokio::select! {
                () = self.wanted.changed() => {}
                () = changed(&mut watcher) => {
                    tokio::time::sleep(self.settings.debounce).await;
                    known.clear();
                }
                () = tokio::time::sleep(RETRY), if failures > 0 => known.clear(),
            }
        }
    }

    /// Reads the files that are not known yet, and forgets those that nobody uses.
    async fn read(&self, names: &BTreeSet<FileName>, known: &BTreeSet<FileName>) {
        let (new, crl) = (names - known, self.settings.crl());
        let load = move || new.into_iter().map(|name| (load(&name, crl.as_deref()), name)).collect();
        let loaded: Vec<(Result<Content, LoadError>, FileName)> =
            tokio::task::spawn_blocking(load).await.unwrap_or_default();
        let failures = loaded.iter().filter_map(|(loaded, _)| loaded.as_ref().err());
        for error in failures {
            self.metrics.file_failures.inc();
            tracing::warn!(%error, "cannot use a certificate file");
        }
        self.table.send_if_modified(|table| {
            let before = table.files.len();
            table.files.retain(|name, _| names.contains(name));
            let mut changed = table.files.len() != before;
            for (loaded, name) in loaded {
                let next = match loaded {
                    Ok(content) => Entry::Ready(Secret::from(content)),
                    Err(error) => Entry::Failed(error.to_string().into()),
                };
                changed |= table.files.entry(name).or_default().advance(next);
            }
            changed
        });
    }
}

/// A file that cannot be used.
#[derive(thiserror::Error, Debug)]
pub(crate) enum LoadError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Its content is wrong.
    #[error("{}: {error}", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        error: pem::PemError,
    },
}

fn load(name: &FileName, crl: Option<&Path>) -> Result<Content, LoadError> {
    match name {
        FileName::Pair(chain_path, key_path) => {
            let (chain, key) = (read(chain_path)?, read(key_path)?);
            let expires = pem::check_pair(chain.as_bytes(), key.as_bytes())
                .map_err(|error| LoadError::Content { path: chain_path.clone(), error })?;
            Ok(Content::Pair(Pair { chain: chain.into(), key: key.into(), expires }))
        }
        FileName::Roots(path) => {
            let roots = pem::bundle([read(path)?.as_bytes()])
                .map_err(|error| LoadError::Content { path: path.clone(), error })?;
            Ok(Content::Roots(roots.into(), crl.map(Into::into)))
        }
    }
}

fn read(path: &Path) -> Result<String, LoadError> {
    let failed = |error| LoadError::Read { path: path.to_owned(), error };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return Err(failed(io::Error::other("it is not a file of at most 1 MiB")));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Watches paths for changes, also of the links and folders on them.
struct Watcher {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
    concerns: Arc<Mutex<BTreeSet<PathBuf>>>,
    ticks: mpsc::Receiver<()>,
}

/// Waits for a change; forever without a watcher.
async fn changed(watcher: &mut Option<Watcher>) {
    let ticked = match watcher {
        Some(watcher) => watcher.ticks.recv().await,
        None => None,
    };
    if ticked.is_none() {
        std::future::pending::<()>().await;
    }
}

impl Watcher {
    fn new() -> notify::Result<Watcher> {
        // If a message is waiting already, another one would say nothing new.
        let (tick, ticks) = mpsc::channel(1);
        let concerns: Arc<Mutex<BTreeSet<PathBuf>>> = Arc::default();
        let concerned = concerns.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerned = concerned.lock().unwrap_or_else(PoisonError::into_inner);
            if event.map_or(true, |event| {
                is_change(&event) && (event.need_rescan() || event.paths.iter().any(|path| concerned.contains(path)))
            }) {
                let _ = tick.try_send(());
            }
        })?;
        Ok(Watcher { watcher, folders: BTreeSet::new(), concerns, ticks })
    }

    /// Watches these paths and no others. Returns the number of folders that cannot be watched.
    fn watch<'a>(&mut self, paths: impl Iterator<Item = &'a PathBuf>) -> u64 {
        let mut trace = Trace::default();
        paths.for_each(|path| trace.follow(path));
        *self.concerns.lock().unwrap_or_else(PoisonError::into_inner) = trace.paths;
        for folder in self.folders.difference(&trace.folders) {
            // It fails if the folder was removed, which ended the watch.
            let _ = self.watcher.unwatch(folder);
        }
        // Folders are watched again, because others may have taken their places.
        let mut failures = 0;
        for folder in &trace.folders {
            if let Err(error) = self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch a folder of certificates");
                failures += 1;
            }
        }
        self.folders = trace.folders;
        failures
    }
}

/// Whether an event may change a file's content. Reading a file causes events, too.
fn is_change(event: &notify::Event) -> bool {
    !matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}

/// The folders in which a change may concern a path, and the paths of these changes.
#[derive(Default, Debug)]
struct Trace {
    folders: BTreeSet<PathBuf>,
    paths: BTreeSet<PathBuf>,
}

impl Trace {
    /// Follows a path through all links, up to the first part that does not exist.
    fn follow(&mut self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
        let (mut at, mut rest, mut links) = (PathBuf::new(), VecDeque::from(parts(&path)), 0);
        while let Some(part) = rest.pop_front() {
            let next = at.join(&part);
            self.paths.insert(next.clone());
            match next.symlink_metadata() {
                Ok(metadata) if metadata.is_symlink() && links < MAX_LINKS => {
                    links += 1;
                    self.folders.insert(at.clone());
                    let Ok(target) = next.read_link() else { return };
                    for part in parts(&target).into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                Ok(metadata) if metadata.is_dir() => at = normal(next, &part),
                _ => {
                    self.folders.insert(at);
                    return;
                }
            }
        }
    }
}

/// Resolves a `..` at the end of a path without links.
fn normal(path: PathBuf, part: &OsString) -> PathBuf {
    match Path::new(part).components().next() {
        Some(Component::ParentDir) => path.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned(),
        _ => path,
    }
}

#[cfg(test)]
mod tests;
