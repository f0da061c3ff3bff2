//! Lists a directory and reads the files that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use config::{ChangeSet, ParseOptions};

use crate::directory::Directory;
use crate::file_events::ScanScope;

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
    /// Whether a file may have several names: then an event of one name may be of another one, too.
    linked: bool,
}

/// Files of a directory.
#[derive(Default)]
pub(crate) struct Listed {
    /// Relative name, path and stamp.
    files: BTreeMap<Arc<str>, (PathBuf, Stamp)>,
    /// Whether these are all files.
    complete: bool,
    linked: bool,
}

impl Reader {
    /// A reader that has read nothing yet.
    pub(crate) fn new(dir: &Path, options: ParseOptions) -> Reader {
        Reader { dir: dir.to_owned(), options, stamps: BTreeMap::new(), directory: Directory::default(), linked: true }
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists the current files, or only the written ones if nothing else can have changed.
    ///
    /// # Errors
    /// The directory itself cannot be read. Unreadable subdirectories are skipped.
    pub(crate) fn list(&mut self, scope: &ScanScope) -> io::Result<Listed> {
        if let ScanScope::Files(paths) = scope
            && let Some(written) = self.list_written(paths)
        {
            return Ok(written);
        }
        let mut listed = Listed { complete: true, ..Listed::default() };
        list_into(&self.dir, "", MAX_DEPTH, &mut listed)?;
        self.linked = listed.linked;
        Ok(listed)
    }

    /// The written files. `None` if one of them was not known, or if files may have several names.
    fn list_written(&self, paths: &BTreeSet<PathBuf>) -> Option<Listed> {
        if self.linked {
            return None;
        }
        let mut listed = Listed::default();
        for path in paths {
            let name = path.strip_prefix(&self.dir).ok()?.to_str()?;
            let (name, _) = self.stamps.get_key_value(name)?;
            let metadata = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
            listed.files.insert(name.clone(), (path.clone(), stamp_of(&metadata)));
        }
        Some(listed)
    }

    /// Reads the files that changed, except those that are being written.
    pub(crate) fn read(&self, listed: &Listed, writing: &BTreeSet<PathBuf>) -> Vec<Content> {
        let differ = listed
            .files
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

    /// Updates the directory with the read files, and removes files that no longer exist.
    pub(crate) fn apply(&mut self, listed: &Listed, contents: Vec<Content>) -> ChangeSet {
        let known = self.directory.names().filter(|_| listed.complete);
        let gone: Vec<Arc<str>> = known.filter(|name| !listed.files.contains_key(*name)).cloned().collect();
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
        listed.linked |= entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if metadata.is_dir() {
            if depth > 0 {
                // An unreadable subdirectory must not remove the others.
                if let Err(error) = list_into(&path, &format!("{name}/"), depth - 1, listed) {
                    tracing::warn!(folder = %path.display(), %error, "a folder of the config directory cannot be read");
                }
            }
        } else if is_config(&name) {
            if listed.files.len() >= MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
            listed.linked |= metadata.nlink() > 1;
            listed.files.insert(name.into(), (path, stamp_of(&metadata)));
        }
    }
    Ok(())
}

fn is_config(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

fn stamp_of(metadata: &std::fs::Metadata) -> Stamp {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists after these files were written, and reads: the number of files, and whether they are all.
    fn scan(reader: &mut Reader, scope: &ScanScope) -> (usize, bool) {
        let listed = reader.list(scope).expect("the directory is listed");
        let contents = reader.read(&listed, &BTreeSet::new());
        reader.apply(&listed, contents);
        (listed.files.len(), listed.complete)
    }

    #[test]
    fn only_a_known_file_with_one_name_is_read_without_listing_the_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let written = |name: &str| ScanScope::Files(BTreeSet::from([at(name)]));
        let write = |name: &str| std::fs::write(at(name), name).expect("a file");
        ["a.yaml", "b.yaml"].iter().for_each(|name| write(name));
        let mut reader = Reader::new(dir.path(), ParseOptions::default());
        assert_eq!(scan(&mut reader, &written("a.yaml")), (2, true), "nothing is known yet");
        assert_eq!(scan(&mut reader, &written("a.yaml")), (1, false));
        write("c.yaml");
        assert_eq!(scan(&mut reader, &written("c.yaml")), (3, true), "it was not known");
        assert_eq!(scan(&mut reader, &written("c.yaml")), (1, false));
        std::fs::hard_link(at("a.yaml"), at("d.yaml")).expect("a link");
        assert_eq!(scan(&mut reader, &ScanScope::All), (4, true));
        assert_eq!(scan(&mut reader, &written("d.yaml")), (4, true), "a.yaml changed, too");
        std::fs::remove_file(at("d.yaml")).expect("the link is removed");
        assert_eq!(scan(&mut reader, &ScanScope::All), (3, true));
        std::fs::remove_file(at("b.yaml")).expect("the file is removed");
        assert_eq!(scan(&mut reader, &written("b.yaml")), (2, true), "it is gone");
    }
}
