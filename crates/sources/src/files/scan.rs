//! Finding and reading files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use resources::{Diagnostic, Severity};

use crate::files::Options;
use crate::files::directory::{Content, about_file};

/// The deepest directories that are looked into; deeper ones are mostly a loop of links.
const MAX_DEPTH: usize = 32;

/// What tells a file from an earlier version of it without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
    identity: (u64, u64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp { size: metadata.len(), modified: metadata.modified().ok(), identity: identity(metadata) }
    }

    /// The stamp of a file that could not be read: it equals no other, so that the file is tried again.
    const UNREAD: Stamp = Stamp { size: u64::MAX, modified: None, identity: (0, 0) };
}

/// What tells a file or directory from any other: device and inode, where the system has them.
#[cfg(unix)]
pub(super) fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
pub(super) fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// What a scan found.
pub(super) struct Scan {
    /// Files that may have changed since the last scan.
    pub(super) files: Vec<(PathBuf, Content)>,
    /// What is to be said about the directory.
    pub(super) problems: Vec<Diagnostic>,
}

/// Looks for files, and remembers what it saw.
pub(super) struct Scanner {
    root: PathBuf,
    max_files: usize,
    max_bytes: usize,
    stamps: BTreeMap<PathBuf, Stamp>,
}

impl Scanner {
    pub(super) fn new(root: &Path, options: &Options) -> Scanner {
        Scanner {
            root: root.to_owned(),
            max_files: options.max_files,
            max_bytes: options.parse.limits.file_bytes,
            stamps: BTreeMap::new(),
        }
    }

    /// Looks at all files. Each directory is shown to `enter` before it is listed; files for which `skip` holds are
    /// left as they are known.
    ///
    /// An error means that the root itself cannot be read; nothing is forgotten then.
    pub(super) fn scan(&mut self, mut enter: impl FnMut(&Path), skip: impl Fn(&Path) -> bool) -> io::Result<Scan> {
        let mut found = BTreeMap::new();
        let mut problems = Vec::new();
        let mut lost = Vec::new();
        let mut pending = vec![(self.root.clone(), 0)];
        let mut seen = std::collections::BTreeSet::new();
        while let Some((dir, depth)) = pending.pop() {
            // A link to a directory above would be walked for ever.
            if let Ok(real) = fs::canonicalize(&dir)
                && !seen.insert(real)
            {
                continue;
            }
            enter(&dir);
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) if depth == 0 => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let message = format!("the directory cannot be read: {error}");
                    let name = dir.to_string_lossy().into();
                    problems.push(about_file(&name, Severity::Error, "unreadable", message));
                    lost.push(dir);
                    continue;
                }
            };
            // Links are sorted out by path, so that which of two names of a directory counts does not depend on chance.
            let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            names.sort_unstable_by(|a, b| b.cmp(a));
            for path in names.into_iter().filter(|path| !is_hidden(path)) {
                match fs::metadata(&path) {
                    Ok(metadata) if metadata.is_dir() && depth < MAX_DEPTH => pending.push((path, depth + 1)),
                    Ok(metadata) if metadata.is_file() && is_candidate(&path) => {
                        found.insert(path, Stamp::of(&metadata));
                    }
                    _ => {}
                }
            }
        }
        self.limit(&mut found, &mut problems);
        Ok(Scan { files: self.difference(found, &lost, skip), problems })
    }

    /// Looks at one file that was reported to have changed.
    pub(super) fn look(&mut self, path: &Path) -> Content {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                if self.stamps.len() >= self.max_files && !self.stamps.contains_key(path) {
                    return Content::Unreadable(format!("there are more than {} files", self.max_files));
                }
                let content = self.read(path);
                self.remember(path, Stamp::of(&metadata), &content);
                content
            }
            _ => {
                self.stamps.remove(path);
                Content::Gone
            }
        }
    }

    /// Makes the next scan read a file whatever it looks like.
    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(stamp) = self.stamps.get_mut(path) {
            *stamp = Stamp::UNREAD;
        }
    }

    /// Drops the files that are too many.
    fn limit(&self, found: &mut BTreeMap<PathBuf, Stamp>, problems: &mut Vec<Diagnostic>) {
        if found.len() <= self.max_files {
            return;
        }
        let first = found.keys().nth(self.max_files).cloned();
        let dropped = first.map(|first| found.split_off(&first)).unwrap_or_default();
        let name = self.root.to_string_lossy().into();
        let message = format!("{} files are ignored: at most {} are read", dropped.len(), self.max_files);
        problems.push(about_file(&name, Severity::Error, "limit", message));
    }

    /// Reads what differs from the last scan. Files in directories that could not be listed are left as they are known.
    fn difference(
        &mut self,
        found: BTreeMap<PathBuf, Stamp>,
        lost: &[PathBuf],
        skip: impl Fn(&Path) -> bool,
    ) -> Vec<(PathBuf, Content)> {
        let mut files = Vec::new();
        let known: Vec<PathBuf> = self.stamps.keys().cloned().collect();
        for path in known {
            if !found.contains_key(&path) && !lost.iter().any(|dir| path.starts_with(dir)) {
                self.stamps.remove(&path);
                files.push((path, Content::Gone));
            }
        }
        for (path, stamp) in found {
            if self.stamps.get(&path) == Some(&stamp) || skip(&path) {
                continue;
            }
            let content = self.read(&path);
            self.remember(&path, stamp, &content);
            files.push((path, content));
        }
        files
    }

    fn remember(&mut self, path: &Path, stamp: Stamp, content: &Content) {
        match content {
            Content::Bytes(_) => drop(self.stamps.insert(path.to_owned(), stamp)),
            Content::Unreadable(_) => drop(self.stamps.insert(path.to_owned(), Stamp::UNREAD)),
            Content::Gone => drop(self.stamps.remove(path)),
        }
    }

    /// Reads a file, up to one byte more than is allowed, so that parsing sees that it is too large.
    fn read(&self, path: &Path) -> Content {
        let most = self.max_bytes as u64 + 1;
        let mut bytes = Vec::new();
        let read = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        match read {
            Ok(_) => Content::Bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Gone,
            Err(error) => Content::Unreadable(error.to_string()),
        }
    }
}

/// Whether the name begins with a dot, as those of temporary files and of the platform's own directories do.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether the name is that of a file to read.
pub(super) fn is_candidate(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str);
    !is_hidden(path) && matches!(ending, Some("yaml" | "yml" | "json"))
}
