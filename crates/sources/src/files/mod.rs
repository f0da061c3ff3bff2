//! A directory of YAML and JSON files, read once ([`load`]) or for as long as it is wanted ([`watch`]).
//!
//! - All files with the endings `.yaml`, `.yml` and `.json` below the directory count, in whatever sub-directory, but not
//!   those whose name, or whose directory's name, begins with a dot.
//! - A file that breaks keeps the last good version of each of its objects in force; so does a directory that cannot be
//!   read any more.
//! - An object that several files hold is taken from the first of them, by path; when that file loses it, the next one
//!   takes over.
//! - A file is read when its writer has closed it, never half-written, and only counts as changed when its content has.

mod directory;
mod scan;
mod watcher;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use resources::{AnyObject, Diagnostic, ObjectKey, ParseOptions};

pub use directory::Directory;
pub use watcher::FileSource;

/// How a directory is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// How files are parsed; its limits hold for each file.
    pub parse: ParseOptions,
    /// The most files that are read; further ones, in the order of their paths, are left out with a diagnostic.
    pub max_files: usize,
    /// How many events may wait for the receiver; when there are more, the source waits and later changes merge.
    pub queue: usize,
    /// Look at all files this often even if the system reports nothing: for file systems that do not report changes
    /// made elsewhere.
    pub poll: Option<Duration>,
}

impl Default for Options {
    /// Default parsing, 100,000 files, 16 events, no polling.
    fn default() -> Options {
        Options { parse: ParseOptions::default(), max_files: 100_000, queue: 16, poll: None }
    }
}

/// What a watched directory says.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Objects or diagnostics changed.
    Change(Change),
    /// Everything that was there at the beginning has been said.
    Synced,
}

/// Changes that belong together: the files that had changed when the source looked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Change {
    /// Objects that are new or different, in the order of their keys.
    pub upserts: Vec<AnyObject>,
    /// Objects that are gone, in order.
    pub deletes: Vec<ObjectKey>,
    /// Everything that is now to be said about each file of which that changed; nothing means that all is well.
    pub diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Change {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.deletes.is_empty() && self.diagnostics.is_empty()
    }
}

/// What a directory holds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Loaded {
    /// The valid objects, in the order of their keys.
    pub objects: Vec<AnyObject>,
    /// What is to be said, by file and line.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a directory once. An error means that the directory itself cannot be read.
pub fn load(dir: &Path, options: &Options) -> io::Result<Loaded> {
    let mut directory = Directory::new(options.parse.clone());
    let scan = scan::Scanner::new(dir, options).scan(|_| {}, |_| false)?;
    let change = directory.apply(scan.files);
    let diagnostics = change.diagnostics.into_values().flatten().chain(scan.problems);
    Ok(Loaded { objects: change.upserts, diagnostics: diagnostics.collect() })
}

/// Reads a directory and goes on watching it, on a thread of its own that ends when the source or the receiver is
/// dropped.
///
/// The first event is the whole initial content, the second is [`Event::Synced`]. An error means that the directory
/// cannot be read or watched.
pub fn watch(dir: &Path, options: Options) -> io::Result<(FileSource, Receiver<Event>)> {
    watcher::start(dir, options)
}
