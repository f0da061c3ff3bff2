//! Lists a directory and reads the files that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use config::{ChangeSet, ParseOptions};

use crate::directory::Directory;

/// The maximum file size, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The maximum number of files below a directory.
const MAX_FILES: usize = 100_000;
/// The maximum depth of nested directories. Symbolic links can form cycles.
const MAX_DEPTH: usize = 16;

/// Size, modification time and inode of a file. The file is not read again while they are unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

/// The content of a file, or the error of reading it.
pub(crate) struct Content {
    /// The path of the file.
    pub(crate) path: PathBuf,
    name: Arc<str>,
    stamp: Stamp,
    bytes: io::Result<Vec<u8>>,
}

/// A directory and the state of its files.
pub(crate) struct Reader {
    dir: PathBuf,
    options: ParseOptions,
    stamps: BTreeMap<Arc<str>, Stamp>,
    directory: Directory,
}

/// The files of a directory: relative name, path, stamp.
pub(crate) type Listed = BTreeMap<Arc<str>, (PathBuf, Stamp)>;

impl Reader {
    /// A reader that has read nothing yet.
    pub(crate) fn new(dir: &Path, options: ParseOptions) -> Reader {
        Reader { dir: dir.to_owned(), options, stamps: BTreeMap::new(), directory: Directory::default() }
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists the current files.
    ///
    /// # Errors
    /// The directory itself cannot be read. Unreadable subdirectories are skipped.
    pub(crate) fn list(&self) -> io::Result<Listed> {
        let mut listed = Listed::new();
        list_into(&self.dir, "", MAX_DEPTH, &mut listed)?;
        Ok(listed)
    }

    /// Reads the files that changed, except those that are being written.
    pub(crate) fn read(&self, listed: &Listed, writing: &BTreeSet<PathBuf>) -> Vec<Content> {
        let differ = listed
            .iter()
            .filter(|(name, (path, stamp))| self.stamps.get(*name) != Some(stamp) && !writing.contains(path));
        differ
            .map(|(name, (path, stamp))| Content {
                path: path.clone(),
                name: name.clone(),
                stamp: *stamp,
                bytes: read_file(path),
            })
            .collect()
    }

    /// Updates the directory with the read files, and removes files that are not listed.
    pub(crate) fn apply(&mut self, listed: &Listed, contents: Vec<Content>) -> ChangeSet {
        let gone: Vec<Arc<str>> = self.directory.names().filter(|name| !listed.contains_key(*name)).cloned().collect();
        for name in gone {
            self.stamps.remove(&name);
            self.directory.remove(&name);
        }
        for content in contents {
            match content.bytes {
                Ok(bytes) => {
                    self.stamps.insert(content.name.clone(), content.stamp);
                    self.directory.update(&content.name, &bytes, &self.options);
                }
                // Deleted between listing and reading: the next scan handles the deletion.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.directory.unreadable(&content.name, &error.to_string()),
            }
        }
        self.directory.settle()
    }
}

fn list_into(dir: &Path, prefix: &str, depth: usize, listed: &mut Listed) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().filter(|n| !n.starts_with('.')) else {
            continue;
        };
        let path = entry.path();
        // Symbolic links are followed; broken ones are ignored.
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        let name = format!("{prefix}{name}");
        if metadata.is_dir() {
            if depth > 0 {
                // An unreadable subdirectory must not remove the others.
                if let Err(error) = list_into(&path, &format!("{name}/"), depth - 1, listed) {
                    tracing::warn!(folder = %path.display(), %error, "a folder of the config directory cannot be read");
                }
            }
        } else if is_config(&name) {
            if listed.len() >= MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
            listed.insert(name.into(), (path, stamp_of(&metadata)));
        }
    }
    Ok(())
}

fn is_config(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

fn stamp_of(metadata: &std::fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    Stamp { bytes: metadata.len(), modified: metadata.modified().ok(), inode: metadata.ino() }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("larger than {} MiB; split it", MAX_FILE_BYTES >> 20)));
    }
    Ok(bytes)
}
